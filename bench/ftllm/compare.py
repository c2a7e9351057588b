#!/usr/bin/env python3
"""Hadal beside ftllm 1.9.0 on the same checkpoint, threads, prompt ids and machine.

usage: compare.py prepare HADAL DIR                              a 2.1 GB checkpoint of real widths that both load
       compare.py speed HADAL DIR --ftllm-python PYTHON [--threads 1 --threads 2] [--repeats 3] [--prompt 32] [--tokens 8]
                        [--ftllm-setup library|serve] [--quiet COMMAND]
       compare.py goldens HADAL CASES --ftllm-python PYTHON      CASES: made by tests/golden/model/golden.py prepare CASES
README.md says what is measured. PYTHON needs ftllm; this file needs numpy for `goldens` only.
"""
import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def check_count(engine, ids, n):
    if len(ids) != n:
        sys.exit(f"{engine.name}: {len(ids)} tokens instead of {n}")


class Ftllm:
    name = "ftllm"

    def __init__(self, a, folder, threads):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([a.ftllm_python, os.path.join(HERE, "ftllm_worker.py"), folder, str(threads), a.ftllm_setup],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        if self.process.stdout.readline().strip() != "ready":
            with open(self.log.name) as log:
                sys.exit("ftllm does not start:\n" + log.read()[-2000:])

    def ask(self, ids, n, logits=False):
        print(json.dumps({"ids": ids, "n": n, "logits": logits}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def first_and_last(self, ids, n):
        """Seconds until the first and until the last of n greedy tokens."""
        made = self.ask(ids, n)
        check_count(self, made["ids"], n)
        return made["times"][0], made["times"][-1]

    def stop(self):
        self.process.kill()
        self.process.wait()


class Hadal:
    name = "hadal"

    def __init__(self, program, folder, threads):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([program, "serve", "--model", folder, "--threads", str(threads), "--port", "0",
                                         "--kv.prefix-cache", "false"], stderr=self.log)
        while True:
            with open(self.log.name) as log:
                text = log.read()
            found = re.search(r"ready on http://[^:]+:(\d+)", text)
            if found:
                break
            if self.process.poll() is not None:
                sys.exit("hadal does not start:\n" + text)
            time.sleep(0.02)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found.group(1)))

    def first_and_last(self, ids, n):
        """Whole requests of one and of n tokens; prompts are not cached."""
        return self.ask(ids, 1), self.ask(ids, n)

    def ask(self, ids, n):
        body = json.dumps({"model": "deepseek-flash", "prompt": ids, "max_tokens": n, "temperature": 0,
                           "hadal": {"ignore_eos": True, "return_token_ids": True}})
        began = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        seconds = time.perf_counter() - began
        if response.status != 200:
            sys.exit(f"hadal: {response.status} {text.decode()}")
        check_count(self, json.loads(text)["hadal"]["token_ids"], n)
        return seconds

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def prepare(a):
    """The demo's tokenizer with more entries, so that its vocabulary and its Engram map fit the config."""
    os.makedirs(a.folder, exist_ok=True)
    with open(os.path.join(ROOT, "bench", "step", "config_2gb.json")) as f:
        config = json.load(f)
    demo = os.path.join(ROOT, "models", "demo")
    with open(os.path.join(demo, "config.json")) as f:
        demo_config = json.load(f)
    with open(os.path.join(demo, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    text, demo_text = config["text_config"], demo_config["text_config"]
    extra = range(demo_text["vocab_size"], text["vocab_size"])
    tokenizer["added_tokens"] += [{"id": i, "content": f"filler{i}", "single_word": False, "lstrip": False, "rstrip": False,
                                   "normalized": False, "special": False} for i in extra]
    text["engram_compressed_vocab_size"] = demo_text["engram_compressed_vocab_size"] + len(extra)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id"):
        config[key] = demo_config[key]
    text["engram_pad_token_id"] = demo_text["engram_pad_token_id"]
    sources = os.path.join(a.folder, "sources")
    os.makedirs(sources, exist_ok=True)
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(sources, name), "w") as f:
            json.dump(value, f)
    model = os.path.join(a.folder, "model")
    shutil.rmtree(model, ignore_errors=True)
    subprocess.run([a.hadal, "make-model", os.path.join(sources, "config.json"), "-o", model,
                    "--tokenizer", os.path.join(sources, "tokenizer.json")], check=True)
    with open(os.path.join(model, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)      # ftllm asks for it


@contextlib.contextmanager
def quiet(command):
    """Runs `COMMAND cat` around the measurement: a command that holds a lock or keeps others off the machine."""
    if not command:
        yield
        return
    process = subprocess.Popen([*command.split(), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"go")
    process.stdin.flush()
    process.stdout.read(2)
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def speed_round(a, engines, ids):
    """One round: tokens/s of each engine for each kind of work."""
    out = {}
    for engine in engines:
        engine.process.send_signal(signal.SIGCONT)
        first, last = engine.first_and_last(ids, a.tokens + 1 if len(ids) > 2 else 2)
        engine.process.send_signal(signal.SIGSTOP)      # only the one that is asked runs: threads may spin while idle
        out[engine.name] = {"prefill": len(ids) / first, "decode": a.tokens / (last - first)}
    return out


def speed(a):
    with open(os.path.join(a.folder, "model", "config.json")) as f:
        vocab = json.load(f)["text_config"]["vocab_size"]
    rates = {}
    for threads in a.threads:
        engines = [Hadal(a.hadal, os.path.join(a.folder, "model"), threads),
                   Ftllm(a, os.path.join(a.folder, "model"), threads)]
        prompts = [[random.Random(r).randrange(3, vocab) for _ in range(a.prompt)] for r in range(a.repeats)]
        for engine in engines:
            engine.process.send_signal(signal.SIGSTOP)
        for r, ids in enumerate(prompts):
            with quiet(a.quiet):
                if r == 0:                               # warm: first touches of memory and code
                    speed_round(a, engines, ids[:2])
                made = speed_round(a, engines if r % 2 else engines[::-1], ids)
            for name, what_rates in made.items():
                print(f"{threads} threads, round {r + 1}: {name} prefill {what_rates['prefill']:.2f}, decode {what_rates['decode']:.2f}", flush=True)
                for what, rate in what_rates.items():
                    rates.setdefault((name, threads, what), []).append(rate)
        for engine in engines:
            engine.process.send_signal(signal.SIGCONT)
            engine.stop()
    print(f"{'engine':8}{'threads':>8}  {'':8}{'tokens/s':>9}   lowest to highest of {a.repeats}")
    for (name, threads, what), all_rates in sorted(rates.items(), key=lambda r: (r[0][2], r[0][1], r[0][0])):
        print(f"{name:8}{threads:8}  {what:8}{statistics.median(all_rates):9.2f}   {min(all_rates):.2f} to {max(all_rates):.2f}")
    bad = 0
    for what in ("decode", "prefill"):
        middle = {(n, t): statistics.median(r) for (n, t, w), r in rates.items() if w == what}
        if ("hadal", 1) in middle:
            bad += not middle["hadal", 1] > middle["ftllm", 1]
        if ("hadal", 2) in middle:
            bad += not middle["hadal", 2] > max(r for (n, t), r in middle.items() if n == "ftllm")
    print("hadal is ahead" if not bad else "hadal is NOT ahead everywhere")
    sys.exit(1 if bad else 0)


def goldens(a):
    import numpy as np
    sums, n = {"hadal": [0.0, 0], "ftllm": [0.0, 0]}, 0
    print(f"{'case':10}{'prompt':8}{'tokens':>7}{'hadal: mean |difference|':>26}{'first token':>13}{'ftllm':>26}{'first token':>13}")
    for case in sorted(os.listdir(a.folder)):
        folder = os.path.join(a.folder, case)
        if not os.path.exists(os.path.join(folder, "bounds.json")):
            continue
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)
        rival = Ftllm(a, folder, 1)
        with open(os.path.join(folder, "inputs.json")) as f:
            prompts = json.load(f)["prompts"]
        for prompt in prompts:
            stored = lambda kind: os.path.join(folder, "expected", f"{prompt['name']}.{kind}")
            want = np.load(stored("logits.npy"))[-1].astype(np.float64)
            with tempfile.TemporaryDirectory() as tmp:
                out = os.path.join(tmp, "logits.npy")
                subprocess.run([a.hadal, "score", "--model", folder, "--tokens", stored("ids.json"), "--logits", out, "--threads", "1"],
                               check=True, stdout=subprocess.DEVNULL)
                rows = {"hadal": np.load(out)[-1], "ftllm": np.array(rival.ask(prompt["ids"], 1, True)["logits"])}
            line = f"{case:10}{prompt['name']:8}{len(prompt['ids']):7}"
            for name, got in rows.items():
                difference, same = float(np.abs(got - want).mean()), bool(got.argmax() == want.argmax())
                sums[name][0] += difference
                sums[name][1] += same
                line += f"{difference:26.5f}{'same' if same else 'other':>13}"
            n += 1
            print(line, flush=True)
        rival.stop()
    for name, (difference, same) in sums.items():
        print(f"{name}: mean |difference| {difference / n:.5f}, the same first token in {same} of {n}")
    sys.exit(0 if sums["hadal"][0] < sums["ftllm"][0] and sums["hadal"][1] >= sums["ftllm"][1] else 1)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("what", choices=("prepare", "speed", "goldens"))
    parser.add_argument("hadal")
    parser.add_argument("folder")
    parser.add_argument("--ftllm-python", default=sys.executable)
    parser.add_argument("--ftllm-setup", choices=("library", "serve"), default="library")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--quiet")
    a = parser.parse_args()
    a.threads = a.threads or [1, 2]
    a.folder = os.path.abspath(a.folder)
    {"prepare": prepare, "speed": speed, "goldens": goldens}[a.what](a)


if __name__ == "__main__":
    main()
