#!/usr/bin/env python3
"""hadal serve as a client sees it: serve_test.py HADAL. Script backend for the gateway, the demo model for one answer."""
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_process
from serve_process import CHAT, give_up_after

HADAL = sys.argv[1]
SCRIPT = [
    {"match": {"contains": "slow"}, "reasoning": "", "text": "word " * 20000, "pace_ms": 20},  # longer than any test waits
    {"match": {"api": "completions"}, "text": "plain"},
    {"reasoning": "because", "text": "The answer.", "step": 2},
]


def Server(*flags):
    return serve_process.Server(HADAL, *flags)


def events(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ") and line != "data: [DONE]"]


class Gateway(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        cls.script.write("# a comment\n\n" + "\n".join(json.dumps(line) for line in SCRIPT))
        cls.script.flush()
        cls.server = Server("--backend", "script", "--script", cls.script.name)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text
        cls.script.close()

    def test_the_same_conversation_gives_the_same_ids_in_every_dialect(self):
        hadal = {"return_token_ids": True}
        _, chat, _ = self.server.request("POST", "/v1/chat/completions", {**CHAT, "hadal": hadal})
        _, message, _ = self.server.request("POST", "/v1/messages", {"model": "claude-x", "max_tokens": 99, "messages": CHAT["messages"], "thinking": {"type": "enabled", "budget_tokens": 1024}, "hadal": hadal})
        _, response, _ = self.server.request("POST", "/v1/responses", {"model": "deepseek-flash", "input": "q", "hadal": hadal})
        found = [json.loads(text)["hadal"] for text in (chat, message, response)]
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_streams_add_up_to_the_whole_answer(self):
        whole = json.loads(self.server.request("POST", "/v1/chat/completions", CHAT)[1])
        _, text, response = self.server.request("POST", "/v1/chat/completions", {**CHAT, "stream": True})
        self.assertTrue(response.getheader("content-type").startswith("text/event-stream"))
        self.assertTrue(text.endswith("data: [DONE]\n\n"))
        deltas = [choice["delta"] for event in events(text) for choice in event["choices"]]
        self.assertEqual("".join(d.get("content") or "" for d in deltas), whole["choices"][0]["message"]["content"])
        self.assertEqual("".join(d.get("reasoning_content") or "" for d in deltas), "because")

    def test_wrong_requests_name_the_field_and_cost_nobody_anything(self):
        for body, status, param in [
            ("{", 400, None), ("[" * 100000, 400, None), ({**CHAT, "model": "x"}, 404, "model"), ({"model": "deepseek-flash"}, 400, "messages"),
            ({**CHAT, "messages": [{"role": "pirate", "content": "x"}]}, 400, "messages[0].role"), ({**CHAT, "temperature": "hot"}, 400, "temperature"),
            ({**CHAT, "hadal": {"unknown": 1}}, 400, "hadal.unknown"),
        ]:
            got, text, _ = self.server.request("POST", "/v1/chat/completions", body)
            self.assertEqual(got, status, text)
            if param:
                self.assertEqual(json.loads(text)["error"]["param"], param)
        self.assertEqual(self.server.request("GET", "/nothing")[0], 404)
        self.assertEqual(self.server.request("GET", "/v1/chat/completions")[0], 405)
        self.assertEqual(self.server.request("POST", "/v1/chat/completions", CHAT)[0], 200)

    def test_clients_that_vanish_leave_nothing_behind(self):
        body = json.dumps({**CHAT, "stream": True, "max_tokens": 20000, "messages": [{"role": "user", "content": "slow"}]}).encode()
        for n_read in (0, 10, 400, 3000):
            with socket.create_connection(("127.0.0.1", self.server.port)) as client:
                client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                while n_read > 0:
                    n_read -= len(client.recv(min(n_read, 4096)))
        counts = self.server.wait_until_idle()
        self.assertEqual((counts["running"], counts["waiting"]), (0, 0))
        self.assertEqual(counts["free_blocks"] + counts["cached_blocks"], counts["blocks"])

    def test_many_clients_at_once(self):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.server.request("POST", "/v1/chat/completions", CHAT)[0])) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [200] * 40)

    def test_metrics_models_page_and_tokens(self):
        _, text, _ = self.server.request("GET", "/metrics")
        self.assertIn("vllm:num_requests_running{", text)
        self.assertIn("deepseek-flash", self.server.request("GET", "/v1/models")[1])
        self.assertIn("<title>Hadal</title>", self.server.request("GET", "/")[1])
        ids = json.loads(self.server.request("POST", "/tokenize", {"prompt": "grep word <think>"})[1])["tokens"]
        self.assertEqual(json.loads(self.server.request("POST", "/detokenize", {"tokens": ids})[1])["prompt"], "grep word <think>")

    def test_a_prompt_of_ids_takes_whole_numbers_only(self):
        for prompt, status in [([75, 76], 200), ([75.0, 76], 200), ([75.5, 76], 400), ([75, -1], 400), ([75, "x"], 400), ([75, 1e300], 400), ([], 400)]:
            body = {"model": CHAT["model"], "prompt": prompt, "max_tokens": 1, "hadal": {"script": {"text": "x"}}}
            self.assertEqual(self.server.request("POST", "/v1/completions", body)[0], status, prompt)

    def test_choices_do_not_multiply_a_long_prompt_beyond_measure(self):
        body = {"model": CHAT["model"], "prompt": [75] * 50_000, "max_tokens": 1, "hadal": {"script": {"text": "x"}}}
        status, text, _ = self.server.request("POST", "/v1/completions", {**body, "n": 128})
        error = json.loads(text)["error"]
        self.assertEqual((status, error["param"], "at most 83" in error["message"]), (400, "n", True), text)
        self.assertEqual(len(json.loads(self.server.request("POST", "/v1/completions", {**body, "n": 4})[1])["choices"]), 4)

    def test_every_route_is_described_and_answers(self):
        document = json.loads(self.server.request("GET", "/openapi.json")[1])
        self.assertEqual(document["openapi"], "3.1.0")
        text = json.dumps(document)
        for name in re.findall(r'"#/components/([^"]+)"', text):
            part = document["components"]
            for key in name.split("/"):
                part = part[key]
        unknown = [f"{method} {path}" for path, methods in document["paths"].items() for method, operation in methods.items() if "x-undocumented" in operation]
        self.assertEqual(unknown, [], "describe them in src/gateway/admin/openapi.json")
        for path, methods in document["paths"].items():
            if "get" in methods and "{" not in path:
                self.assertEqual(self.server.request("GET", path)[0], 200, path)

    def test_encode_takes_and_gives_an_object_of_the_batch_mode(self):
        line = {"id": "1", "api": "chat", "model_version": "v4.1", "body": {**CHAT, "thinking": {"type": "disabled"}}}
        status, text, _ = self.server.request("POST", "/v1/encode", line)
        self.assertEqual(status, 200)
        out = subprocess.run([HADAL, "encode", "--stdin-jsonl"], input=json.dumps(line) + "\n", capture_output=True, text=True, check=True).stdout
        self.assertEqual(json.loads(text), json.loads(out))
        self.assertEqual(json.loads(text)["prompt"], "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>")
        wrong = json.loads(self.server.request("POST", "/v1/encode", {"id": 2, "api": "chat", "body": {}})[1])
        self.assertEqual((wrong["id"], wrong["error"]["status"], wrong["error"]["body"]["error"]["param"]), (2, 400, "model"))
        self.assertEqual(self.server.request("POST", "/v1/encode", "[]")[0], 400)

    def test_event_times_are_comments_before_the_events(self):
        text = self.server.request("POST", "/v1/chat/completions", {**CHAT, "stream": True, "hadal": {"event_times": True}})[1]
        times = [int(t) for t in re.findall(r"^: t=(\d+)$", text, re.M)]
        self.assertGreater(len(times), 1)
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(time.monotonic_ns() - times[-1]), 60e9)
        self.assertNotIn("\n: t=", self.server.request("POST", "/v1/chat/completions", {**CHAT, "stream": True})[1])


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP/HTTP exports."""

    spans = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/traces" and self.headers["content-type"] == "application/json":
            self.spans.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Operation(unittest.TestCase):
    def test_requests_are_traced_to_a_collector(self):
        collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        server = Server("--backend", "script", "--otlp.endpoint", f"http://127.0.0.1:{collector.server_port}")
        body = {**CHAT, "hadal": {"script": {"text": "word word"}}}
        trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
        header = server.request("POST", "/v1/chat/completions", body, {"traceparent": f"00-{trace}-{parent}-01"})[2].getheader("traceparent")
        self.assertRegex(header, f"^00-{trace}-[0-9a-f]{{16}}-01$")
        server.request("POST", "/v1/chat/completions", body, {"traceparent": f"00-{trace[::-1]}-{parent}-00"})  # not sampled
        self.assertRegex(server.request("GET", "/version")[2].getheader("traceparent"), "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$")
        self.assertEqual(server.stop(), 0)
        collector.shutdown()
        collector.server_close()
        mine = {span["name"]: span for span in Collector.spans if span["traceId"] == trace}
        self.assertEqual(set(mine), {"POST /v1/chat/completions", "generate deepseek-flash", "queue", "prefill", "decode"})
        root, generation = mine["POST /v1/chat/completions"], mine["generate deepseek-flash"]
        self.assertEqual((root["parentSpanId"], root["spanId"], root["kind"]), (parent, header.split("-")[2], 2))
        self.assertEqual(generation["parentSpanId"], root["spanId"])
        self.assertEqual({mine[name]["parentSpanId"] for name in ("queue", "prefill", "decode")}, {generation["spanId"]})
        attributes = {item["key"]: item["value"] for item in generation["attributes"]}
        self.assertGreater(int(attributes["gen_ai.usage.output_tokens"]["intValue"]), 1)
        self.assertFalse([span for span in Collector.spans if span["traceId"] == trace[::-1]])
        self.assertTrue([span for span in Collector.spans if span["name"] == "GET /version"])

    def test_keys_guard_everything_but_health_and_ready(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("0123456789abcdefgh tenant\n")
            keys.flush()
            server = Server("--backend", "script", "--api-keys", keys.name)
            try:
                for path in ("/v1/models", "/metrics", "/", "/version"):
                    self.assertEqual(server.request("GET", path)[0], 401, path)
                    self.assertEqual(server.request("GET", path, headers={"Authorization": "Bearer 0123456789abcdefgh"})[0], 200, path)
                self.assertEqual(server.request("GET", "/health")[0], 200)
                self.assertEqual(server.request("GET", "/ready")[0], 200)
            finally:
                server.stop()

    def test_drain_finishes_what_runs(self):
        server = Server("--backend", "script")
        script = {"script": {"text": "word " * 50, "pace_ms": 100}}
        result = []
        thread = threading.Thread(target=lambda: result.append(server.request("POST", "/v1/chat/completions", {**CHAT, "thinking": {"type": "disabled"}, "hadal": script})))
        thread.start()
        server.wait_until_running()
        self.assertEqual(server.stop(), 0)
        thread.join()
        self.assertEqual(result[0][0], 200)
        self.assertEqual(json.loads(result[0][1])["choices"][0]["message"]["content"], "word " * 50)
        self.assertIn("0 requests were cut", server.text)

    def test_a_second_interrupt_cuts_what_a_drain_waits_for_and_a_second_sigterm_does_not(self):
        server = Server("--backend", "script", "--drain-grace", "12h")
        with serve_process.connect(server.port) as client:
            body = {**CHAT, "stream": True, "thinking": {"type": "disabled"}, "hadal": {"script": {"text": "word " * 1000, "pace_ms": 1000}}}
            client.sendall(serve_process.http_request("/v1/chat/completions", body))
            server.wait_until_running()
            server.process.send_signal(signal.SIGTERM)
            serve_process.until(lambda: "draining: " in server.read_log())
            server.process.send_signal(signal.SIGTERM)  # some supervisors send it twice
            time.sleep(0.5)
            self.assertIsNone(server.process.poll())
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(serve_process.PATIENCE), 0)
        self.assertIn("1 requests were cut", server.read_log())

    def test_a_request_ends_at_the_operators_deadline(self):
        server = Server("--backend", "script", "--sched.deadline", "3s", "--sched.max-running", "1")

        def body(**script):
            return {**CHAT, "thinking": {"type": "disabled"}, "hadal": {"script": {"text": "word " * 1000, **script}}}

        self.assertEqual(server.request("POST", "/v1/chat/completions", body())[0], 200)
        answers = {}
        threads = [threading.Thread(target=lambda i=i: answers.update({i: server.request("POST", "/v1/chat/completions", {**body(pace_ms=1000), "stream": i == 0})})) for i in range(3)]
        for thread in threads:  # one runs, two wait
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([answers[i][0] for i in range(3)], [200, 504, 504])
        self.assertIn('"code":"deadline_exceeded"', answers[0][1])
        self.assertEqual(json.loads(answers[1][1])["error"]["code"], "deadline_exceeded")
        server.wait_until_idle()
        self.assertEqual(server.stop(), 0)

    def test_a_key_file_that_is_broken_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")

            def put(text):
                with open(path, "w") as keys:
                    keys.write(text)

            put("0123456789abcdef red\n")
            server = Server("--backend", "script", "--api-keys", path)
            statuses = lambda: [server.request("GET", "/v1/models", headers={"x-api-key": key})[0] for key in ("0123456789abcdef", "fedcba9876543210")]
            for n, broken in enumerate(("short\n", "", "fedcba9876543210 blue\nfedcba9876543210 green\n"), 1):
                put(broken)
                server.process.send_signal(signal.SIGHUP)
                serve_process.until(lambda: server.read_log().count("keys not reloaded") == n)
                self.assertEqual(statuses(), [200, 401])
            self.assertIn("keys:2: the key of line 1 once more", server.read_log())
            put("fedcba9876543210 blue\n")
            server.process.send_signal(signal.SIGHUP)
            serve_process.until(lambda: "1 keys reloaded" in server.read_log())
            self.assertEqual(statuses(), [401, 200])
            self.assertEqual(server.stop(), 0)

    def test_wrong_flags_and_wrong_keys_of_the_file_are_told_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hadal.toml")
            with open(path, "w") as file:
                file.write("prot = 8000\n[kv]\nblock_token = 8\n[http]\nmax_pending_bytes = 0\n")
            done = subprocess.run([HADAL, "serve", "--config", path, "--threads", "many"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            told = done.stderr.splitlines()
            for line, words in zip(told, ("--threads many: expected", f"{path}:1: unknown key prot; did you mean port?",
                                          f"{path}:3: unknown key kv.block_token; did you mean kv.block_tokens?",
                                          f"{path}:5: http.max_pending_bytes: expected a size such as 8GiB, 100MB or 4096, at least 1024")):
                self.assertIn(words, line)
            done = subprocess.run([HADAL, "serve", "--config", folder], capture_output=True, text=True)
            self.assertEqual((done.returncode, f"{folder} is a folder" in done.stderr), (2, True))

    def test_wrong_flags_are_reported_together(self):
        done = subprocess.run([HADAL, "serve", "--prot", "1", "--port", "x"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean --port", done.stderr)
        self.assertIn("--port x: expected", done.stderr)
        self.assertEqual(subprocess.run([HADAL, "serve", "--host", "0.0.0.0"], capture_output=True).returncode, 2)

    def test_the_model_answers_and_reuses_its_prefix(self):
        server = Server("--kv.block-tokens", "8")
        try:
            body = {"model": "deepseek-flash", "messages": [{"role": "user", "content": "What does the command grep do?"}], "thinking": {"type": "disabled"}, "temperature": 0}
            first = json.loads(server.request("POST", "/v1/chat/completions", body)[1])
            second = json.loads(server.request("POST", "/v1/chat/completions", body)[1])
            self.assertIn("pattern", first["choices"][0]["message"]["content"])
            self.assertEqual(first["choices"], second["choices"])
            self.assertEqual(second["usage"]["prompt_cache_hit_tokens"], 8)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_generate_gives_the_ids_that_serve_gives(self):
        questions = ["What does the command grep do?", "What is a mutex?", "What is 12 + 30?", "Which command lists files?"]
        bodies = [{"model": "deepseek-flash", "messages": [{"role": "user", "content": question}], "thinking": {"type": "disabled"}, "max_tokens": 24, "temperature": temperature, "seed": 7,
                   "hadal": {"return_token_ids": True}} for question in questions for temperature in (0, 1)]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "in.jsonl"), "w") as lines:
                for i, body in enumerate(bodies):
                    lines.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n")
            out = os.path.join(folder, "out.jsonl")
            subprocess.run([HADAL, "generate", lines.name, "-o", out, "--model", serve_process.DEMO], check=True, capture_output=True)
            with open(out) as results:
                offline = {line["custom_id"]: line["response"]["body"]["hadal"] for line in map(json.loads, results)}
        server = Server()
        try:
            online = {}

            def ask(i):
                online[str(i)] = json.loads(server.request("POST", "/v1/chat/completions", bodies[i])[1])["hadal"]

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]  # all at once: in another batch than offline
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.assertEqual(server.stop(), 0)
        self.assertEqual(online, offline)
        self.assertGreaterEqual(len({tuple(answer["token_ids"]) for answer in online.values()}), len(questions))


if __name__ == "__main__":
    give_up_after(870)
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(0 if result.wasSuccessful() else 1)
