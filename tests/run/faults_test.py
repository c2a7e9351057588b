#!/usr/bin/env python3
"""What clients and machines do wrong, and that the others are served on: faults_test.py HADAL [--full] [TEST...]. The same tests in two sizes: small
for every run of the suite; with --full the sizes of docs/serving.md (2,000 vanishing clients, 10,000 idle connections, 1 GB bodies), with figures."""
import http.client
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serve_process import CHAT, PATIENCE, Server, connect, free_port, give_up_after, http_request, until

HADAL = sys.argv[1]
FULL = "--full" in sys.argv
SANITIZED = os.environ.get("HADAL_SANITIZE", "") != ""  # a sanitizer keeps freed memory, so that bounds of memory say nothing
SCRIPT_FLAGS = ("--backend", "script")


def scripted(text, pace_ms=0, stream=True, step=1):
    return {**CHAT, "stream": stream, "thinking": {"type": "disabled"}, "hadal": {"script": {"text": text, "pace_ms": pace_ms, "step": step}}}


def room(kb):
    return kb if not SANITIZED else 1 << 20


def report(name, **figures):
    if FULL:
        print(json.dumps({"fault": name, **figures}), flush=True)


class Bystander:
    """A well-behaved client beside the others: short requests one after another, each of which has to be answered."""

    def __init__(self, server):
        self.server, self.stopping, self.times, self.wrong = server, False, [], []
        self.late = 0.0  # the most by which a sleep was longer than asked: how busy the machine is
        self.threads = [threading.Thread(target=run) for run in (self.run, self.watch)]

    def watch(self):
        while not self.stopping:
            began = time.monotonic()
            time.sleep(0.02)
            self.late = max(self.late, time.monotonic() - began - 0.02)

    def run(self):
        while not self.stopping:
            began = time.monotonic()
            try:
                status, text, _ = self.server.request("POST", "/v1/chat/completions", scripted("fine", stream=False))
                if status != 200 or json.loads(text)["choices"][0]["message"]["content"] != "fine":
                    self.wrong.append((status, text))
            except OSError as error:
                self.wrong.append(error)
            self.times.append(time.monotonic() - began)
            time.sleep(0.02)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        for thread in self.threads:
            thread.join()


class Faults(unittest.TestCase):
    def serve(self, *flags, **more):
        server = Server(HADAL, *SCRIPT_FLAGS, *flags, **more)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def check(self, bystander):
        """Every request beside the fault was answered, and none waited for the fault's end. What the machine itself is late is allowed for."""
        self.assertEqual(bystander.wrong, [])
        self.assertGreater(len(bystander.times), 1)
        self.assertLess(max(bystander.times), 5 + 20 * bystander.late)

    def vanish(self, server, n_clients, at_a_time, random_):
        request = http_request("/v1/chat/completions", scripted("word " * 200, pace_ms=10))
        whole = http_request("/v1/chat/completions", scripted("word " * 200, pace_ms=10, stream=False))
        active, begun = [], 0
        while begun < n_clients or active:
            while begun < n_clients and len(active) < at_a_time:
                client = connect(server.port)
                text = random_.choice((request, whole))
                # One in four never finishes its request.
                client.sendall(text[: random_.randrange(len(text)) if random_.random() < 0.25 else len(text)])
                if random_.random() < 0.5:  # ends with a reset instead of a FIN
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                active.append((time.monotonic() + random_.uniform(0, 0.8), client))
                begun += 1
            for moment, client in active:
                if moment <= time.monotonic():
                    client.close()
            active = [(moment, client) for moment, client in active if client.fileno() >= 0]
            time.sleep(0.002)

    def test_clients_that_vanish_leave_nothing_behind(self):
        server = self.serve()
        n = 2000 if FULL else 300
        random_ = random.Random(1)
        self.vanish(server, n // 2, 100, random_)  # memory that is touched once and kept
        server.wait_until_idle()
        files, resident = server.n_open_files(), server.resident_kb()
        with Bystander(server) as bystander:
            self.vanish(server, n, 100, random_)
        self.check(bystander)
        counts = server.wait_until_idle()
        self.assertEqual((counts["running"], counts["waiting"], counts["paused"]), (0, 0, 0))
        self.assertEqual(counts["free_blocks"] + counts["cached_blocks"], counts["blocks"])
        until(lambda: server.n_open_files() <= files + 1)
        grown = server.resident_kb() - resident
        self.assertLess(grown, room(8 << 10))
        server.request("POST", "/admin/flush")
        until(lambda: server.status()["free_blocks"] == counts["blocks"])
        report("vanish", clients=n, open_files_before=files, open_files_after=server.n_open_files(), resident_kb_before=resident, resident_kb_after=server.resident_kb(), slowest_bystander_ms=round(1000 * max(bystander.times), 1))

    def test_a_slow_reader_pauses_its_own_row_only(self):
        server = self.serve("--http.max-pending-bytes", "16KiB")
        n_words = 60000
        slow = connect(server.port, receive_buffer=4096)
        # An SSE event a word: far more than the kernel's buffers hold.
        slow.sendall(http_request("/v1/chat/completions", {**scripted("word " * n_words), "max_tokens": 2 * n_words}))
        # The kernel's send buffer grows for a while and takes more each time: paused for good is paused for a second.
        seen_since = None

        def paused_for_a_second():
            nonlocal seen_since
            if server.status()["paused"] != 1:
                seen_since = None
            elif seen_since is None:
                seen_since = time.monotonic()
            return seen_since is not None and time.monotonic() - seen_since > 1

        until(paused_for_a_second)
        with Bystander(server) as bystander:
            resident = server.resident_kb()
            time.sleep(1)
            self.assertEqual(server.status()["paused"], 1)
            self.assertLess(server.resident_kb() - resident, room(4 << 10))
        self.check(bystander)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # a window of 2 kB may take a probe of 200 ms for each
        reader = http.client.HTTPResponse(slow)
        reader.begin()
        text = reader.read().decode()
        words = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or "" for line in text.split("\n") if line.startswith("data: {"))
        self.assertEqual(words, "word " * n_words)
        reader.close()
        slow.close()
        report("slow_reader", bytes=len(text), slowest_bystander_ms=round(1000 * max(bystander.times), 1))

    def test_a_flood_over_the_queue_limit_is_refused_and_the_queued_are_served(self):
        server = self.serve("--sched.max-running", "2", "--sched.max-waiting", "4")
        answers = []
        n = 400 if FULL else 40

        def ask():
            status, text, response = server.request("POST", "/v1/chat/completions", scripted("word " * 20, pace_ms=50, stream=False))
            answers.append((status, response.getheader("retry-after"), text))

        threads = [threading.Thread(target=ask) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        served = [answer for answer in answers if answer[0] == 200]
        refused = [answer for answer in answers if answer[0] == 429]
        self.assertEqual(len(served) + len(refused), n)
        self.assertGreaterEqual(len(served), 6)
        self.assertTrue(all(json.loads(text)["choices"][0]["message"]["content"] == "word " * 20 for _, _, text in served))
        self.assertTrue(all(after for _, after, _ in refused))
        self.assertEqual(server.request("POST", "/v1/chat/completions", scripted("x", stream=False))[0], 200)
        report("flood", requests=n, served=len(served), refused=len(refused))

    def test_idle_connections_cost_little_and_nobody_else(self):
        server = self.serve("--http.idle-timeout", "30m")
        for _ in range(20):  # memory that is touched once and kept
            server.request("POST", "/v1/chat/completions", scripted("fine", stream=False))
        n = 10000 if FULL else 1000
        files, resident = server.n_open_files(), server.resident_kb()
        idle = [connect(server.port) for _ in range(n)]
        with Bystander(server) as bystander:
            until(lambda: server.n_open_files() >= files + n - 1)  # one of the first count may have been the status connection before
            each_kb = (server.resident_kb() - resident) / n
            time.sleep(1)
        for client in idle:
            client.close()
        self.check(bystander)
        self.assertLess(each_kb, room(4))
        until(lambda: server.n_open_files() <= files + 1)
        report("idle_connections", connections=n, kb_each=round(each_kb, 2), slowest_bystander_ms=round(1000 * max(bystander.times), 1))

    def test_heads_that_crawl_are_cut_in_time(self):
        server = self.serve("--http.header-timeout", "1000")
        n = 1000 if FULL else 100
        crawlers = [connect(server.port) for _ in range(n)]
        began = time.monotonic()
        with Bystander(server) as bystander:
            for client in crawlers:
                client.sendall(b"GET /v1/models HTTP/1.1\r\nX-A: ")
            alive = set(crawlers)
            while alive and time.monotonic() - began < PATIENCE:
                for client in list(alive):
                    try:
                        client.sendall(b"a")
                    except OSError:
                        alive.discard(client)
                time.sleep(0.1)
        took = time.monotonic() - began
        self.assertEqual(len(alive), 0)
        self.check(bystander)
        for client in crawlers:
            client.close()
        report("slow_heads", connections=n, cut_after_s=round(took, 2), slowest_bystander_ms=round(1000 * max(bystander.times), 1))

    def test_huge_bodies_are_refused_early_and_are_not_kept(self):
        server = self.serve("--http.max-body-bytes", "8MiB")
        server.request("POST", "/v1/chat/completions", "x" * (7 << 20))  # touched once
        resident = server.resident_kb()
        with Bystander(server) as bystander:
            # Announced: refused before a byte of it.
            client = connect(server.port)
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
            self.assertIn(b" 413 ", client.recv(4096))
            client.close()
            # Not announced: refused at the limit, however much follows.
            n_bytes = (1 << 30) if FULL else (64 << 20)
            client = connect(server.port)
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece, sent = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n", 0
            try:
                while sent < n_bytes:
                    client.sendall(piece)
                    sent += 1 << 20
            except OSError:
                pass
            self.assertLess(sent, n_bytes)
            client.close()
        self.check(bystander)
        grown = server.resident_kb() - resident
        self.assertLess(grown, room(24 << 10))
        report("huge_bodies", asked=n_bytes, taken=sent, resident_kb_grown=grown)

    def test_huge_prompts_keep_no_usual_one_waiting(self):
        server = self.serve()
        huge = http_request("/v1/chat/completions", {**scripted("x", stream=False), "messages": [{"role": "user", "content": "word " * 1_100_000}]})
        clients = [connect(server.port) for _ in range(6)]
        senders = [threading.Thread(target=client.sendall, args=(huge,)) for client in clients]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        select.select(clients, [], [], PATIENCE)  # the first is through, the others are here
        usual = {**scripted("fine", stream=False), "messages": [{"role": "user", "content": "word " * 10_000}]}
        self.assertEqual(server.request("POST", "/v1/chat/completions", usual)[0], 200)
        self.assertLess(len(select.select(clients, [], [], 0)[0]), 5, "most of the huge ones are still being read")
        for client in clients:
            self.assertIn(b" 400 ", client.recv(4096))  # beyond the context
        for client in clients:
            client.close()

    def test_many_slow_bodies_do_not_add_up(self):
        server = self.serve("--http.max-body-bytes", "64MiB", "--http.body-timeout", "4s")  # the bystander's body comes in a piece of its own
        clients = [connect(server.port) for _ in range(24)]  # 24 x 60 MiB announced; the limit of all is 1 GiB
        for client in clients:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 62914560\r\n\r\n{")
        time.sleep(0.3)
        with Bystander(server) as bystander:
            heads = [client.recv(4096).split(b" ")[1] for client in clients]
        self.assertIn(b"503", heads)
        self.assertTrue(set(heads) <= {b"503", b"408"}, heads)
        self.check(bystander)
        for client in clients:
            client.close()

    def test_a_full_disk_under_the_log_stops_no_answer(self):
        for log_format in ("text", "json"):
            with open("/dev/full", "w") as full:
                server = self.serve("--log-format", log_format, log=full, port=free_port())
                for _ in range(50):
                    self.assertEqual(server.request("POST", "/v1/chat/completions", scripted("fine", stream=False))[0], 200)
                self.assertEqual(server.stop(), 0)

    def test_a_client_that_is_killed_frees_its_row_and_a_killed_server_comes_back(self):
        port = free_port()
        server = self.serve(port=port)
        body = json.dumps(scripted("word " * 1000, pace_ms=2000))
        client = subprocess.Popen([sys.executable, "-c", "import sys, urllib.request as u; r = u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode())); print(r.read(100), flush=True); r.read()",
                                   f"http://127.0.0.1:{port}/v1/chat/completions", body], stdout=subprocess.PIPE)
        client.stdout.readline()
        server.wait_until_running()  # a stream's first frame may come before the engine has the request
        client.kill()
        client.wait()
        client.stdout.close()
        server.wait_until_idle()
        with_stream = connect(port)
        with_stream.sendall(http_request("/v1/chat/completions", scripted("word " * 1000, pace_ms=200)))
        with_stream.recv(100)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        again = self.serve(port=port)  # at once, on the same port
        self.assertEqual(again.request("POST", "/v1/chat/completions", scripted("fine", stream=False))[0], 200)
        with_stream.close()


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if not FULL:
        give_up_after(870)
    names = [name for name in sys.argv[2:] if name != "--full"]
    result = unittest.main(argv=[sys.argv[0], *names], exit=False).result
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(0 if result.wasSuccessful() else 1)
