#!/usr/bin/env python3
"""`hadal serve` on the GPU with many clients at once: serve_load.py HADAL [--backend cuda] [--clients 64] [--seconds 10]

The demo model. Each client asks question after question, streamed, with its own seed and temperature 1; every eighth request is left
in the middle. A request with a seed must have the same ids whenever it is asked, whoever else is there: each is asked alone before,
and compared. Prints one JSON line: tokens/s, requests, and what is left on the server when all clients are gone. Exit 0: the same
ids everywhere, nothing left, exit 0 of the server."""
import argparse
import collections
import http.client
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/run"))
from serve_process import Server

QUESTIONS = ["What does the command grep do?", "How do I list files?", "2+5?", "Explain tar in one sentence.", "Which command shows free disk space?",
             "What is a pipe in the shell?", "Tell me something", "What does the command sed do? " * 30]
LEAVE_EVERY = 8


def body(seed):
    return {"model": "deepseek-flash", "messages": [{"role": "user", "content": QUESTIONS[seed % len(QUESTIONS)]}], "temperature": 1, "seed": seed,
            "max_tokens": 64, "thinking": {"type": "disabled"}, "stream": True, "stream_options": {"include_usage": True},
            "hadal": {"return_token_ids": True}}


def ask(port, seed, leave=False):
    """The text's pieces joined, and the tokens that usage counts; None if left."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body(seed)))
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:200]}")
        text, tokens = "", 0
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            frame = json.loads(line[6:])
            for choice in frame["choices"]:
                text += choice["delta"].get("content") or ""
            tokens = (frame.get("usage") or {}).get("completion_tokens", tokens)
            if leave and text:
                return None, 0
        return text, tokens
    finally:
        connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hadal")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    a = parser.parse_args()
    server = Server(a.hadal, "--backend", a.backend, "--sched.max-running", "64")
    n_seeds = 4 * len(QUESTIONS)
    alone_at = time.monotonic()
    alone = [ask(server.port, seed) for seed in range(n_seeds)]
    alone_rate = sum(tokens for _, tokens in alone) / (time.monotonic() - alone_at)
    until = time.monotonic() + a.seconds
    counts, wrong, lock = collections.Counter(), [], threading.Lock()

    def client(number):
        turn = 0
        while time.monotonic() < until:
            seed = (number * 7 + turn * 5) % n_seeds
            leave = (number + turn) % LEAVE_EVERY == 0
            turn += 1
            try:
                text, tokens = ask(server.port, seed, leave)
            except (OSError, RuntimeError, ValueError) as error:
                with lock:
                    wrong.append(f"seed {seed}: {error}")
                return
            with lock:
                counts["left" if leave else "whole"] += 1
                counts["tokens"] += tokens
                if not leave and text != alone[seed][0]:
                    wrong.append(f"seed {seed}: {text!r} instead of {alone[seed][0]!r}")
    begun = time.monotonic()
    clients = [threading.Thread(target=client, args=(i,)) for i in range(a.clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    rate = counts["tokens"] / (time.monotonic() - begun)
    idle = server.wait_until_idle()
    code = server.stop()
    left = idle["running"] + idle["waiting"]
    print(json.dumps({"bench": "serve_load", "backend": a.backend, "clients": a.clients, "tokens_s": round(rate, 1), "tokens_s_1": round(alone_rate, 1),
                      "whole": counts["whole"], "left": counts["left"], "wrong": len(wrong), "unfinished": left, "exit": code}))
    for line in wrong[:5]:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong or left or code or not counts["whole"] else 0)


if __name__ == "__main__":
    main()
