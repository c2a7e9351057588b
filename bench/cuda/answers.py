#!/usr/bin/env python3
"""The demo model's answers on the GPU beside the CPU's: answers.py HADAL MODEL_DIR

Through generate, run and score (whole prompts and chunks of 7 and 64) and through serve with 16 clients and chunks of 5. Sums in another
order tip roundings, and those a choice between two ids now and then. How far that goes is measured on the CPU alone: the model with its
f32 weights moved by 1e-7 of themselves, four times (the demo model's logits move by 0.2 on average, since a tipped quantiser of one
layer tips others above it). The GPU may be as far from the CPU as the CPU is from itself, in the mean difference of the logits and in
the margin between two ids where the first id differs. With `cuda:serial` the bits must be those of `cuda`: the same ids,
log-probabilities and logits. Needs numpy. Exit 0: all of that holds."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/run"))
from serve_process import Server

ROOM = 1.25  # times the largest of four draws of the noise
NOISE = 1e-7  # of each f32 weight
HADAL, MODEL = sys.argv[1], sys.argv[2]
QUESTIONS = ["What does the command grep do?", "What does ls do?", "Tell me something", "What is the weather in Oslo?", "Say hello in French.",
             "How do I list files?", "Write a haiku about rain.", "2+5?", "What is a pipe in the shell?", "Explain tar in one sentence.",
             "Which command shows free disk space?", "What does the command sed do? " * 12]
failures = []


def note(good, text):
    print(("ok    " if good else "OTHER ") + text, flush=True)
    if not good:
        failures.append(text)


def call(*arguments, timeout=150):
    done = subprocess.run([HADAL, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments[:1])}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def body(question, logprobs=True):
    more = {"logprobs": True, "top_logprobs": 2} if logprobs else {}
    return {"model": "deepseek-flash", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 40,
            "thinking": {"type": "disabled"},  # with it the temperature is 1
            "hadal": {"return_token_ids": True}, **more}


def generate(folder, backend, name, *flags):
    """Per question: ids, and the answer's log-probabilities in the order of generation."""
    asked, answered = folder / "in.jsonl", folder / (name + ".jsonl")
    with open(asked, "w") as out:
        for i, question in enumerate(QUESTIONS):
            out.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body(question)}) + "\n")
    call("generate", str(asked), "-o", str(answered), "--model", MODEL, "--backend", backend, *flags)
    found = {}
    for line in open(answered):
        line = json.loads(line)
        if line["response"]["status_code"] != 200:
            sys.exit(f"generate on {backend}: {line['response']['body']}")
        choice = line["response"]["body"]["choices"][0]
        log = choice["logprobs"]
        found[int(line["custom_id"])] = (line["response"]["body"]["hadal"]["token_ids"], (log.get("reasoning_content") or []) + (log.get("content") or []))
    return [found[i] for i in range(len(QUESTIONS))]


def first_margin(ids, log, other):
    """None if equal; else the margin of the first id that differs. Control ids have no log-probability of their own: margin 0 then."""
    for at, (mine, theirs) in enumerate(zip(ids, other)):
        if mine == theirs:
            continue
        top = sorted((t["logprob"] for t in log[at]["top_logprobs"]), reverse=True) if at < len(log) else []
        return top[0] - top[1] if len(top) > 1 else 0.0
    return None if len(ids) == len(other) else 0.0


def judge(what, want, got, margin_of_noise):
    worst, same = 0.0, 0
    for (ids, log), other in zip(want, got):
        margin = first_margin(ids, log, other)
        same += margin is None
        worst = max(worst, margin or 0.0)
    note(worst <= margin_of_noise and same * 2 > len(want), f"{what}: {same} of {len(want)} answers have the CPU's ids, largest margin where one differs {worst:.3f}")


def score(folder, backend, ids, *flags, model=MODEL):
    tokens, logits = folder / "ids.json", folder / "logits.npy"
    tokens.write_text(json.dumps(ids))
    call("score", "--model", str(model), "--backend", backend, "--tokens", str(tokens), "--logits", str(logits), *flags)
    return numpy.load(logits)


def moved(folder, seed):
    """A copy of the model whose f32 weights are off by NOISE."""
    copy = folder / "moved"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(MODEL, copy)
    draw = numpy.random.default_rng(seed)
    n_moved = 0
    for path in sorted(copy.glob("*.safetensors")):
        data = bytearray(path.read_bytes())
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(bytes(data[8:begin])).items():
            if name == "__metadata__" or tensor["dtype"] != "F32":
                continue
            first, last = (begin + at for at in tensor["data_offsets"])
            old = numpy.frombuffer(bytes(data[first:last]), "<f4")
            new = (old * (1 + NOISE * draw.standard_normal(old.shape))).astype("<f4")
            n_moved += int((new != old).sum())
            data[first:last] = new.tobytes()
        path.write_bytes(data)
    if not n_moved:
        sys.exit(f"{MODEL} has no f32 weights to move")
    return copy


def apart(want, got):
    """Mean difference of logits, rows with another first id, and the largest margin between the two likeliest ids in those."""
    top = numpy.sort(want, axis=1)[:, -2:]
    differ = want.argmax(1) != got.argmax(1)
    worst = float((top[:, 1] - top[:, 0])[differ].max()) if differ.any() else 0.0
    return float(numpy.abs(want - got).mean()), int(differ.sum()), worst


def noise(folder, ids, want):
    """The largest of each part of apart() over four models that rounding cannot tell from this one."""
    found = [apart(want, score(folder, "cpu", ids, model=moved(folder, seed))) for seed in range(4)]
    return tuple(max(part) for part in zip(*found))


def serve(backend):
    """Every question four times by 16 clients at a time; ids by question, all of which must agree."""
    server = Server(HADAL, "--backend", backend, "--prefill-chunk", "5", "--kv.block-tokens", "16")
    found = [[None] * len(QUESTIONS) for _ in range(4)]
    places = [(turn, i) for turn in range(4) for i in range(len(QUESTIONS))]
    lock = threading.Lock()

    def client():
        while True:
            with lock:
                if not places:
                    return
                turn, i = places.pop()
            status, text, _ = server.request("POST", "/v1/chat/completions", body(QUESTIONS[i], logprobs=False))
            found[turn][i] = json.loads(text)["hadal"]["token_ids"] if status == 200 else text
    clients = [threading.Thread(target=client) for _ in range(16)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    note(server.stop() == 0, f"serve on {backend} ends with exit 0")
    note(all(turn == found[0] for turn in found), f"serve on {backend}: the same ids for the same question among 16 clients")
    return found[0]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cuda = generate(folder, "cuda", "cuda")
        host = generate(folder, "cpu", "cpu")
        ids = [i for answer, _ in host for i in answer][:400]
        want = score(folder, "cpu", ids)
        mean_of_noise, rows_of_noise, margin_of_noise = noise(folder, ids, want)
        print(f"noise of rounding on the CPU: mean |difference| of logits {mean_of_noise:.5f}, {rows_of_noise} of {len(ids)} rows with another first id, "
              f"largest margin there {margin_of_noise:.3f}")
        judge("generate", host, [ids for ids, _ in cuda], ROOM * margin_of_noise)
        note(generate(folder, "cuda", "chunks", "--prefill-chunk", "7", "--max-running", "3") == cuda, "generate with chunks of 7: the same ids and log-probabilities")
        note(generate(folder, "cuda:serial", "serial") == cuda, "generate on cuda:serial: the same ids and log-probabilities")
        runs = [call("run", "--thinking", "off", "--temperature", "0", "--max-tokens", "40", "--model", MODEL, "--backend", backend, QUESTIONS[0]) for backend in ("cpu", "cuda")]
        note(runs[0] == runs[1] and runs[0], "run: the CPU's answer")
        judge("serve", host, serve("cuda"), ROOM * margin_of_noise)
        got = score(folder, "cuda", ids)
        mean, rows, margin = apart(want, got)
        note(numpy.isfinite(got).all() and mean <= ROOM * mean_of_noise and margin <= ROOM * margin_of_noise,
             f"score: mean |difference| of logits {mean:.5f}, {rows} of {len(ids)} rows with another first id, largest margin there {margin:.3f}")
        for chunk in ("7", "64"):
            note(numpy.array_equal(score(folder, "cuda", ids, "--prefill-chunk", chunk), got), f"score in chunks of {chunk}: the same bits")
        note(numpy.array_equal(score(folder, "cuda:serial", ids), got), "score on cuda:serial: the same bits")
    print(f"{len(failures)} of the above differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
