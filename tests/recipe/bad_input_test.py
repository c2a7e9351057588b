#!/usr/bin/env python3
"""Bad bodies in bounded time and memory: bad_input_test.py encode|serve HADAL

Every body of bad_bodies.py in every dialect, through `hadal encode --stdin-jsonl` or over HTTP with the script backend. Seconds are those of
the program's own work, whatever else the machine does; the bounds are generous for a slow machine and a sanitizer, and what they catch is
work that grows faster than the body. Prints the slowest.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from serve_process import ScriptServer
from bad_bodies import APIS, bad_bodies

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models/demo"
SECONDS, SECONDS_PER_MB = 2.0, 0.5
# A body is there as line, as text and as values: 24 bytes a value, one value for each two bytes at worst.
MEMORY, MEMORY_PER_BYTE = 100 << 20, 40
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses", "completions": "/v1/completions"}


def peak_memory(pid, reset=False):
    if reset:
        with open("/proc/%d/clear_refs" % pid, "w") as file:
            file.write("5")
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10


def worked_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Encoder:
    """One process of `hadal encode`, a line at a time. Pictures elsewhere are no business of encode: it fetches nothing."""
    def __init__(self, hadal):
        self.process = subprocess.Popen([hadal, "encode", "--stdin-jsonl", "--tokenizer", str(DEMO / "tokenizer.json")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, api, text):
        line = json.dumps({"id": 1, "api": api, "body_text": text}, ensure_ascii=False).encode() + b"\n"
        self.process.stdin.write(line)
        # The program reads lines as they come and writes as they are done; a short one pushes it out.
        self.process.stdin.write(b'{"id":2,"text":"x"}\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        self.process.stdout.readline()
        got = json.loads(answer)
        error = got.get("error")
        return (error["status"], error["body"]) if error else (200, got)

    def stop(self):
        self.process.stdin.close()
        return self.process.wait(60)


class Served(ScriptServer):
    def __init__(self, hadal):
        super().__init__(hadal, [{"text": "ok"}])

    def ask(self, api, text):
        status, data, _ = self.request("POST", PATHS[api], text.encode())
        return status, json.loads(data)


def problem(api, want, status, answer, served):
    if want is None:
        # A prompt beyond the context is a refusal of the same kind.
        return None if status == 200 or "context" in json.dumps(answer) or "tokens" in json.dumps(answer) else "%s: %.300s" % (status, json.dumps(answer))
    if status != 400:
        return "status %s, expected 400: %.300s" % (status, json.dumps(answer))
    error = answer["error"]
    if not error.get("message"):
        return "an error without a message"
    shown = error["message"] if api == "messages" else error.get("param") or ""
    if not shown.startswith(want):
        return "names %r, expected %r: %s" % (shown[:80], want, error["message"][:200])
    return None


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("encode", "serve"):
        sys.exit(__doc__)
    target = {"encode": Encoder, "serve": Served}[sys.argv[1]](sys.argv[2])
    served = sys.argv[1] == "serve"
    slack = 4 if os.environ.get("HADAL_SANITIZED") else 1
    bad, seen = 0, []
    target.ask("chat", "{}")
    for api in APIS:
        for name, text, want in bad_bodies(api):
            if not served and "elsewhere" in name or not served and "metadata" in name:
                want = None
            n_bytes = len(text.encode())
            before = peak_memory(target.process.pid, reset=True)
            began = worked_seconds(target.process.pid)
            status, answer = target.ask(api, text)
            took = worked_seconds(target.process.pid) - began
            grown = peak_memory(target.process.pid) - before
            found = problem(api, want, status, answer, served)
            if found is None and took > slack * (SECONDS + SECONDS_PER_MB * n_bytes / 1e6):
                found = "took %.2f s for %.1f MB" % (took, n_bytes / 1e6)
            if found is None and slack == 1 and grown > MEMORY + MEMORY_PER_BYTE * n_bytes:
                found = "took %d MB of memory for %.1f MB" % (grown >> 20, n_bytes / 1e6)
            if found:
                bad += 1
                print("%s, %s: %s" % (api, name, found))
            seen.append((took, grown, n_bytes, "%s, %s" % (api, name)))
    code = target.stop()
    for took, grown, n_bytes, name in sorted(seen)[-8:]:
        print("%.3f s, %d MB for a body of %.1f MB: %s" % (took, grown >> 20, n_bytes / 1e6, name))
    for took, grown, n_bytes, name in sorted(seen, key=lambda s: s[1])[-3:]:
        print("memory: %d MB for a body of %.1f MB: %s" % (grown >> 20, n_bytes / 1e6, name))
    print("%d bodies, %d wrong, exit %d" % (len(seen), bad, code))
    return 1 if bad or code else 0


if __name__ == "__main__":
    sys.exit(main())
