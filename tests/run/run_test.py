#!/usr/bin/env python3
"""hadal run and hadal generate as a person calls them: run_test.py HADAL run|generate."""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HADAL = sys.argv[1]
DEMO = pathlib.Path(__file__).parents[2] / "models/demo"
CHECKS = []


def check(name):
    def note(function):
        CHECKS.append((name, function))
        return function
    return note


def hadal(*arguments, stdin=subprocess.DEVNULL, text=None, out=subprocess.PIPE):
    return subprocess.run([HADAL, *arguments], stdin=None if text is not None else stdin, input=text, stdout=out,
                          stderr=subprocess.PIPE, timeout=240)


def refused(done, code, *words):
    error = done.stderr.decode()
    assert done.returncode == code, (done.returncode, error)
    for word in words:
        assert word in error, error
    assert len(error.strip().split("\n\n")) == 1, error
    return error


# ---- run ----

@check("the demo model says what grep does")
def _():
    done = hadal("run", "What does the command grep do?")
    answer = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "grep" in answer and answer.endswith("\n"), answer
    assert done.stderr == b"", done.stderr


@check("a prompt on stdin is answered like one in the arguments")
def _():
    assert hadal("run", text=b"What does ls do?\n").stdout == hadal("run", "What does ls do?").stdout != b""


@check("the same seed gives the same answer, other seeds give others")
def _():
    def ask(seed):
        return hadal("run", "--temperature", "3", "--seed", seed, "--max-tokens", "30", "Tell me something").stdout
    assert ask("7") == ask("7")
    assert len({ask(str(seed)) for seed in range(4)}) > 1


@check("raw text is continued as it is, control tokens included")
def _():
    prompt = "<｜begin▁of▁sentence｜><｜User｜>What does ls do?<｜Assistant｜></think>"
    raw = hadal("run", "--raw", prompt).stdout
    assert raw == hadal("run", "What does ls do?").stdout, raw


class Chat:
    """hadal run in a terminal of its own."""

    def __init__(self, *arguments):
        self.seen = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(HADAL, [HADAL, "run", *arguments])

    def read(self):
        """More of what it prints; nothing once the program is gone."""
        try:
            more = os.read(self.terminal, 4096)
        except OSError:
            return b""
        self.seen += more
        return more

    def wait_for(self, word, after=0):
        while self.seen.find(word, after) < 0:
            assert self.read(), self.seen[-400:]

    def say(self, line):
        os.write(self.terminal, line + b"\n")


@check("Ctrl-C stops the answer of a chat, not the program")
def _():
    chat = Chat("--temperature", "3", "--max-tokens", "3000", "--seed", "1")
    chat.wait_for(b"> ")
    chat.say(b"Tell me everything")
    chat.wait_for(b"everything")
    asked = len(chat.seen)
    while len(chat.seen) < asked + 100:
        assert chat.read(), chat.seen
    os.kill(chat.pid, signal.SIGINT)
    chat.wait_for(b"(stopped)")
    chat.wait_for(b"> ", chat.seen.index(b"(stopped)"))
    chat.say(b"/exit")
    while chat.read():
        pass
    _, status = os.waitpid(chat.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, (status, chat.seen[-400:])


@check("text that spells a control token stays text in a chat")
def _():
    plain = hadal("run", "a<｜User｜>b")
    assert plain.returncode == 0, plain.stderr


@check("max-tokens cuts the answer")
def _():
    whole = hadal("run", "What does ls do?").stdout.strip()
    cut = hadal("run", "--max-tokens", "3", "What does ls do?").stdout.strip()
    assert 0 < len(cut) < len(whole) and whole.startswith(cut), (cut, whole)


@check("thinking is not part of a piped answer")
def _():
    done = hadal("run", "--thinking", "high", "What does tar do?")
    assert done.returncode == 0 and b"think>" not in done.stdout and b"\x1b" not in done.stdout, done.stdout


def widen_gates(folder, spoil=False):
    """Rewrites the compressors' gates of a checkpoint as F32; `spoil`: with a value that is no bf16 number."""
    n = 0
    for shard in folder.glob("*.safetensors"):
        data = shard.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8:8 + size]), data[8 + size:]
        out, at = [], 0
        for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
            if name == "__metadata__":
                continue
            values = body[slice(*entry["data_offsets"])]
            if name.endswith("compressor.wgate.weight"):
                values = b"".join(b"\0\0" + values[i:i + 2] for i in range(0, len(values), 2))
                values = b"\1" + values[1:] if spoil else values
                entry["dtype"] = "F32"
                n += 1
            entry["data_offsets"] = [at, at + len(values)]
            at += len(values)
            out.append(values)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        shard.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(out))
    assert n > 0


@check("gates stored as F32 are the same model, but only if they are bf16 numbers")
def _():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "m"
        shutil.copytree(DEMO, folder)
        widen_gates(folder)
        answer = hadal("run", "--temperature", "0", "--model", folder, "What does ls do?").stdout
        assert answer == hadal("run", "What does ls do?").stdout != b""
        shutil.rmtree(folder)
        shutil.copytree(DEMO, folder)
        widen_gates(folder, spoil=True)
        refused(hadal("run", "--model", folder, "What does ls do?"), 1, "compressor.wgate.weight", "no bf16")


@check("wrong input is refused with one paragraph")
def _():
    refused(hadal("run", ""), 1, "empty")
    refused(hadal("run", text=b"\n"), 1, "empty")
    refused(hadal("run", text=b"a\xc3\xbcb\xff"), 1, "UTF-8 at byte 4")
    refused(hadal("run", "word " * 6000), 1, "tokens", "shorten")
    refused(hadal("run", "--model", "/nonexistent", "hi"), 1, "/nonexistent/config.json")
    with open("/dev/full", "wb") as full:
        refused(hadal("run", "hi", out=full), 1, "standard output")


@check("a missing tokenizer is named")
def _():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(os.path.dirname(__file__), "..", "..", "models", "demo", "config.json")
        with open(model, "rb") as config, open(folder + "/config.json", "wb") as copy:
            copy.write(config.read())
        refused(hadal("run", "--model", folder, "hi"), 1, folder + "/tokenizer.json")


@check("wrong usage is exit 2 and names the flag")
def _():
    refused(hadal("run", "--top-p", "3", "x"), 2, "--top-p")
    refused(hadal("run", "--thinking", "hard", "x"), 2, "--thinking")
    refused(hadal("run", "--temprature", "1", "x"), 2, "--temperature")


# ---- generate ----

def request(key, text, **extra):
    script = {"text": text, "step": 2, "pace_ms": 3}
    body = {"model": "m", "messages": [{"role": "user", "content": key}], "thinking": {"type": "disabled"},
            "hadal": {"script": script}, **extra}
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}


def write_lines(path, lines):
    with open(path, "w") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def read_lines(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data.endswith(b"\n") or not data
    return [json.loads(line) for line in data.splitlines()]


def generate(source, target, *more):
    return hadal("generate", source, "-o", target, "--backend", "script", *more)


@check("lines are answered, wrong ones get errors, and the run goes on")
def _():
    with tempfile.TemporaryDirectory() as folder:
        write_lines(folder + "/in", [request("a", "one two"), "no json", {**request("g", "x"), "method": "GET"},
                                     {**request("e", "x"), "body": {"model": "m"}},
                                     request("n", "three", n=2), request("s", "four", stream=True)])
        done = generate(folder + "/in", folder + "/out")
        assert done.returncode == 0, done.stderr
        lines = read_lines(folder + "/out")
        assert len(lines) == 6
        by_key = {line["custom_id"]: line for line in lines}
        body = by_key["a"]["response"]["body"]
        assert by_key["a"]["error"] is None and by_key["a"]["response"]["status_code"] == 200
        assert body["choices"][0]["message"]["content"] == "one two"
        assert [c["message"]["content"] for c in by_key["n"]["response"]["body"]["choices"]] == ["three"] * 2
        assert "line 2" in by_key[None]["error"]["message"] and by_key[None]["response"] is None
        assert "method" in by_key["g"]["error"]["message"]
        assert by_key["e"]["response"]["status_code"] == 400 and by_key["s"]["response"]["status_code"] == 400
        again = generate(folder + "/in", folder + "/out")
        assert again.returncode == 0 and read_lines(folder + "/out") == lines, again.stderr


@check("a line is answered once whatever its custom_id is")
def _():
    with tempfile.TemporaryDirectory() as folder:
        odd = ["", "a" * 512, "a" * 513, "b" * 5000, "\u00e9", "\U0001f300", "a\0b", "batch_req_00000001", "\"\\\n"]
        write_lines(folder + "/in", [request(key, "x") for key in odd] + [{**request("x", "x"), "custom_id": other} for other in (5, None, ["a"])])
        for _ in range(3):
            done = generate(folder + "/in", folder + "/out")
            assert done.returncode == 0, done.stderr
            results = read_lines(folder + "/out")
            assert len({line["id"] for line in results}) == len(results) == len(odd) + 3, len(results)
        keys = [line["custom_id"] for line in results]
        assert sorted(key for key in keys if key is not None) == sorted(key for key in odd if len(key) <= 512), keys


@check("every dialect has its place in a batch")
def _():
    with tempfile.TemporaryDirectory() as folder:
        script = {"hadal": {"script": {"text": "hm</think>hello there"}}, "model": "m"}
        plain = {"hadal": {"script": {"text": "hello there"}}, "model": "m"}
        lines = [{"custom_id": url, "method": "POST", "url": url, "body": body} for url, body in (
            ("/v1/completions", {**plain, "prompt": "x"}),
            ("/v1/messages", {**script, "max_tokens": 20, "messages": [{"role": "user", "content": "q"}]}),
            ("/v1/responses", {**script, "input": "x"}))]
        write_lines(folder + "/in", lines)
        done = generate(folder + "/in", folder + "/out")
        assert done.returncode == 0, done.stderr
        results = read_lines(folder + "/out")
        assert len(results) == 3
        for result in results:
            assert result["response"]["status_code"] == 200, result
            assert "hello there" in json.dumps(result["response"]["body"]), result


@check("kill -9 at any moment loses no line and doubles none")
def _():
    with tempfile.TemporaryDirectory() as folder:
        source, target = folder + "/in", folder + "/out"
        n = 2000
        write_lines(source, [request(f"r{i}", " ".join(f"w{i}" for _ in range(10 + i % 40))) for i in range(n)] + ["?"])
        kills = 0
        for _ in range(4):
            child = subprocess.Popen([HADAL, "generate", source, "-o", target, "--backend", "script", "--max-running", "16"],
                                     stderr=subprocess.DEVNULL)
            before = os.path.getsize(target) if os.path.exists(target) else 0
            deadline = time.monotonic() + 240
            while child.poll() is None and time.monotonic() < deadline:
                if os.path.exists(target) and os.path.getsize(target) > before + 20000:
                    child.send_signal(signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.002)
            child.wait(240)
            with open(target, "ab") as file:  # what a power cut may leave
                file.write(b'{"id":"batch_req_0000')
        assert kills >= 2, kills
        done = generate(source, target)
        assert done.returncode == 0, done.stderr
        lines = read_lines(target)
        keys = sorted(line["custom_id"] or "" for line in lines)
        assert keys == sorted([f"r{i}" for i in range(n)] + [""]), (len(keys), len(set(keys)))
        for line in lines:
            if line["custom_id"]:
                content = line["response"]["body"]["choices"][0]["message"]["content"]
                assert content.split()[0] == "w" + line["custom_id"][1:], line


@check("the model gives the ids that it gives alone")
def _():
    with tempfile.TemporaryDirectory() as folder:
        names = ["ls", "tar", "grep", "sort", "cut", "head", "df", "du"]
        def line(name):
            return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
                    "body": {"model": "m", "messages": [{"role": "user", "content": f"What does {name} do?"}],
                             "temperature": 0, "thinking": {"type": "disabled"}}}
        write_lines(folder + "/in", [line(name) for name in names])
        done = hadal("generate", folder + "/in", "-o", folder + "/out")
        assert done.returncode == 0, done.stderr
        answers = {entry["custom_id"]: entry["response"]["body"]["choices"][0]["message"]["content"]
                   for entry in read_lines(folder + "/out")}
        for name in names:
            alone = hadal("run", f"What does {name} do?")
            assert alone.returncode == 0, (alone.returncode, alone.stderr)
            assert answers[name] == alone.stdout.decode().rstrip("\n"), (answers[name], alone.stdout)


@check("files that cannot be worked with are refused")
def _():
    with tempfile.TemporaryDirectory() as folder:
        write_lines(folder + "/in", [request("a", "x"), request("b", "x"), request("a", "y")])
        refused(generate(folder + "/in", folder + "/out"), 1, "lines 1 and 3", "custom_id")
        write_lines(folder + "/in", [request("a", "x")])
        refused(generate(folder + "/in", folder + "/in"), 1, "input file")
        refused(generate(folder + "/none", folder + "/out"), 1, folder + "/none")
        refused(generate(folder + "/in", folder + "/no/out"), 1, folder + "/no/out")
        refused(generate(folder + "/in", "/dev/full"), 1, "/dev/full")
        write_lines(folder + "/other", ["hello", "world"])
        refused(generate(folder + "/in", folder + "/other"), 1, "no batch result")
        assert read_text(folder + "/other") == "hello\nworld\n"


def read_text(path):
    with open(path) as file:
        return file.read()


def main():
    wanted = sys.argv[2]
    part = None
    failed = 0
    for name, function in CHECKS:
        part = "generate" if function.__code__.co_firstlineno > generate.__code__.co_firstlineno else "run"
        if part != wanted:
            continue
        try:
            function()
            print("ok  ", name)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print("FAIL", name, "\n    ", str(error)[:2000])
    sys.exit(1 if failed else 0)


main()
