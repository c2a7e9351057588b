"""A `hadal serve` of its own for a test, and what /proc and /admin say of it. Used by the tests that need one."""
import ctypes
import faulthandler
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "demo")
CHAT = {"model": "deepseek-flash", "messages": [{"role": "user", "content": "q"}]}


# Seconds for what takes a moment on a machine that is not busy. Only a failure waits so long.
PATIENCE = 240


def give_up_after(seconds):
    """A test that hangs says where, before ctest's time-out (tests/CMakeLists.txt) ends it without a word."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def until(condition, seconds=PATIENCE):
    """What condition() gives, as soon as that is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not so within {seconds} s; at last: {value}"
        time.sleep(0.02)
    return value


PRCTL, PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


def die_with_parent():
    """A server that a failed test left behind would hold the pipe that ctest reads to its end."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    def __init__(self, hadal, *flags, log=None, port=0, preexec_fn=None, **popen):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.port = port
        self.process = subprocess.Popen([hadal, "serve", "--model", DEMO, "--port", str(port), *flags], stderr=log or self.log,
                                        preexec_fn=lambda: (die_with_parent(), preexec_fn and preexec_fn()), **popen)
        until(lambda: self.is_ready() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise RuntimeError(self.read_log())

    def is_ready(self):
        if self.port:
            try:
                return self.request("GET", "/ready")[0] == 200
            except OSError:
                return False
        found = re.search(r"ready on https?://[^:]+:(\d+)", self.read_log())
        if found:
            self.port = int(found.group(1))
        return bool(found)

    def read_log(self):
        with open(self.log.name) as log:
            return log.read()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, None if body is None else body if isinstance(body, (str, bytes)) else json.dumps(body), headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode(), response
        finally:
            connection.close()

    def status(self):
        return json.loads(self.request("GET", "/admin/status")[1])

    def wait_until_idle(self):
        """The counts when nothing runs or waits any more. To show that something was ended it must have run longer than PATIENCE."""
        def idle_counts():
            counts = self.status()
            return counts if counts["running"] == counts["waiting"] == 0 else None

        return until(idle_counts)

    def wait_until_running(self, n=1):
        until(lambda: self.status()["running"] >= n)

    def n_open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kb(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.text = self.read_log()
        self.log.close()
        return code


class ScriptServer(Server):
    """One that plays `lines`, objects of the script format, instead of a model."""

    def __init__(self, hadal, lines, *flags):
        self.script = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        self.script.write("".join(json.dumps(line) + "\n" for line in lines))
        self.script.flush()
        super().__init__(hadal, "--backend", "script", "--script", self.script.name, *flags)


def call(server, method, path, body=None, headers=None, status=200):
    """The JSON of an answer that must have this status."""
    got, text, _ = server.request(method, path, body, headers)
    assert got == status, (method, path, got, text)
    return json.loads(text)


def kill_9(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(PATIENCE)


def http_request(path, body, extra=""):
    """Bytes of a POST."""
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def connect(port, receive_buffer=None):
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(PATIENCE)
    client.connect(("127.0.0.1", port))
    return client


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
