#!/usr/bin/env python3
"""Compares Hadal's tokenizer with the Python package `tokenizers` on a generated corpus.
differential.py BENCH_TOKENIZER TOKENIZER.json [--bytes N] [--seed S]; exit 1 and the first difference if any."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bench")
    args.add_argument("tokenizer")
    args.add_argument("--bytes", type=int, default=20_000_000)
    args.add_argument("--seed", default="1")
    a = args.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus.jsonl")
        with open(corpus, "w") as out:
            subprocess.run([sys.executable, os.path.join(here, "corpus.py"), a.seed, str(a.bytes)], stdout=out, check=True)
        ours = subprocess.run([a.bench, a.tokenizer, corpus, "--ids"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        texts = [json.loads(line)["text"] for line in open(corpus)]
        speed = json.loads(subprocess.run([a.bench, a.tokenizer, corpus], stdout=subprocess.PIPE, text=True, check=True).stdout)
    reference = Tokenizer.from_file(a.tokenizer)
    different, began = 0, time.time()
    for number, (text, line) in enumerate(zip(texts, ours, strict=True)):
        expected = reference.encode(text, add_special_tokens=False).ids
        if expected != json.loads(line):
            different += 1
            if different == 1:
                got = json.loads(line)
                at = next(i for i, pair in enumerate(zip(expected + [None], got + [None])) if pair[0] != pair[1])
                before = reference.decode(expected[:at], skip_special_tokens=False)
                print(f"line {number}, token {at}: expected {expected[at:at+6]}, got {got[at:at+6]}; text there: {text[len(before):len(before)+30]!r}")
    took = time.time() - began
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts)} texts, {size} bytes, {different} differ; hadal {speed['mb_per_s']} MB/s, tokenizers {size / took / 1e6:.1f} MB/s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
