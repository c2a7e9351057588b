#!/usr/bin/env python3
"""How far `cuda:fp8` moves the logits: drift.py HADAL DEMO_DIR

The demo model reads a page of this repository, 2,000 ids in one chunk, on `cuda` and on `cuda:fp8` (the prompts of the golden checkpoints are
too short: their experts get too few rows for E4M3). The mean and the largest difference of the logits and the rows with another first id;
beside it the same between `cuda` and `cuda` with the checkpoint's f32 weights moved by 1e-7 of themselves (answers.py), which is what
rounding alone does to such a model: the largest mean of three draws. Needs numpy. Exit 0: the logits are finite, do move, and not by more
than ROOM times the noise."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

import answers

ROOM = 3.0
DRAWS = 3
ROOT = pathlib.Path(__file__).resolve().parents[2]


def page_ids(demo, n):
    """The first ids of a documentation page as the demo model's tokenizer has them."""
    body = {"model": "deepseek-flash", "messages": [{"role": "user", "content": (ROOT / "docs/model.md").read_text()[: 6 * n]}]}
    done = subprocess.run([answers.HADAL, "encode", "-", "--api", "chat", "--model", str(demo)], input=json.dumps(body), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"encode: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    return (found.get("ids") or found["token_ids"])[:n]


def measure(folder, name, model, ids):
    answers.MODEL = str(model)
    chunk = ("--prefill-chunk", "4096")
    score = lambda backend, of=model: answers.score(folder, backend, ids, *chunk, model=of)
    want, got = score("cuda"), score("cuda:fp8")
    mean, rows, _ = answers.apart(want, got)
    noise = max(answers.apart(want, score("cuda", answers.moved(folder, seed)))[0] for seed in range(DRAWS))
    good = bool(numpy.isfinite(got).all()) and 0 < mean <= ROOM * noise
    print(f"{'ok   ' if good else 'OTHER'} {name:14} {len(ids):5} tokens: mean |difference| {mean:.5f} (noise of rounding {noise:.5f}), largest "
          f"{numpy.abs(want - got).max():.3f}, logits' deviation {want.std():.2f}, {rows} other first ids", flush=True)
    return good


def main():
    demo = pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        good = measure(pathlib.Path(name), "demo", demo, page_ids(demo, 2000))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
