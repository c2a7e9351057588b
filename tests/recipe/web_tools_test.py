#!/usr/bin/env python3
"""Web search and web fetch run by the server: web_tools_test.py HADAL. A provider of our own on loopback, which the configuration
allows by name; everything else on a private address must be refused.
"""
import http.server
import json
import pathlib
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from serve_process import ScriptServer

HADAL = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models/demo"
D = "｜DSML｜"


def call(name, **arguments):
    parameters = "\n".join('<%s parameter name="%s" string="true">%s</%s parameter>' % (D, k, v, D) for k, v in arguments.items())
    return '<%s invoke name="%s">\n%s\n</%s invoke>' % (D, name, parameters, D)


def block(*calls):
    return "\n\n<%s calls>\n%s\n</%s calls>" % (D, "\n".join(calls), D)


class Provider(http.server.BaseHTTPRequestHandler):
    asked = []

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body, **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Provider.asked.append((self.path, body, self.headers.get("Authorization")))
        if body["query"] == "broken":
            return self.answer(500, "text/plain", b"oops")
        found = [{"title": "Tides", "url": "https://tides.example/a", "text": "High water at seven.", "date": "2026-11-01"},
                 {"title": "Other", "url": "https://www.other.example/b", "text": "Low water at one."},
                 {"title": "No page", "url": "file:///etc/passwd", "text": "secret"}]
        self.answer(200, "application/json", json.dumps({"results": found}).encode())

    def do_GET(self):
        Provider.asked.append((self.path, None, None))
        host, port = self.server.server_address
        if self.path == "/page":
            self.answer(200, "text/html; charset=utf-8", b"<html><title>A page</title><p>Read &amp; written.</p><script>x</script></html>")
        elif self.path == "/to-page":
            self.answer(302, "text/plain", b"", Location="/page")
        elif self.path == "/to-inside":
            self.answer(302, "text/plain", b"", Location="http://127.0.0.1:9/secret")
        elif self.path == "/loop":
            self.answer(302, "text/plain", b"", Location="/loop")
        elif self.path == "/endless":
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            try:
                for _ in range(100):
                    self.wfile.write(b"x" * 100_000)
            except OSError:
                pass
        else:
            self.answer(404, "text/plain", b"none")


def script(provider):
    """Each line: a first turn that calls, and what the model says when it has the result."""
    def first(mark, text, **more):
        return {"match": {"contains": mark, "last_role": "user"}, "reasoning": "let me look", "text": text, "step": 3, **more}
    page = "http://127.0.0.1:%d" % provider
    return [
        first("search please", "Looking." + block(call("web_search", query="tides"))),
        first("search twice", block(call("web_search", query="tides"), call("web_search", query="broken"))),
        first("search and call", block(call("web_search", query="tides"), call("mine", x="1"))),
        first("read page", block(call("web_fetch", url=page + "/to-page"))),
        first("read endless", block(call("web_fetch", url=page + "/endless"))),
        first("read inside", block(call("web_fetch", url="http://127.0.0.1:9/"), call("web_fetch", url="http://[::ffff:169.254.169.254]/"),
                                   call("web_fetch", url="http://localhost:%d/page" % provider), call("web_fetch", url=page + "/to-inside"),
                                   call("web_fetch", url=page + "/loop"), call("web_fetch", url="file:///etc/passwd"),
                                   call("web_fetch", url="http://10.0.0.1/"))),
        {"match": {"last_role": "tool", "contains": "High water at seven."}, "reasoning": "found", "text": "At seven."},
        {"match": {"last_role": "tool", "contains": "Read & written."}, "reasoning": "", "text": "It says: read and written."},
        {"match": {"last_role": "tool"}, "reasoning": "", "text": "Nothing."},
        {"text": "plain"},
    ]


def events(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ") and line != "data: [DONE]"]


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}


class WebTools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        threading.Thread(target=cls.provider.serve_forever, daemon=True).start()
        port = cls.provider.server_address[1]
        cls.key = tempfile.NamedTemporaryFile("w")
        cls.key.write("sesame\n")
        cls.key.flush()
        cls.server = ScriptServer(HADAL, script(port), "--web.search-url", "http://127.0.0.1:%d/search" % port, "--web.key-file", cls.key.name, "--web.fetch",
                            "--web.private-host", "127.0.0.1:%d" % port, "--web.timeout", "5s", "--web.max-page-bytes", "1MB")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.provider.shutdown()

    def messages(self, text, tools, **more):
        body = {"model": "claude-x", "max_tokens": 4000, "messages": [{"role": "user", "content": text}], "tools": tools,
                "thinking": {"type": "enabled", "budget_tokens": 2000}, **more}
        status, data, _ = self.server.request("POST", "/v1/messages", body)
        self.assertEqual(status, 200, data)
        return events(data) if more.get("stream") else json.loads(data)

    def test_a_search_stands_between_its_call_and_the_answer(self):
        answer = self.messages("search please", [SEARCH])
        kinds = [b["type"] for b in answer["content"]]
        self.assertEqual(kinds, ["thinking", "text", "server_tool_use", "web_search_tool_result", "thinking", "text"])
        use, result = answer["content"][2:4]
        self.assertTrue(use["id"].startswith("srvtoolu_"))
        self.assertEqual((use["name"], use["input"]), ("web_search", {"query": "tides"}))
        self.assertEqual(result["tool_use_id"], use["id"])
        self.assertEqual([r["url"] for r in result["content"]], ["https://tides.example/a", "https://www.other.example/b"])
        self.assertEqual(result["content"][0]["page_age"], "2026-11-01")
        self.assertEqual(answer["content"][5]["text"], "At seven.")
        self.assertEqual(answer["stop_reason"], "end_turn")
        self.assertEqual(answer["usage"]["server_tool_use"], {"web_search_requests": 1, "web_fetch_requests": 0})
        self.assertIn(("/search", {"query": "tides", "count": 8}, "Bearer sesame"), Provider.asked)

    def test_the_stream_says_the_same(self):
        whole = self.messages("search please", [SEARCH])
        content, stop = [], None
        for event in self.messages("search please", [SEARCH], stream=True):
            if event["type"] == "content_block_start":
                self.assertEqual(event["index"], len(content))
                content.append(event["content_block"])
                text = ""
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                text += delta.get("partial_json", "")
                for key in ("text", "thinking", "signature"):
                    if key in delta:
                        content[-1][key] = content[-1].get(key, "") + delta[key]
            elif event["type"] == "content_block_stop" and text:
                content[-1]["input"] = json.loads(text)
            elif event["type"] == "message_delta":
                stop = event["delta"]["stop_reason"], event["usage"]["server_tool_use"], event["usage"]["output_tokens"]

        def without_ids(blocks):
            return [{k: v for k, v in b.items() if k not in ("id", "tool_use_id", "signature")} for b in blocks]
        self.assertEqual(without_ids(content), without_ids(whole["content"]))
        self.assertEqual(stop, (whole["stop_reason"], whole["usage"]["server_tool_use"], whole["usage"]["output_tokens"]))

    def test_domains_are_filtered_and_failures_are_told(self):
        answer = self.messages("search twice", [{**SEARCH, "blocked_domains": ["other.example"]}])
        results = [b["content"] for b in answer["content"] if b["type"] == "web_search_tool_result"]
        self.assertEqual([r["url"] for r in results[0]], ["https://tides.example/a"])
        self.assertEqual(results[1], {"type": "web_search_tool_result_error", "error_code": "unavailable"})

    def test_calls_of_the_client_end_the_turn(self):
        mine = {"name": "mine", "input_schema": {"type": "object"}}
        answer = self.messages("search and call", [SEARCH, mine])
        self.assertEqual([b["type"] for b in answer["content"]], ["thinking", "server_tool_use", "tool_use", "web_search_tool_result"])
        self.assertEqual(answer["stop_reason"], "tool_use")

    def test_a_model_that_never_stops_is_stopped(self):
        Provider.asked.clear()
        # A script in the request itself plays in every round.
        again = {"script": {"text": "again</think>" + block(call("web_search", query="tides"))}}
        answer = self.messages("search forever", [{**SEARCH, "max_uses": 2}], hadal=again)
        results = [b["content"] for b in answer["content"] if b["type"] == "web_search_tool_result"]
        self.assertEqual([isinstance(r, list) for r in results], [True, True, False, False])
        self.assertEqual(results[2]["error_code"], "max_uses_exceeded")
        self.assertEqual(answer["stop_reason"], "pause_turn")
        self.assertEqual(len(Provider.asked), 2)

    def test_a_page_is_read_as_text(self):
        answer = self.messages("read page", [FETCH])
        result = next(b["content"] for b in answer["content"] if b["type"] == "web_fetch_tool_result")
        self.assertEqual((result["content"]["title"], result["content"]["source"]["data"]), ("A page", "Read & written."))
        self.assertEqual(answer["content"][-1]["text"], "It says: read and written.")

    def test_an_endless_page_is_cut(self):
        answer = self.messages("read endless", [FETCH])
        result = next(b["content"] for b in answer["content"] if b["type"] == "web_fetch_tool_result")
        self.assertLess(len(result["content"]["source"]["data"]), 50_000)

    def test_nothing_inside_is_reached(self):
        Provider.asked.clear()
        answer = self.messages("read inside", [FETCH])
        results = [b["content"] for b in answer["content"] if b["type"] == "web_fetch_tool_result"]
        self.assertEqual([r.get("type") for r in results], ["web_fetch_tool_result_error"] * 7)
        # localhost with the provider's port is not the host that was allowed; only the redirects' own pages were asked for.
        self.assertEqual({path for path, _, _ in Provider.asked}, {"/to-inside", "/loop"})

    def test_responses_show_the_search_as_an_item(self):
        body = {"model": "deepseek-flash", "input": "search please", "tools": [{"type": "web_search"}]}
        status, data, _ = self.server.request("POST", "/v1/responses", body)
        self.assertEqual(status, 200, data)
        output = json.loads(data)["output"]
        self.assertEqual([i["type"] for i in output], ["reasoning", "message", "web_search_call", "reasoning", "message"])
        self.assertEqual((output[2]["status"], output[2]["action"]), ("completed", {"type": "search", "query": "tides"}))
        status, data, _ = self.server.request("POST", "/v1/responses", {**body, "stream": True})
        seen = events(data)
        self.assertEqual([e["sequence_number"] for e in seen], list(range(len(seen))))
        searches = [e["type"] for e in seen if "web_search_call" in e["type"] or e.get("item", {}).get("type") == "web_search_call"]
        self.assertEqual(searches, ["response.output_item.added", "response.web_search_call.in_progress", "response.web_search_call.searching",
                                    "response.web_search_call.completed", "response.output_item.done"])
        done = [e["item"] for e in seen if e["type"] == "response.output_item.done"]
        self.assertEqual(done, seen[-1]["response"]["output"])

    def test_wrong_limits_name_their_field(self):
        for tool, path in [({**SEARCH, "max_uses": 0}, "tools[0].max_uses"), ({**SEARCH, "allowed_domains": "x"}, "tools[0].allowed_domains"),
                           ({**SEARCH, "allowed_domains": ["https://x/"]}, "tools[0].allowed_domains[0]"),
                           ({**SEARCH, "allowed_domains": ["a"], "blocked_domains": ["b"]}, "tools[0].blocked_domains")]:
            status, data, _ = self.server.request("POST", "/v1/messages", {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "tools": [tool]})
            self.assertEqual(status, 400)
            self.assertTrue(json.loads(data)["error"]["message"].startswith(path), data)


class Off(unittest.TestCase):
    def test_without_configuration_a_server_tool_is_refused(self):
        server = ScriptServer(HADAL, [{"text": "plain"}])
        body = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}
        for tool in (SEARCH, FETCH):
            status, data, _ = server.request("POST", "/v1/messages", {**body, "tools": [tool]})
            self.assertEqual(status, 400)
            self.assertIn("tools[0].type", data)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
