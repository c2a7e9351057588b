#!/usr/bin/env python3
"""What `hadal serve` keeps: stored responses, conversations, files and batches, over kill -9, full disks and tenants. store_test.py HADAL [TEST...]"""
import contextlib
import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serve_process import Server, call, give_up_after, kill_9, until

HADAL = sys.argv[1]
MODEL = "deepseek-flash"


def serve(*flags, **more):
    return Server(HADAL, "--backend", "script", *flags, **more)


def ask(text, answer="The answer.", **more):
    """A body for /v1/responses with thinking off."""
    script = {"text": answer, **more.pop("script", {})}
    return {"model": MODEL, "input": text, "reasoning": {"effort": "none"}, "hadal": {"script": script, "return_token_ids": True}, **more}


def ended(server, id):
    """A background response when it is no longer made."""
    def ended_response():
        got = call(server, "GET", f"/v1/responses/{id}")
        return got if got["status"] not in ("queued", "in_progress") else None

    return until(ended_response)


@contextlib.contextmanager
def two_tenants(*flags):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("key-of-tenant-red-0001 red\nkey-of-tenant-blue-001 blue\n")
        keys.flush()
        server = serve("--api-keys", keys.name, *flags)
        try:
            yield server, {"Authorization": "Bearer key-of-tenant-red-0001"}, {"Authorization": "Bearer key-of-tenant-blue-001"}
        finally:
            server.stop()


@contextlib.contextmanager
def small_disk(megabytes):
    """A folder on a disk of its own of that size, if this user may mount one; else a limit on the size of each file. Gives folder and Popen arguments."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], capture_output=True).returncode == 0:
            try:
                yield folder, {}
            finally:
                subprocess.run(["umount", "-l", folder], check=True)
        else:
            limit = megabytes << 20
            yield folder, {"restore_signals": False, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))}


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text

    def call(self, *args, **more):
        return call(self.server, *args, **more)

    def test_a_chain_gives_the_prompt_of_the_whole_conversation(self):
        first = self.call("POST", "/v1/responses", ask("one"))
        second = self.call("POST", "/v1/responses", ask("two", previous_response_id=first["id"]))
        third = self.call("POST", "/v1/responses", ask("three", previous_response_id=second["id"]))
        self.assertEqual(third["previous_response_id"], second["id"])
        user = lambda text: {"role": "user", "content": text}
        whole = self.call("POST", "/v1/responses", ask([user("one"), *first["output"], user("two"), *second["output"], user("three")]))
        self.assertEqual(third["hadal"]["prompt_token_ids"], whole["hadal"]["prompt_token_ids"])
        self.assertGreater(third["usage"]["input_tokens"], second["usage"]["input_tokens"])

    def test_reasoning_of_earlier_turns_comes_from_the_store(self):
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
        body = {"model": MODEL, "tools": tools, "hadal": {"script": {"text": "hm</think>ok"}, "return_token_ids": True}}
        first = self.call("POST", "/v1/responses", {**body, "input": "a"})
        self.assertEqual([item["type"] for item in first["output"]], ["reasoning", "message"])
        second = self.call("POST", "/v1/responses", {**body, "input": "b", "previous_response_id": first["id"]})
        text = self.call("POST", "/detokenize", {"tokens": second["hadal"]["prompt_token_ids"]})["prompt"]
        self.assertIn("<think>hm</think>ok", text)

    def test_get_delete_and_input_items(self):
        made = self.call("POST", "/v1/responses", ask([{"role": "user", "content": f"text {i}"} for i in range(5)]))
        self.assertEqual(self.call("GET", f"/v1/responses/{made['id']}"), made)
        items = self.call("GET", f"/v1/responses/{made['id']}/input_items?limit=2&order=asc")
        self.assertEqual([item["content"][0]["text"] for item in items["data"]], ["text 0", "text 1"])
        self.assertTrue(items["has_more"])
        rest = self.call("GET", f"/v1/responses/{made['id']}/input_items?order=asc&after={items['last_id']}")
        self.assertEqual([item["content"][0]["text"] for item in rest["data"]], ["text 2", "text 3", "text 4"])
        self.assertEqual(self.call("GET", f"/v1/responses/{made['id']}/input_items")["data"][0]["content"][0]["text"], "text 4")
        for query, param in [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=nobody", "after")]:
            self.assertEqual(self.call("GET", f"/v1/responses/{made['id']}/input_items?{query}", status=400)["error"]["param"], param)
        self.assertTrue(self.call("DELETE", f"/v1/responses/{made['id']}")["deleted"])
        for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]:
            self.call(method, f"/v1/responses/{made['id']}{path}", status=404)
        refused = self.call("POST", "/v1/responses", ask("x", previous_response_id=made["id"]), status=400)["error"]
        self.assertEqual((refused["param"], refused["code"]), ("previous_response_id", "previous_response_not_found"))

    def test_a_stream_is_kept_when_its_last_event_is_sent(self):
        _, text, _ = self.server.request("POST", "/v1/responses", ask("q", "word " * 20, stream=True))
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual(self.call("GET", f"/v1/responses/{events[-1]['response']['id']}"), events[-1]["response"])

    def test_store_false_keeps_nothing(self):
        made = self.call("POST", "/v1/responses", ask("q", store=False))
        self.assertIs(made["store"], False)
        self.call("GET", f"/v1/responses/{made['id']}", status=404)
        error = self.call("POST", "/v1/responses", ask("q", store=False, background=True), status=400)["error"]
        self.assertEqual(error["param"], "store")

    def test_a_background_response_is_polled_and_cancelled(self):
        made = self.call("POST", "/v1/responses", ask("q", background=True))
        self.assertEqual((made["status"], made["background"]), ("queued", True))
        got = ended(self.server, made["id"])
        self.assertEqual((got["status"], got["output"][0]["content"][0]["text"]), ("completed", "The answer."))
        self.assertEqual(self.call("POST", f"/v1/responses/{made['id']}/cancel"), got)
        slow = self.call("POST", "/v1/responses", ask("q", "word " * 500, background=True, script={"pace_ms": 1000}))
        until(lambda: self.call("GET", f"/v1/responses/{slow['id']}")["status"] == "in_progress")
        self.assertEqual(self.call("POST", f"/v1/responses/{slow['id']}/cancel")["status"], "cancelled")
        self.assertEqual(self.call("GET", f"/v1/responses/{slow['id']}")["status"], "cancelled")
        self.assertEqual(self.server.wait_until_idle()["running"], 0)
        gone = self.call("POST", "/v1/responses", ask("q", "word " * 500, background=True, script={"pace_ms": 1000}))
        self.call("DELETE", f"/v1/responses/{gone['id']}")
        self.assertEqual(self.server.wait_until_idle()["running"], 0)
        time.sleep(0.2)
        self.call("GET", f"/v1/responses/{gone['id']}", status=404)
        plain = self.call("POST", "/v1/responses", ask("q"))
        self.call("POST", f"/v1/responses/{plain['id']}/cancel", status=400)

    def test_conversations_grow_by_responses(self):
        conversation = self.call("POST", "/v1/conversations", {"metadata": {"topic": "demo"}, "items": [{"role": "user", "content": "Hello"}]})
        path = f"/v1/conversations/{conversation['id']}"
        self.assertEqual(self.call("GET", path)["metadata"], {"topic": "demo"})
        first = self.call("POST", "/v1/responses", ask("one", conversation=conversation["id"]))
        self.assertEqual(first["conversation"], {"id": conversation["id"]})
        self.call("POST", "/v1/responses", ask("two", conversation={"id": conversation["id"]}, store=False))
        items = self.call("GET", path + "/items?order=asc")["data"]
        texts = [item["content"][0]["text"] for item in items]
        self.assertEqual(texts, ["Hello", "one", "The answer.", "two", "The answer."])
        self.assertEqual(self.call("GET", f"{path}/items/{items[1]['id']}"), items[1])
        self.call("DELETE", f"{path}/items/{items[0]['id']}")
        added = self.call("POST", path + "/items", {"items": [{"role": "user", "content": "more"}]})
        self.assertEqual(added["data"][0]["content"], [{"type": "input_text", "text": "more"}])
        self.assertEqual(len(self.call("GET", path + "/items")["data"]), 5)
        self.assertEqual(self.call("POST", path, {"metadata": {"topic": "other"}})["metadata"], {"topic": "other"})
        for body in (b"", {}, {"metadata": 5}):  # says nothing: what is there stays
            self.assertIn(self.call("POST", path, body, status=400)["error"]["param"], ("metadata", None))
        self.assertEqual(self.call("GET", path)["metadata"], {"topic": "other"})
        self.call("POST", "/v1/conversations", {"metadata": {"k": 1}}, status=400)
        self.assertEqual(self.call("POST", "/v1/conversations", {"items": [{"type": "parrot"}]}, status=400)["error"]["param"], "items[0].type")
        long = {"\u00e9" * 64: "\U0001f300" * 512}  # characters, not bytes
        self.assertEqual(self.call("POST", "/v1/conversations", {"metadata": long})["metadata"], long)
        for metadata in ({"k" * 65: "v"}, {"k": "v" * 513}, {f"{i}": "v" for i in range(17)}):
            self.call("POST", "/v1/conversations", {"metadata": metadata}, status=400)
        self.assertEqual(self.call("POST", "/v1/conversations", {"items": [{"role": "pirate", "content": "x"}]}, status=400)["error"]["param"], "items[0].role")
        self.call("POST", "/v1/responses", ask("x", conversation="conv_none"), status=404)
        both = ask("x", conversation=conversation["id"], previous_response_id=first["id"])
        self.assertEqual(self.call("POST", "/v1/responses", both, status=400)["error"]["param"], "previous_response_id")
        self.assertTrue(self.call("DELETE", path)["deleted"])
        self.call("GET", path, status=404)


class Tenants(unittest.TestCase):
    def test_nobody_reaches_what_belongs_to_another(self):
        with two_tenants() as (server, red, blue):
            made = call(server, "POST", "/v1/responses", ask("secret"), red)
            conversation = call(server, "POST", "/v1/conversations", {}, red)
            for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]:
                call(server, method, f"/v1/responses/{made['id']}{path}", headers=blue, status=404)
            call(server, "POST", "/v1/responses", ask("x", previous_response_id=made["id"]), blue, 400)
            call(server, "GET", f"/v1/conversations/{conversation['id']}", None, blue, 404)
            call(server, "POST", "/v1/responses", ask("x", conversation=conversation["id"]), blue, 404)
            call(server, "GET", f"/v1/responses/{made['id']}", headers=red)

    def test_files_and_batches_belong_to_their_tenant(self):
        with two_tenants() as (server, red, blue):
            batch = start_batch(server, [chat_line("a")], red)
            done = wait_for(server, batch, red)
            for method, path in [("GET", f"/v1/batches/{batch['id']}"), ("POST", f"/v1/batches/{batch['id']}/cancel")] + [
                (method, f"/v1/files/{file}{rest}") for file in (done["input_file_id"], done["output_file_id"]) for method, rest in [("GET", ""), ("GET", "/content"), ("DELETE", "")]]:
                call(server, method, path, headers=blue, status=404)
            self.assertEqual(call(server, "GET", "/v1/batches", headers=blue)["data"], [])
            self.assertEqual(call(server, "GET", "/v1/files", headers=blue)["data"], [])
            body = {"input_file_id": done["input_file_id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            call(server, "POST", "/v1/batches", body, blue, 400)
            self.assertEqual(len(lines_of(server, done["output_file_id"], red)), 1)

    def test_sealed_reasoning_opens_for_its_tenant_only(self):
        with tempfile.NamedTemporaryFile("w") as key:
            key.write("0123456789abcdef" * 4 + "\n")
            key.flush()
            with two_tenants("--reasoning-key-file", key.name) as (server, red, blue):
                body = {"model": MODEL, "input": "q", "store": False, "include": ["reasoning.encrypted_content"], "tools": [{"type": "function", "name": "f"}],
                        "hadal": {"script": {"text": "because</think>ok"}, "return_token_ids": True}}
                item = call(server, "POST", "/v1/responses", body, red)["output"][0]
                self.assertTrue(item["encrypted_content"].startswith("hs1."))
                sealed = {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
                again = {**body, "input": [{"role": "user", "content": "q"}, sealed, {"role": "user", "content": "more"}]}
                ids = call(server, "POST", "/v1/responses", again, red)["hadal"]["prompt_token_ids"]
                self.assertIn("<think>because</think>", call(server, "POST", "/detokenize", {"tokens": ids}, red)["prompt"])
                text = item["encrypted_content"]
                changed = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
                for headers, content in [(blue, text), (red, changed), (red, "of another service"), (red, text[:-4])]:
                    again["input"][1] = {**sealed, "encrypted_content": content}
                    error = call(server, "POST", "/v1/responses", again, headers, 400)["error"]
                    self.assertEqual(error["param"], "input[1].encrypted_content")
                    self.assertNotIn("because", json.dumps(error))


def upload(server, lines, headers=None, purpose="batch", status=200):
    """A batch file of bodies (or ready lines) as a client uploads it; the file's object."""
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    form = f'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n{content}\r\n--edge--\r\n'
    return call(server, "POST", "/v1/files", form.encode(), {"Content-Type": "multipart/form-data; boundary=edge", **(headers or {})}, status)


def chat_line(custom_id, text="q", answer="ok", **script):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": {"model": MODEL, "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"}, "hadal": {"script": {"text": answer, **script}}}}


def start_batch(server, lines, headers=None, window="24h", **more):
    body = {"input_file_id": upload(server, lines, headers)["id"], "endpoint": "/v1/chat/completions", "completion_window": window, **more}
    return call(server, "POST", "/v1/batches", body, headers)


def wait_for(server, batch, headers=None):
    def ended_batch():
        got = call(server, "GET", f"/v1/batches/{batch['id']}", headers=headers)
        return got if got["status"] not in ("validating", "in_progress", "finalizing", "cancelling") else None

    return until(ended_batch)


def lines_of(server, file_id, headers=None):
    if file_id is None:
        return []
    got, text, _ = server.request("GET", f"/v1/files/{file_id}/content", headers=headers)
    assert got == 200, text
    return [json.loads(line) for line in text.splitlines()]


class Batches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve("--http.max-body-bytes", "4MiB")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text

    def call(self, *args, **more):
        return call(self.server, *args, **more)

    def test_files_are_uploaded_listed_read_and_deleted(self):
        content = ["x" * 700_000, "y" * 10, "z" * 300_000]
        made = upload(self.server, content)
        self.assertEqual((made["object"], made["bytes"], made["filename"], made["purpose"]), ("file", 1_000_013, "in.jsonl", "batch"))
        self.assertEqual(self.call("GET", f"/v1/files/{made['id']}"), made)
        self.assertEqual(self.server.request("GET", f"/v1/files/{made['id']}/content")[1], "\n".join(content) + "\n")
        other = upload(self.server, ["a"], purpose="user_data")
        listed = self.call("GET", "/v1/files?purpose=user_data")
        self.assertEqual([file["id"] for file in listed["data"]], [other["id"]])
        page = self.call("GET", "/v1/files?limit=1&order=asc")
        self.assertTrue(page["has_more"])
        self.assertEqual(self.call("GET", f"/v1/files?order=asc&after={page['last_id']}")["data"][-1]["id"], other["id"])
        self.assertTrue(self.call("DELETE", f"/v1/files/{other['id']}")["deleted"])
        for method, rest in [("GET", ""), ("DELETE", ""), ("GET", "/content")]:
            self.call(method, f"/v1/files/{other['id']}{rest}", status=404)
        self.assertEqual(upload(self.server, ["a"], purpose="vision", status=400)["error"]["param"], "purpose")
        self.call("POST", "/v1/files", b"no form", status=400)

    def test_a_batch_answers_each_line_once_in_order(self):
        lines = [chat_line(f"line {i}", answer=f"answer {i}") for i in range(300)]
        lines[7]["body"]["model"] = "unknown"
        lines[8]["body"]["stream"] = True
        batch = start_batch(self.server, lines, metadata={"job": "demo"})
        self.assertEqual((batch["object"], batch["status"], batch["metadata"]), ("batch", "validating", {"job": "demo"}))
        done = wait_for(self.server, batch)
        self.assertEqual((done["status"], done["request_counts"]), ("completed", {"total": 300, "completed": 298, "failed": 2}))
        out, wrong = lines_of(self.server, done["output_file_id"]), lines_of(self.server, done["error_file_id"])
        self.assertEqual([line["custom_id"] for line in out], [f"line {i}" for i in range(300) if i not in (7, 8)])
        for line in out:
            self.assertEqual(line["response"]["body"]["choices"][0]["message"]["content"], line["custom_id"].replace("line", "answer"))
            self.assertEqual((line["response"]["status_code"], line["error"]), (200, None))
        self.assertEqual([(line["custom_id"], line["response"]["status_code"], line["response"]["body"]["error"]["param"]) for line in wrong], [("line 7", 404, "model"), ("line 8", 400, "stream")])
        self.assertIn(batch["id"], [entry["id"] for entry in self.call("GET", "/v1/batches?limit=100")["data"]])
        self.call("POST", f"/v1/batches/{batch['id']}/cancel", status=400)

    def test_wrong_files_and_fields_are_refused_with_the_line(self):
        good = chat_line("a")
        cases = [
            (["{"], "invalid_line", 1), ([good, chat_line("a")], "duplicate_custom_id", 2), ([good, {**good, "custom_id": 5}], "invalid_line", 2),
            ([{**good, "url": "/v1/responses"}], "mismatched_url", 1), ([{**good, "method": "GET"}], "invalid_line", 1), ([{**good, "body": []}], "invalid_line", 1), ([""], "empty_file", None),
        ]
        for lines, code, number in cases:
            done = wait_for(self.server, start_batch(self.server, lines))
            self.assertEqual((done["status"], done["errors"]["data"][0]["code"], done["errors"]["data"][0]["line"]), ("failed", code, number), done)
        file = upload(self.server, [good])["id"]
        body = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        for field, value in [("input_file_id", "file-none"), ("input_file_id", 5), ("endpoint", "/v1/models"), ("completion_window", "soon"), ("completion_window", "8d"), ("metadata", {"a": 1}), ("output_expires_after", {"seconds": 5})]:
            error = self.call("POST", "/v1/batches", {**body, field: value}, status=400)["error"]
            self.assertTrue(error["param"].startswith(field), error)

    def test_cancel_keeps_what_was_done(self):
        # The first ones end by themselves, the others not before the cancel, however late that is.
        batch = start_batch(self.server, [chat_line(f"{i}", answer="word " * 20, pace_ms=20 if i < 20 else 20_000) for i in range(400)])
        until(lambda: self.call("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"] >= 20)
        self.assertEqual(self.call("POST", f"/v1/batches/{batch['id']}/cancel")["status"], "cancelling")
        done = wait_for(self.server, batch)
        n = done["request_counts"]["completed"]
        self.assertEqual(done["status"], "cancelled")
        self.assertEqual(n, 20)
        self.assertEqual(len(lines_of(self.server, done["output_file_id"])), n)
        self.assertEqual(self.server.wait_until_idle()["running"], 0)

    def test_what_an_operator_aborts_is_made_again_once_and_then_has_its_reason(self):
        def abort():
            self.server.wait_until_running(6)
            self.call("POST", "/admin/abort")
            until(lambda: self.server.status()["running"] < 6)

        batch = start_batch(self.server, [chat_line(f"{i}", answer="word " * 20, pace_ms=300) for i in range(6)])
        abort()
        done = wait_for(self.server, batch)
        self.assertEqual((done["status"], done["request_counts"]), ("completed", {"total": 6, "completed": 6, "failed": 0}))
        lines = [chat_line(f"{i}", answer="word " * 20, pace_ms=20_000) for i in range(6)]
        batch = start_batch(self.server, lines + [chat_line("fast")])
        abort()
        abort()
        done = wait_for(self.server, batch)
        self.assertEqual((done["status"], done["request_counts"]), ("completed", {"total": 7, "completed": 1, "failed": 6}))
        wrong = lines_of(self.server, done["error_file_id"])
        self.assertEqual([line["custom_id"] for line in wrong], [f"{i}" for i in range(6)])
        self.assertEqual({line["error"]["code"] for line in wrong}, {"aborted"})
        self.assertIn("operator", wrong[0]["error"]["message"])

    def test_a_window_that_ends_leaves_an_error_for_each_line_not_reached(self):
        batch = start_batch(self.server, [chat_line(f"{i}", answer="word " * 20, pace_ms=20 if i < 20 else 500) for i in range(300)], window="1s")
        done = wait_for(self.server, batch)
        counts = done["request_counts"]
        self.assertEqual((done["status"], counts["completed"] + counts["failed"]), ("expired", 300))
        wrong = lines_of(self.server, done["error_file_id"])
        self.assertEqual({line["error"]["code"] for line in wrong}, {"batch_expired"})
        ids = [line["custom_id"] for line in wrong + lines_of(self.server, done["output_file_id"])]
        self.assertEqual(sorted(ids, key=int), [str(i) for i in range(300)])

    def test_other_dialects_and_what_a_batch_cannot_ask(self):
        line = {"custom_id": "r", "method": "POST", "url": "/v1/responses", "body": ask("q")}
        lines = [line, {**line, "custom_id": "p", "body": ask("q", previous_response_id="resp_x")}]
        body = {"input_file_id": upload(self.server, lines)["id"], "endpoint": "/v1/responses", "completion_window": "24h"}
        done = wait_for(self.server, self.call("POST", "/v1/batches", body))
        made = lines_of(self.server, done["output_file_id"])[0]["response"]["body"]
        self.assertEqual((made["object"], made["store"]), ("response", False))
        self.call("GET", f"/v1/responses/{made['id']}", status=404)
        self.assertEqual(lines_of(self.server, done["error_file_id"])[0]["response"]["body"]["error"]["param"], "previous_response_id")

    def test_a_slow_download_keeps_nobody_waiting(self):
        made = upload(self.server, ["x" * 3_000_000])
        slow = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        slow.request("GET", f"/v1/files/{made['id']}/content")
        began = slow.getresponse()
        first = began.read(1000)
        for _ in range(5):
            self.assertEqual(len(self.server.request("GET", f"/v1/files/{made['id']}/content")[1]), 3_000_001)
        self.assertEqual(len(first) + len(began.read()), 3_000_001)
        slow.close()


class Durability(unittest.TestCase):
    def test_a_batch_loses_and_doubles_no_line_over_kill_9(self):
        n = 2_000
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path)
            batch = start_batch(server, [chat_line(f"{i}", answer=f"answer {i} " * 5, step=1, pace_ms=10) for i in range(n)])
            kills, seen = 0, 0
            while kills < 4:
                counts = call(server, "GET", f"/v1/batches/{batch['id']}")["request_counts"]
                if counts["completed"] == n:  # a machine that stood still between two looks
                    break
                if counts["completed"] >= seen + 150:
                    kill_9(server)
                    kills += 1
                    server = serve("--store.path", path)
                    after = call(server, "GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"]
                    self.assertGreaterEqual(after, counts["completed"])
                    seen = after
                time.sleep(0.02)
            self.assertGreaterEqual(kills, 1)
            done = wait_for(server, batch)
            self.assertEqual((done["status"], done["request_counts"]), ("completed", {"total": n, "completed": n, "failed": 0}))
            out = lines_of(server, done["output_file_id"])
            self.assertEqual([line["custom_id"] for line in out], [f"{i}" for i in range(n)])
            self.assertTrue(all(line["response"]["body"]["choices"][0]["message"]["content"] == f"answer {line['custom_id']} " * 5 for line in out))
            self.assertEqual(server.stop(), 0)

    def test_clients_come_before_batches(self):
        server = serve("--sched.max-running", "4")
        batch = start_batch(server, [chat_line(f"{i}", answer="word " * 100, pace_ms=10_000) for i in range(40)])  # none ends while the test runs
        server.wait_until_running(4)
        for _ in range(5):
            call(server, "POST", "/v1/chat/completions", chat_line("")["body"])
        self.assertEqual(call(server, "GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"], 0)
        call(server, "POST", f"/v1/batches/{batch['id']}/cancel")
        self.assertEqual(wait_for(server, batch)["status"], "cancelled")
        self.assertEqual(server.stop(), 0)

    def test_a_full_disk_holds_a_batch_up_and_nobody_else(self):
        with small_disk(2) as (folder, popen):
            server = serve("--store.path", os.path.join(folder, "store.db"), **popen)
            lines = [chat_line(f"{i}", answer="x" * 4_000, step=1000) for i in range(100)]
            for line in lines:
                line["body"]["n"] = 8  # results are larger than the file
            batch = start_batch(server, lines)
            until(lambda: "trying again" in server.read_log())
            call(server, "POST", "/v1/chat/completions", chat_line("")["body"])
            got = call(server, "GET", f"/v1/batches/{batch['id']}")
            self.assertEqual(got["status"], "in_progress")
            self.assertLess(got["request_counts"]["completed"], 100)
            upload(server, ["x" * 2_000_000], status=503)
            self.assertEqual(server.stop(), 0)

    def test_what_was_answered_is_there_after_kill_9(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path)
            answered, stop = [], threading.Event()

            def client():
                while not stop.is_set():
                    try:
                        answered.append(json.loads(server.request("POST", "/v1/responses", ask("q", "x" * 2000))[1]))
                    except (OSError, ValueError, http.client.HTTPException):
                        return

            threads = [threading.Thread(target=client) for _ in range(8)]
            for thread in threads:
                thread.start()
            until(lambda: len(answered) >= 300)
            slow = call(server, "POST", "/v1/responses", ask("q", "late " * 40, background=True, script={"pace_ms": 20}))
            kill_9(server)
            stop.set()
            for thread in threads:
                thread.join()
            server = serve("--store.path", path)
            try:
                for response in answered:
                    self.assertEqual(call(server, "GET", f"/v1/responses/{response['id']}"), response)
                call(server, "POST", "/v1/responses", ask("and on", previous_response_id=answered[-1]["id"]))
                got = ended(server, slow["id"])
                self.assertEqual(got["output"][0]["content"][0]["text"], "late " * 40)
                self.assertEqual(got["created_at"], slow["created_at"])
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_drain_leaves_a_background_response_to_the_next_server(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path, "--drain-grace", "100ms")
            slow = call(server, "POST", "/v1/responses", ask("q", "late " * 60, background=True, script={"pace_ms": 20}))
            until(lambda: call(server, "GET", f"/v1/responses/{slow['id']}")["status"] != "queued")
            self.assertEqual(server.stop(), 0)
            server = serve("--store.path", path)
            got = ended(server, slow["id"])
            self.assertEqual((got["status"], got["output"][0]["content"][0]["text"]), ("completed", "late " * 60))
            self.assertEqual(server.stop(), 0)

    def test_a_full_disk_refuses_what_needs_it_and_nothing_else(self):
        with small_disk(1) as (folder, popen):
            server = serve("--store.path", os.path.join(folder, "store.db"), **popen)
            statuses = [server.request("POST", "/v1/responses", ask("q", "x" * 30_000, script={"step": 1000}))[0] for _ in range(60)]
            self.assertEqual(set(statuses), {200, 503})
            got, text, _ = server.request("POST", "/v1/responses", ask("q", "x" * 30_000, script={"step": 1000}))
            self.assertIn("store", json.loads(text)["error"]["message"])
            call(server, "POST", "/v1/responses", ask("q", store=False))
            call(server, "POST", "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "q"}], "hadal": {"script": {"text": "ok"}}})
            _, text, _ = server.request("POST", "/v1/responses", ask("q", "x" * 30_000, stream=True, script={"step": 1000}))
            last = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")][-1]
            self.assertEqual((last["type"], last["response"]["error"]["code"]), ("response.failed", "server_error"))
            self.assertEqual(server.stop(), 0)

    def test_many_responses_are_bounded_in_rows_bytes_and_memory(self):
        n, kept = 4_000, 400
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path, "--store.max-responses", str(kept), "--log-requests", "false", "--sched.max-running", "256")
            ids, lock = [], threading.Lock()

            def client(count):
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
                body = json.dumps(ask("q", "x" * 400))
                for _ in range(count):
                    connection.request("POST", "/v1/responses", body)
                    made = json.loads(connection.getresponse().read())
                    with lock:
                        ids.append(made["id"])
                connection.close()

            threads = [threading.Thread(target=client, args=(n // 16,)) for _ in range(16)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.monotonic() - began
            self.assertEqual(len(set(ids)), n)
            size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
            resident = server.resident_kb()
            print(json.dumps({"responses": n, "kept": kept, "seconds": round(took, 1), "per_second": round(n / took), "bytes": size, "resident_kb": resident}))
            self.assertLess(size, 12 << 20)  # all of them would be some 20 MB
            call(server, "GET", f"/v1/responses/{ids[-1]}")
            call(server, "GET", f"/v1/responses/{ids[0]}", status=404)
            self.assertEqual(server.stop(), 0)

    def test_a_second_server_is_refused_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path)
            second = subprocess.run([HADAL, "serve", "--backend", "script", "--port", "0", "--store.path", path], capture_output=True, text=True, timeout=240)
            self.assertEqual(second.returncode, 1)
            self.assertIn("another process holds the store", second.stderr)
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    give_up_after(870)
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(0 if result.wasSuccessful() else 1)
