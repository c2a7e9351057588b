#!/usr/bin/env python3
"""Stored responses that are streamed again, and background ones while they are made: `GET /v1/responses/ID?stream=true&starting_after=N` over clients that
leave, late and slow readers, kill -9, a drain and tenants. stream_test.py HADAL [TEST...]"""
import contextlib
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_process
from serve_process import PATIENCE, call, connect, give_up_after, kill_9, until

HADAL = sys.argv[1]
MODEL = "deepseek-flash"
WORDS = " ".join(f"word{i}" for i in range(60))
LONG = WORDS * 20  # with a pace, longer than any machine takes to come to what ends it


def serve(*flags):
    return serve_process.Server(HADAL, "--backend", "script", *flags)


def ask(answer="The answer.", **more):
    return {"model": MODEL, "input": "q", "stream": True, "reasoning": {"effort": "none"}, "hadal": {"script": {"text": answer, **more.pop("script", {})}}, **more}


def slow(answer=WORDS, pace_ms=10, **more):
    return ask(answer, background=True, script={"pace_ms": pace_ms}, **more)


class Stream:
    """A stream that is read event by event: (number, text of the event as it came)."""

    def __init__(self, server, method, path, body=None, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self.connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"].startswith("text/event-stream")

    def __iter__(self):
        text = ""
        while line := self.response.readline().decode():
            if line.startswith(":"):
                continue
            text += line
            if line == "\n" and text.strip():
                yield json.loads(text[text.index("data: ") + 6:])["sequence_number"], text
                text = ""
            elif line == "\n":
                text = ""
        self.close()

    def take(self, n):
        return [event for _, event in zip(range(n), self)]

    def close(self):
        self.connection.close()


def read(server, id, after=None, headers=None):
    path = f"/v1/responses/{id}?stream=true" + ("" if after is None else f"&starting_after={after}")
    stream = Stream(server, "GET", path, None, headers)
    events = list(stream)
    stream.close()
    return events


def data(event):
    return json.loads(event[1][event[1].index("data: ") + 6:])


def id_of(events):
    return data(events[0])["response"]["id"]


def text_of(events):
    return "".join(data(event)["delta"] for event in events if "output_text.delta" in event[1])


def begin(server, body, n):
    """A background stream whose client leaves after n events; its id and the events."""
    stream = Stream(server, "POST", "/v1/responses", body)
    events = stream.take(n)
    stream.close()
    return id_of(events), events


class Again(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text

    def test_every_suffix_of_a_stored_stream_is_what_was_sent(self):
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
        call_text = 'because</think>I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x "y" \\ z</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        for body in (ask(WORDS), ask("é🌊\n\"\\ " * 9, script={"step": 3}), ask("cut", max_output_tokens=2),
                     {**ask(call_text, tools=tools), "reasoning": {"effort": "high"}}, ask(WORDS, include=["message.output_text.logprobs"], top_logprobs=2),
                     ask("t", hadal={"script": {"text": "timed"}, "event_times": True, "timings": True})):
            sent = list(Stream(self.server, "POST", "/v1/responses", body))
            self.assertEqual([number for number, _ in sent], list(range(len(sent))))
            id = id_of(sent)
            self.assertEqual(read(self.server, id), sent)
            for after in range(len(sent)):
                self.assertEqual(read(self.server, id, after), sent[after + 1:])
            error = call(self.server, "GET", f"/v1/responses/{id}?stream=true&starting_after={len(sent)}", status=400)["error"]
            self.assertEqual((error["param"], str(len(sent) - 1) in error["message"]), ("starting_after", True))
            self.assertEqual(call(self.server, "GET", f"/v1/responses/{id}?stream=false"), data(sent[-1])["response"])

    def test_what_cannot_be_streamed(self):
        whole = call(self.server, "POST", "/v1/responses", {**ask(), "stream": False})
        for path, status, param in [
            (f"{whole['id']}?stream=true", 400, "stream"), (f"{whole['id']}?stream=maybe", 400, "stream"), ("resp_none?stream=true", 404, "response_id"),
            (f"{whole['id']}?stream=true&starting_after=-1", 400, "starting_after"), (f"{whole['id']}?stream=true&starting_after=99999999999999999999", 400, "starting_after"),
            (f"{whole['id']}?stream=true&starting_after=1x", 400, "starting_after"), (f"{whole['id']}?stream=true&starting_after=", 400, "starting_after")]:
            self.assertEqual(call(self.server, "GET", "/v1/responses/" + path, status=status)["error"]["param"], param)
        unkept = id_of(list(Stream(self.server, "POST", "/v1/responses", ask(store=False))))
        call(self.server, "GET", f"/v1/responses/{unkept}?stream=true", status=404)

    def test_a_background_stream_goes_on_where_its_client_left(self):
        id, seen = begin(self.server, slow(), 20)
        rest = read(self.server, id, seen[-1][0])
        self.assertEqual([number for number, _ in seen + rest], list(range(len(seen + rest))))
        self.assertEqual((text_of(seen + rest), data(rest[-1])["type"]), (WORDS, "response.completed"))
        self.assertEqual(read(self.server, id), seen + rest)
        self.assertEqual(data(rest[-1])["response"], call(self.server, "GET", f"/v1/responses/{id}"))

    def test_many_readers_of_one_response_get_the_same(self):
        id, seen = begin(self.server, slow(), 3)
        got = {}
        after = [None, 0, 2, 10, 60]  # also what is still to come

        def reader(i):
            got[i] = read(self.server, id, after[i % len(after)])

        threads = [threading.Thread(target=reader, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = read(self.server, id)
        self.assertEqual(whole[:3], seen)
        for i, events in got.items():
            first = after[i % len(after)]
            self.assertEqual(events, whole[0 if first is None else first + 1:], i)

    def test_a_number_that_never_comes_gets_the_end_alone(self):
        id, _ = begin(self.server, slow(LONG, pace_ms=500), 1)
        stream = Stream(self.server, "GET", f"/v1/responses/{id}?stream=true&starting_after=5000")
        call(self.server, "POST", f"/v1/responses/{id}/cancel")
        self.assertEqual([data(event)["type"] for event in stream], ["response.failed"])

    def test_a_reader_that_does_not_read_holds_up_nobody(self):
        body = slow("x" * 40_000, 0, hadal={"script": {"text": WORDS * 40, "pace_ms": 0, "step": 1}})
        stuck = connect(self.server.port, receive_buffer=2048)
        payload = json.dumps(body).encode()
        stuck.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload)
        head = b""
        while b'"id":"resp_' not in head:
            head += stuck.recv(500)
        id = head[head.index(b'"id":"resp_') + 6:].split(b'"')[0].decode()
        whole = read(self.server, id)
        self.assertEqual((text_of(whole), data(whole[-1])["type"]), (WORDS * 40, "response.completed"))
        self.assertEqual(self.server.wait_until_idle()["paused"], 0)
        while b"response.completed" not in head[-200_000:]:
            head += stuck.recv(1 << 16)
        stuck.close()

    def test_a_cancel_and_a_delete_end_the_stream(self):
        id, seen = begin(self.server, slow(LONG, pace_ms=200), 5)
        stream = Stream(self.server, "GET", f"/v1/responses/{id}?stream=true&starting_after=4")
        events = stream.take(3)
        self.assertEqual(call(self.server, "POST", f"/v1/responses/{id}/cancel")["status"], "cancelled")
        events += list(stream)
        self.assertEqual((data(events[-1])["type"], data(events[-1])["response"]["status"]), ("response.failed", "cancelled"))
        self.assertEqual(read(self.server, id), seen + events)
        id, _ = begin(self.server, slow(LONG, pace_ms=200), 5)
        stream = Stream(self.server, "GET", f"/v1/responses/{id}?stream=true")
        call(self.server, "DELETE", f"/v1/responses/{id}")
        self.assertEqual(data(list(stream)[-1])["type"], "response.failed")
        call(self.server, "GET", f"/v1/responses/{id}?stream=true", status=404)
        self.assertEqual(self.server.wait_until_idle()["running"], 0)

    def test_readers_leave_nothing_behind(self):
        files = self.server.n_open_files()
        for _ in range(30):
            id, _ = begin(self.server, slow("word " * 20, 5), 2)
            for _ in range(5):
                stream = Stream(self.server, "GET", f"/v1/responses/{id}?stream=true")
                stream.take(2)
                stream.close()
        self.assertEqual(self.server.wait_until_idle()["running"], 0)
        until(lambda: self.server.n_open_files() <= files)

    def test_input_items_are_those_of_the_whole_history(self):
        def items(id, query=""):
            got = call(self.server, "GET", f"/v1/responses/{id}/input_items?order=asc{query}")["data"]
            return [item["content"][0]["text"] for item in got], [item["id"] for item in got]

        ids = []
        for i in range(3):
            body = {**ask(f"answer {i}"), "stream": False, "input": f"question {i}", **({"previous_response_id": ids[-1]} if ids else {})}
            ids.append(call(self.server, "POST", "/v1/responses", body)["id"])
        texts, names = items(ids[2])
        self.assertEqual(texts, ["question 0", "answer 0", "question 1", "answer 1", "question 2"])
        self.assertEqual(items(ids[2], f"&limit=2&after={names[1]}")[0], texts[2:4])
        self.assertEqual(items(ids[0])[0], ["question 0"])
        call(self.server, "DELETE", f"/v1/responses/{ids[0]}")  # what is left is shown
        self.assertEqual(items(ids[2])[0], texts[2:])


class Durability(unittest.TestCase):
    def test_kill_9_in_the_middle_of_a_stream_that_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path)
            stream = Stream(server, "POST", "/v1/responses", slow(pace_ms=20))
            seen = stream.take(30)
            kill_9(server)
            server = serve("--store.path", path)
            rest = read(server, id_of(seen), seen[-1][0])
            self.assertEqual([number for number, _ in seen + rest], list(range(len(seen + rest))))
            self.assertEqual(text_of(seen + rest), WORDS)
            self.assertEqual(read(server, id_of(seen)), seen + rest)
            kept = seen + rest
            kill_9(server)
            server = serve("--store.path", path)
            self.assertEqual(read(server, id_of(seen)), kept)
            self.assertEqual(server.stop(), 0)

    def test_a_model_goes_on_with_the_same_draws_after_kill_9(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve_process.Server(HADAL, "--store.path", path)
            body = {"model": MODEL, "input": "Tell me about the sea.", "stream": True, "background": True, "temperature": 1.5, "max_output_tokens": 60, "hadal": {"ignore_eos": True}}
            stream = Stream(server, "POST", "/v1/responses", body)
            seen = stream.take(12)
            kill_9(server)
            server = serve_process.Server(HADAL, "--store.path", path)
            whole = read(server, id_of(seen))
            self.assertEqual(whole[:12], seen)
            self.assertGreater(len(whole), 30)
            other = list(Stream(server, "POST", "/v1/responses", body))
            self.assertNotEqual([data(event).get("delta") for event in other], [data(event).get("delta") for event in whole])
            self.assertEqual(server.stop(), 0)

    def test_what_took_the_server_down_twice_ends_with_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path)
            id, seen = begin(server, slow(LONG, pace_ms=200), 10)
            for _ in range(2):
                server.wait_until_running()  # else the second server may be killed before it has begun, which counts for nothing
                kill_9(server)
                server = serve("--store.path", path)
            rest = read(server, id, seen[-1][0])
            self.assertEqual([number for number, _ in seen + rest], list(range(len(seen + rest))))
            *more, failed = rest  # more: what was stored between the client's leaving and the first kill
            self.assertEqual({data(event)["type"] for event in more} - {"response.output_text.delta"}, set())
            self.assertTrue(LONG.startswith(text_of(seen + more)))
            self.assertEqual(data(failed)["type"], "response.failed")
            self.assertIn("stopped twice", data(failed)["response"]["error"]["message"])
            self.assertEqual(server.stop(), 0)

    def test_a_drain_breaks_readers_off_and_the_next_server_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store.db")
            server = serve("--store.path", path, "--drain-grace", "100ms")
            stream = Stream(server, "POST", "/v1/responses", slow(pace_ms=50))
            seen = stream.take(5)
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(http.client.IncompleteRead):
                for event in stream:
                    seen.append(event)
            self.assertIn("output_text.delta", seen[-1][1])  # no event says that it ended
            self.assertEqual(server.process.wait(PATIENCE), 0)
            server = serve("--store.path", path)
            rest = read(server, id_of(seen), seen[-1][0])
            self.assertEqual(text_of(seen + rest), WORDS)
            self.assertEqual(server.stop(), 0)


class Tenants(unittest.TestCase):
    def test_another_tenants_stream_is_an_id_that_does_not_exist(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("key-of-tenant-red-0001 red\nkey-of-tenant-blue-001 blue\n")
            keys.flush()
            server = serve("--api-keys", keys.name)
            red, blue = ({"Authorization": f"Bearer {key}"} for key in ("key-of-tenant-red-0001", "key-of-tenant-blue-001"))
            stream = Stream(server, "POST", "/v1/responses", slow(pace_ms=20), red)
            running = id_of(stream.take(3))
            ended = id_of(list(Stream(server, "POST", "/v1/responses", ask(), red)))
            for query in ("stream=true", "stream=true&starting_after=1", "stream=true&starting_after=9999"):
                answers = {server.request("GET", f"/v1/responses/{id}?{query}", headers=blue)[1].replace(id, "ID") for id in (running, ended, "resp_none")}
                self.assertEqual(len(answers), 1)
                self.assertIn("there is no response ID", answers.pop())
            self.assertEqual(data(list(stream)[-1])["type"], "response.completed")
            self.assertTrue(read(server, running, None, red))
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    give_up_after(870)
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False, warnings="ignore").result
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(0 if result.wasSuccessful() else 1)
