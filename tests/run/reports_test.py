#!/usr/bin/env python3
"""Faults that users of other engines reported, tried on ours: reports_test.py HADAL [TEST...]. Each case carries the number
of its row in docs/reports.md, where the report is linked, and one sentence of what must not happen here."""
import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "recipe")]
from answer_view import view
from serve_process import CHAT, DEMO, PATIENCE, Server, connect, give_up_after, http_request, until

HADAL = sys.argv[1]
APIS = ("chat", "messages", "responses")
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
OPEN, CLOSE = "<｜DSML｜", "</｜DSML｜"
FUNCTION = {"name": "write_file", "description": "writes", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "body": {"type": "string"}, "options": {"type": "object"}}, "required": ["path"]}}


def parameter(name, value, is_string=True):
    return f'{OPEN} parameter name="{name}" string="{str(is_string).lower()}">{value}{CLOSE} parameter>\n'


def call(*parameters, name="write_file"):
    return f'{OPEN} calls>\n{OPEN} invoke name="{name}">\n{"".join(parameters)}{CLOSE} invoke>\n{CLOSE} calls>'


GOOD = call(parameter("path", "a.txt"), parameter("options", '{"deep": [1, 2]}', False))
CALLED = [["write_file", {"path": "a.txt", "options": {"deep": [1, 2]}}]]

# U002, U018: what the model writes, the calls that a client gets, the text that it gets, and what it is warned of.
MARKUP = [
    ("as the template has it", GOOD, CALLED, "", []),
    ("outer close missing", GOOD[:GOOD.rindex("\n" + CLOSE)], CALLED, "", []),
    ("inner close missing", GOOD.replace(f"{CLOSE} invoke>\n", ""), CALLED, "", []),
    ("end of a value missing", GOOD.replace(f"a.txt{CLOSE} parameter>", "a.txt"), CALLED, "", []),
    ("both closes missing", GOOD[:GOOD.index(f"{CLOSE} invoke>")], CALLED, "", ["unfinished_call"]),
    ("wrapper missing", GOOD[GOOD.index(f"{OPEN} invoke"):GOOD.rindex("\n" + CLOSE)], CALLED, "", []),
    ("opening wrapper missing", GOOD[GOOD.index(f"{OPEN} invoke"):], CALLED, "", []),
    ("newlines doubled", GOOD.replace("\n", "\n\n"), CALLED, "", []),
    ("newlines gone", GOOD.replace("\n", ""), CALLED, "", []),
    ("wrapper of the older format", GOOD.replace("｜ ", "｜").replace("calls>", "tool_calls>"), CALLED, "", []),
    ("wrapper without its underscore", GOOD.replace(" calls>", " toolcalls>"), CALLED, "", []),
    ("words before", "Let me write it.\n\n" + GOOD, CALLED, "Let me write it.", []),
    ("a second block at once", GOOD + "\n" + GOOD, CALLED * 2, "", []),
    ("words behind", GOOD + "\n\nDone.", CALLED, "", ["text_after_calls"]),
    ("an invented result and another block", GOOD + "\n<tool_result>ok</tool_result>\n" + GOOD, CALLED, "", ["text_after_calls"]),
    ("a block with nothing inside", f"{OPEN} calls>\n{CLOSE} calls>", [], "", ["empty_call_block"]),
    ("a block with prose inside", f"so {OPEN} calls>\nwrite it please\n{CLOSE} calls>", [], "so ", ["empty_call_block"]),
    ("a tool that nobody declared", GOOD.replace("write_file", "ghost"), [], "", ["undeclared_call"]),
    ("ends inside a value", GOOD[:GOOD.index(".txt")], [["write_file", {"path": "a"}]], "", ["unfinished_call"]),
    ("ends inside an object", GOOD[:GOOD.index(", 2]")], [["write_file", {"path": "a.txt", "options": '{"deep": [1'}]], "", ["unfinished_call"]),
    ("ends behind the marker", f"look {OPEN}", [], "look ", ["hidden_markup"]),
    ("the marker quoted", f"The token {OPEN} opens a tag.", [], f"The token {OPEN} opens a tag.", []),
    ("another format as text", '<tool_call name="write_file">{"path": "a"}</tool_call>', [], '<tool_call name="write_file">{"path": "a"}</tool_call>', []),
]


def tools_of(api, functions):
    if api == "messages":
        return [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
    return [{"type": "function", **f} if api == "responses" else {"type": "function", "function": f} for f in functions]


def question(api, text="q", thinking=False, functions=(FUNCTION,), **more):
    """The same request in each dialect."""
    if api == "responses":
        body = {"model": "deepseek-flash", "input": text, "reasoning": {"effort": "medium" if thinking else "none"}}
    else:
        body = {"model": "deepseek-flash", "messages": [{"role": "user", "content": text}], "thinking": {"type": "enabled" if thinking else "disabled"}}
    if api == "messages":
        body["max_tokens"] = 500
    if functions:
        body["tools"] = tools_of(api, functions)
    return {**body, **more}


def frames_of(text):
    """Server-sent events as `hadal decode` has them, and whether the dialect's last word came."""
    frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    events = []
    for frame in frames:
        data = frame[frame.index("data: ") + 6:]
        if data != "[DONE]":
            events.append({"data": json.loads(data)})
    last = events[-1]["data"].get("type", "")
    ended = frames[-1] == "data: [DONE]" or last == "message_stop" or last in ("response.completed", "response.incomplete")
    return events, ended


def warnings_in(value):
    """Codes of every hadal.warnings inside."""
    if isinstance(value, dict):
        mine = [w["code"] for w in (value.get("hadal") or {}).get("warnings", [])]
        return mine + [code for inner in value.values() for code in warnings_in(inner)]
    return [code for inner in value for code in warnings_in(inner)] if isinstance(value, list) else []


def setUpModule():
    Case.server = Server(HADAL, "--backend", "script", "--log-requests", "false", "--kv.block-tokens", "16", "--http.keep-alive-comment", "200")


def tearDownModule():
    assert Case.server.stop() == 0, Case.server.text


class Case(unittest.TestCase):
    def post(self, api, body):
        status, text, _ = self.server.request("POST", PATHS.get(api, api), body)
        return status, json.loads(text)

    def refused(self, api, body, field):
        """A 400 that names the field."""
        status, got = self.post(api, {"hadal": {"script": {"text": "ok"}}, **body})
        self.assertEqual(status, 400, got)
        message = got["error"]["message"]
        self.assertEqual(message.split(": ")[0] if api == "messages" else got["error"]["param"], field, got)
        return message

    def answer(self, api, text, stream=False, step=1, finish="stop", asked="q", **more):
        """What a client has in its hands when the model writes `text`."""
        script = {"script": {"text": text, "step": step, "finish": finish}}
        status, got, _ = self.server.request("POST", PATHS[api], {**question(api, asked, **more), "stream": stream, "hadal": script})
        self.assertEqual(status, 200, got)
        if stream:
            events, ended = frames_of(got)
            self.assertTrue(ended, got[-500:])
            seen = view({"api": api}, {"events": events})
            seen["warnings"] = warnings_in([event["data"] for event in events])
        else:
            seen = view({"api": api}, {"response": json.loads(got)})
            seen["warnings"] = warnings_in(json.loads(got))
        seen["calls"] = [[name, json.loads(arguments)] for name, arguments in seen["calls"]]
        seen.pop("logprobs", None)
        # Of the usage what does not depend on the cache.
        seen["usage"] = {key: value for key, value in seen["usage"].items() if key.startswith(("output", "completion"))}
        return seen

    def prompt(self, api, body):
        return self.post("/v1/encode", {"id": 1, "api": api, "body": body})[1]

    def usage(self, text, **more):
        """(prompt tokens, cached tokens)"""
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        status, got = self.post("chat", {**CHAT, "messages": messages, "thinking": {"type": "disabled"}, "hadal": {"script": {"text": "ok"}}, **more})
        self.assertEqual(status, 200, got)
        return got["usage"]["prompt_tokens"], got["usage"]["prompt_cache_hit_tokens"]


class Output(Case):
    """Tool calls and reasoning as the model writes them."""

    def test_U002_U017_U018_U020_markup_becomes_calls_or_is_told_of(self):
        """Markup that is not perfect leaks into the answer, differs between stream and whole, or is lost without a word."""
        for what, text, calls, content, warnings in MARKUP:
            for api in APIS:
                with self.subTest(f"{what}, {api}"):
                    seen = self.answer(api, text)
                    self.assertEqual((seen["calls"], seen["content"], seen["warnings"]), (calls, content, warnings))
                    finished_with_calls = {"chat": "tool_calls", "messages": ["tool_use", None]}.get(api)
                    if finished_with_calls:  # Responses has no such reason
                        self.assertEqual(seen["finish"] == finished_with_calls, calls != [])
                    for step in (1, 3):
                        self.assertEqual(self.answer(api, text, stream=True, step=step), seen)
        self.assertIn("undeclared_call:1", self.server.read_log())

    def test_U002_choices_each_tell_their_own(self):
        script = {"script": {"text": GOOD.replace("write_file", "ghost")}}
        _, got = self.post("chat", {**question("chat"), "n": 2, "hadal": script})
        self.assertEqual([warnings_in({"hadal": one}) for one in got["hadal"]], [["undeclared_call"]] * 2)

    def test_U004_a_call_cut_anywhere_ends_its_stream(self):
        """A cut object inside a call breaks the stream instead of ending it."""
        cuts = random.Random(4).sample(range(1, len(GOOD)), 40)
        for cut in cuts:
            for api in APIS:
                with self.subTest(f"{cut} {api}"):
                    seen = self.answer(api, GOOD[:cut], stream=True, finish=random.Random(cut).choice(("stop", "length")))
                    self.assertTrue(all(isinstance(arguments, dict) for _, arguments in seen["calls"]), seen)

    def test_U015_a_long_argument_is_streamed_as_it_comes(self):
        """A long string argument is held back until it is complete."""
        body = 'line \\n "quoted" é😀 <b> & \\ tab\t end ' * 80
        text = call(parameter("body", body))
        _, got, _ = self.server.request("POST", PATHS["chat"], {**question("chat"), "stream": True, "hadal": {"script": {"text": text, "step": 1}, "return_token_ids": True}})
        events, _ = frames_of(got)
        pieces = [c["function"]["arguments"] for e in events for choice in e["data"]["choices"] for c in choice["delta"].get("tool_calls") or []]
        self.assertEqual(json.loads("".join(pieces)), {"body": body})
        n_tokens = len(events[-1]["data"]["hadal"]["token_ids"])
        self.assertGreater(len(pieces), 0.8 * n_tokens)
        self.assertLess(max(map(len, pieces)), 40)

    def test_U028_reasoning_ends_at_its_token_and_nowhere_else(self):
        """With thinking on, the answer lands in the reasoning field or the reasoning in the answer."""
        for text, reasoning, content in (("why so</think>\n\nThus.", "why so", "Thus."), ("never ends", "never ends", ""), ("</think>Thus.", "", "Thus.")):
            for api in APIS:
                for stream in (False, True):
                    with self.subTest(f"{text} {api} {stream}"):
                        seen = self.answer(api, text, stream, thinking=True, functions=(), finish="length" if not content else "stop")
                        self.assertEqual((seen["reasoning"], seen["content"]), (reasoning, content))
                        if api == "chat":
                            self.assertEqual(seen["finish"], "stop" if content else "length")

    def test_U077_a_call_inside_reasoning_is_a_call(self):
        """Markup that comes before the end of the thinking stays in the reasoning field."""
        for api in APIS:
            for stream in (False, True):
                seen = self.answer(api, "I write it. " + GOOD, stream, thinking=True)
                self.assertEqual((seen["reasoning"], seen["content"], seen["calls"]), ("I write it. ", "", CALLED))

    def test_U030_json_mode_gives_the_object_and_nothing_around_it(self):
        for text in ('x</think>\n\nSure:\n```json\n{"a": 1}\n```\nDone.', 'x</think>{"a": 1}'):
            for stream in (False, True):
                seen = self.answer("chat", text, stream, thinking=True, functions=(), asked="as json", response_format={"type": "json_object"})
                self.assertEqual(seen["content"].strip(), '{"a": 1}')

    def test_U050_reasoning_tokens_are_those_before_the_end_of_thinking(self):
        """Usage shows no reasoning tokens although the model thought."""
        _, got = self.post("chat", {**question("chat", thinking=True), "hadal": {"script": {"text": "a b c</think>word"}, "return_token_ids": True}})
        ids, usage = got["hadal"]["token_ids"], got["usage"]
        self.assertEqual(usage["completion_tokens"], len(ids))
        self.assertEqual(usage["completion_tokens_details"]["reasoning_tokens"], 3)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        seen = self.answer("responses", "a b c</think>word", thinking=True)
        self.assertEqual(seen["usage"]["output_tokens_details"]["reasoning_tokens"], 3)


class Requests(Case):
    """What clients send."""

    def test_U011_U042_no_picture_is_fetched_and_a_wrong_one_is_named(self):
        """A picture's address reads local files or an endless body; a broken picture is left out in silence."""
        png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
        for url in ("file:///etc/passwd", "http://127.0.0.1:9/x.png", "ftp://x/y", "data:image/png;base64,!!!", "data:image/png;base64,",
                    "data:image/svg+xml;base64,PHN2Zz4=", "data:text/plain;base64,aGk=", png[:60]):
            with self.subTest(url):
                part = [{"type": "image_url", "image_url": {"url": url}}]
                self.refused("chat", {**CHAT, "messages": [{"role": "user", "content": part}]}, "messages[0].content[0].image_url.url")
                self.refused("responses", {"model": "deepseek-flash", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
                             "input[0].content[0].image_url")
        for url in ("file:///etc/passwd", "http://127.0.0.1:9/x.png"):
            part = [{"type": "image", "source": {"type": "url", "url": url}}]
            self.refused("messages", {**question("messages"), "messages": [{"role": "user", "content": part}]}, "messages[0].content[0].source.url")

    def test_U023_a_tool_of_unknown_type_is_named(self):
        """One tool of a type that the server does not know makes the body unreadable, or vanishes."""
        tools = tools_of("responses", [FUNCTION])
        known = [{"type": "namespace", "name": "db", "description": "d", "tools": tools}, {"type": "custom", "name": "patch"}, {"type": "web_search"}]
        self.assertEqual(self.answer("responses", "ok", tools=tools + known)["content"], "ok")
        for api, odd in (("responses", "weird"), ("responses", "mcp"), ("responses", "code_interpreter"), ("chat", "weird"), ("messages", "weird")):
            with self.subTest(f"{api} {odd}"):
                message = self.refused(api, question(api, tools=[*tools_of(api, [FUNCTION]), {"type": odd, "name": "x"}]), "tools[1].type")
                self.assertTrue(api == "messages" or odd in message, message)

    def test_U025_an_old_turn_with_broken_arguments_does_not_end_the_conversation(self):
        """Arguments of an earlier turn that are no JSON make every later turn fail."""
        broken = '{"path": "he said "no""}'
        called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": broken}}]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        self.assertIn(broken, self.prompt("chat", question("chat", messages=[*CHAT["messages"], called, result]))["prompt"])
        items = [{"role": "user", "content": "q"}, {"type": "function_call", "call_id": "c1", "name": "write_file", "arguments": broken},
                 {"type": "function_call_output", "call_id": "c1", "output": "done"}]
        self.assertIn(broken, self.prompt("responses", question("responses", input=items))["prompt"])

    def test_U032_U033_U036_a_history_without_its_reasoning_or_with_foreign_signatures_is_taken(self):
        """A later turn is refused since an earlier one lacks its reasoning or carries another provider's signature."""
        called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": "{}"}}]}
        body = question("chat", thinking=True, messages=[*CHAT["messages"], called, {"role": "tool", "tool_call_id": "c1", "content": "done"}])
        self.assertIn("done", self.prompt("chat", body)["prompt"])
        used = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "write_file", "input": {}}]}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]}
        self.assertIn("done", self.prompt("messages", question("messages", thinking=True, messages=[*CHAT["messages"], used, result]))["prompt"])
        foreign = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "RXJVQkNrWUlCaGdDSWtE"}, {"type": "text", "text": "t"}]}
        history = [*CHAT["messages"], foreign, {"role": "user", "content": "again"}]
        forced = self.answer("messages", "x</think>\n\n" + GOOD, thinking=True, messages=history, tool_choice={"type": "tool", "name": "write_file"})
        self.assertEqual(forced["calls"], CALLED)

    def test_U040_log_probabilities_of_both_channels_and_their_bounds(self):
        for more, field in (({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"top_logprobs": 5}, "top_logprobs")):
            self.refused("chat", question("chat", **more), field)
        for n in (0, 20):
            for stream in (False, True):
                body = question("chat", thinking=True, logprobs=True, top_logprobs=n, stream=stream, hadal={"script": {"text": "a</think>b"}})
                _, got, _ = self.server.request("POST", PATHS["chat"], body)
                seen = view({"api": "chat"}, {"events": frames_of(got)[0]} if stream else {"response": json.loads(got)})
                self.assertEqual([[t["token"] for t in seen["logprobs"][part]] for part in ("reasoning_content", "content")], [["a"], ["b"]])

    def test_U031_U046_U047_U048_efforts_are_those_of_the_table(self):
        """A level of effort is ignored, misread or not described."""
        off = self.prompt("chat", question("chat"))["prompt"]
        with open(os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "recipe.md")) as page:
            words = re.search(r"^Words: (.*?)\.", page.read(), re.M).group(1)
        table = {word.replace("nothing", ""): int(re.search(r"\d+", group).group()) for group in words.split("; ") for word in re.findall("[a-z]+", group) if word != "and"}
        self.assertEqual(set(table), {"minimal", "low", "medium", "high", "xhigh", "max", "ultra", ""})
        for effort, number in [*table.items(), (5, 5), (37, 37), (100, 100)]:
            with self.subTest(effort):
                asked = {} if effort == "" else {"reasoning_effort": effort}
                self.assertIn(f"Reasoning Effort: {number} (", self.prompt("chat", {**CHAT, **asked})["prompt"])
                if effort != "":
                    self.assertIn(f"Reasoning Effort: {number} (", self.prompt("responses", {"model": "deepseek-flash", "input": "q", "reasoning": {"effort": effort}})["prompt"])
        self.assertEqual(self.prompt("chat", {**CHAT, "tools": tools_of("chat", [FUNCTION]), "reasoning_effort": "none"})["prompt"], off)
        for wrong in ("weird", "", "5", 0, 101):
            message = self.refused("chat", {**CHAT, "reasoning_effort": wrong}, "reasoning_effort")
            self.assertRegex(message, "minimal, low, medium, high, xhigh, max, ultra|1 to 100")

    def test_U049_thinking_fixes_the_temperature_as_documented(self):
        samplings = [self.prompt("chat", question("chat", thinking=True, temperature=t))["sampling"] for t in (0, 1.7)]
        self.assertEqual(samplings[0], samplings[1])
        self.assertEqual(samplings[0]["temperature"], 1)


    def test_U082_a_huge_system_prompt_with_many_tools_is_answered(self):
        """Plain requests work, an agent's (20,000 tokens of system prompt, 40 tools) gets no answer."""
        properties = {f"p{i}": {"type": "string", "description": "word " * 8} for i in range(8)}
        functions = [{"name": f"tool_{i}", "description": "word " * 20, "parameters": {"type": "object", "properties": properties}} for i in range(40)]
        for turn in range(2):
            body = question("chat", functions=functions, messages=[{"role": "system", "content": "word " * 20000}, {"role": "user", "content": f"turn {turn}"}])
            status, got = self.post("chat", {**body, "hadal": {"script": {"text": "ok"}}})
            self.assertEqual(status, 200, got)
            usage = got["usage"]
            self.assertGreater(usage["prompt_tokens"], 25000)
        self.assertLess(usage["prompt_cache_miss_tokens"], 40)


class Cache(Case):
    """Reuse of prompts."""

    def test_U084_U085_U086_the_longest_run_of_whole_blocks_is_reused(self):
        """Short prompts, or long ones with another end, find nothing."""
        for n in (40, 64, 130, 500, 2000):
            text = f"n{n} " + "word " * n
            n_prompt, cold = self.usage(text)
            self.assertEqual((cold, self.usage(text)[1]), (0, (n_prompt - 1) // 16 * 16), n)
        shared = "shared " + "word " * 22
        n_shared = self.usage(shared)[0]
        self.usage(shared + "first" + " tail" * 30)
        self.assertGreaterEqual(self.usage(shared + "second" + " tail" * 30)[1], (n_shared - 2) // 16 * 16)

    def test_U087_a_trimmed_reply_costs_its_own_tokens_only(self):
        history = [{"role": "user", "content": "trim " + "word " * 500}, {"role": "assistant", "content": "one two three " * 20}, {"role": "user", "content": "next"}]
        self.usage(history)
        history[1]["content"] = history[1]["content"][:60]
        n_prompt, cached = self.usage(history)
        self.assertLess(n_prompt - cached, 60)

    def test_U094_a_growing_conversation_computes_what_is_new(self):
        """The server finds the conversation and computes all of it again."""
        history, known = [], 0
        for turn in range(10):
            history.append({"role": "user", "content": f"turn {turn} " + "word " * 60})
            n_prompt, cached = self.usage(history)
            self.assertLessEqual(n_prompt - cached, n_prompt - known + 16)
            history.append({"role": "assistant", "content": "ok"})
            known = n_prompt

    def test_U037_a_second_turn_of_responses_keeps_reasoning_and_finds_the_first(self):
        script = {"script": {"text": "a b</think>word"}}
        _, first = self.post("responses", {"model": "deepseek-flash", "input": "two turns " + "word " * 60, "hadal": script})
        self.assertEqual([item["type"] for item in first["output"]], ["reasoning", "message"])
        stored = {"model": "deepseek-flash", "previous_response_id": first["id"], "input": "more", "hadal": script}
        sent = {"model": "deepseek-flash", "input": [{"role": "user", "content": "two turns " + "word " * 60}, *first["output"], {"role": "user", "content": "other"}], "hadal": script}
        for body in (stored, sent):
            status, got = self.post("responses", body)
            self.assertEqual(status, 200, got)
            self.assertGreater(got["usage"]["input_tokens_details"]["cached_tokens"], 48)


class SmallPool(Case):
    """Forty blocks and two requests at a time."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(HADAL, "--backend", "script", "--log-requests", "false", "--kv.block-tokens", "16", "--kv.device-blocks", "40",
                            "--sched.max-running", "2", "--http.keep-alive-comment", "100")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text

    def test_U041_a_stream_that_waits_says_at_once_that_it_lives(self):
        """During a long wait or prefill the client hears nothing and gives up."""
        def paced(api, text):
            return http_request(PATHS[api], {**question(api, functions=()), "stream": True, "hadal": {"script": {"text": text, "pace_ms": 1000}}})
        busy = [connect(self.server.port) for _ in range(2)]
        for client in busy:
            client.sendall(paced("chat", "word " * 400))
        self.server.wait_until_running(2)
        for api in APIS:
            with connect(self.server.port) as client:
                client.sendall(paced(api, "late"))
                got = b""
                while b": keep-alive" not in got:
                    more = client.recv(4096)
                    self.assertTrue(more, got)
                    got += more
                self.assertTrue(got.startswith(b"HTTP/1.1 200"), got)
                self.assertNotIn(b"late", got)
        for client in busy:
            client.close()
        self.server.wait_until_idle()

    def test_U088_the_prefix_of_the_next_turn_is_not_evicted_to_make_room_for_it(self):
        self.server.request("POST", "/admin/flush")  # else what other cases left decides what is given up
        until(lambda: self.server.status()["free_blocks"] == 40)
        self.usage("first " + "word " * 240)
        self.usage("other " + "word " * 240)
        n_prompt, cached = self.usage([{"role": "user", "content": "first " + "word " * 240}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "word " * 300}])
        self.assertGreater(n_prompt, 540)
        self.assertGreaterEqual(cached, 240)

    def test_U111_a_full_pool_pauses_requests_and_ends_none(self):
        """Requests that fill the pool together kill the server instead of taking turns."""
        answers = {}

        def ask(i):
            text = f"answer {i} " + "word " * 250
            answers[i] = self.post("chat", {**question("chat", f"n{i} " + "word " * 230, functions=()), "hadal": {"script": {"text": text, "pace_ms": 4}, "timings": True}}), text
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for (status, got), text in answers.values():
            self.assertEqual((status, got["choices"][0]["message"]["content"]), (200, text))
        self.assertGreater(sum(got["hadal"]["timings"]["preemptions"] for (_, got), _ in answers.values()), 0)

    def test_U063_U118_churned_conversations_leave_pool_and_memory_as_they_were(self):
        """Branching short conversations wear out the pool, or memory grows with each of them."""
        def churn(n):
            for i in range(n):
                history = [{"role": "user", "content": f"c{i % 7} " + "word " * 40}, {"role": "assistant", "content": f"branch {i}"}, {"role": "user", "content": "word " * (i % 50)}]
                self.usage(history[:1 + 2 * (i % 2)])
        churn(100)
        resident = self.server.resident_kb()
        churn(200)
        counts = self.server.wait_until_idle()
        self.assertEqual(counts["free_blocks"] + counts["cached_blocks"], counts["blocks"])
        if not os.environ.get("HADAL_SANITIZE"):
            self.assertLess(self.server.resident_kb() - resident, 4 << 10)


class Model(Case):
    """Real numbers: the demo model."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(HADAL, "--threads", "1", "--kv.block-tokens", "16", "--log-requests", "false")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.text

    def ask(self, text, cached=True, **more):
        status, got = self.post("chat", {**question("chat", text, functions=()), "temperature": 0, "max_tokens": 8, **more,
                                         "hadal": {"return_token_ids": True, "prefix_cache": cached}})
        self.assertEqual(status, 200, got)
        return got

    def test_U039_log_probabilities_are_those_of_the_model(self):
        """Log-probabilities are 0 or -9999 and no alternatives are listed."""
        got = self.ask("What is a pipe?", temperature=1, seed=3, logprobs=True, top_logprobs=5)
        found = got["choices"][0]["logprobs"]["content"]
        ids = [*got["hadal"]["prompt_token_ids"], *got["hadal"]["token_ids"]]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(ids, file)
            file.flush()
            lines = subprocess.run([HADAL, "score", "--tokens", file.name, "--model", DEMO, "--threads", "1", "--top-n", "5"], capture_output=True, text=True, check=True).stdout
        scored = [json.loads(line) for line in lines.splitlines()][len(got["hadal"]["prompt_token_ids"]):]
        self.assertGreater(len(found), 3)
        for one, score in zip(found, scored):
            self.assertAlmostEqual(one["logprob"], score["logprob"], 4)
            self.assertEqual(len(one["top_logprobs"]), 5)
            self.assertLessEqual(sum(math.exp(top["logprob"]) for top in one["top_logprobs"]), 1.00001)
            self.assertGreaterEqual(one["top_logprobs"][0]["logprob"], one["logprob"])

    def test_U055_U056_warm_prompts_continue_as_cold_ones_do(self):
        """On a shared prefix that was cached, answers forget it or fall apart."""
        shared = "Paris has 12 trees. " * 8
        tails = [f"What is {n} + {n}?" for n in (3, 11)] + ["What does the command grep do?", "What is a mutex?", "Which command lists files?"]
        cold = [self.ask(shared + tail, cached=False)["hadal"]["token_ids"] for tail in tails]
        warm = [self.ask(shared + tail) for tail in tails]
        self.assertEqual([got["hadal"]["token_ids"] for got in warm], cold)
        self.assertGreater(warm[-1]["usage"]["prompt_cache_hit_tokens"], 0)
        self.assertGreater(len({tuple(ids) for ids in cold}), 3)

    def test_U104_U105_a_batch_that_drains_to_one_stalls_nowhere(self):
        """The server hangs when few requests of a batch are left, or with more than one client."""
        found = {}

        def ask(n):
            found[n] = self.ask("What does the command grep do?", max_tokens=n)["hadal"]["token_ids"]
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 13)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, {n: found[12][:n] for n in range(1, 13)})
        self.assertRegex(self.server.request("GET", "/metrics")[1], r"(?m)^hadal_stalled_seconds\{.*\} 0")

    def test_U072_U090_what_is_not_there_is_refused(self):
        """An option that does not work is taken and spoils the answer."""
        self.refused("chat", {**CHAT, "hadal": {"draft": 7}}, "hadal.draft")


class Commands(unittest.TestCase):
    def serve(self, *flags, **more):
        return subprocess.run([HADAL, "serve", "--model", DEMO, "--port", "0", *flags], capture_output=True, text=True, timeout=PATIENCE, **more)

    def test_U043_U053_U072_wrong_settings_are_refused_before_anything_is_loaded(self):
        """A wrong or impossible setting fails after minutes of loading, or names no right one."""
        for flags, code, words in [
            (["--backend", "tpu"], 2, "one of auto, cpu, cuda"), (["--cpu-level", "mmx"], 2, "one of base, avx2, avx512, avx512bf16"),
            (["--replay", "never"], 2, "one of exact, bounded"), (["--log-format", "xml"], 2, "one of text, json"), (["--kv.dtype", "int4"], 2, "unknown flag --kv.dtype"),
            (["--kv.block-tokens", "3"], 1, "multiple of 2"), (["--max-context", "9999999"], 1, "4096 positions"), (["--kv.device-bytes", "1000"], 1, "holds no block"),
        ]:
            with self.subTest(flags):
                done = self.serve(*flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)

    def test_U051_U052_the_size_of_the_cache_is_told_in_its_own_terms(self):
        """Capacity is derived from the longest context; a pool that is too small gives a bare number."""
        sizes = []
        for flags in (["--kv.device-blocks", "2"], ["--max-context", "512"]):
            server = Server(HADAL, "--threads", "1", *flags)
            resolved = json.loads(server.request("GET", "/admin/config")[1])["resolved"]
            sizes.append([resolved[key] for key in ("kv_token_bytes", "slot_bytes")])
            self.assertEqual(resolved["kv_bytes"], resolved["device_blocks"] * resolved["block_tokens"] * resolved["kv_token_bytes"])
            self.assertEqual(server.stop(), 0)
            told = "one request may have 256 tokens" in server.text
            self.assertEqual(told, flags[0] == "--kv.device-blocks", server.text)
            self.assertEqual("weights 18.6 MB" in server.text, told)
        self.assertEqual(sizes[0], sizes[1])

    @unittest.skipIf(os.environ.get("HADAL_SANITIZE"), "a sanitizer maps more than any limit")
    def test_U091_memory_that_does_not_suffice_is_told_before_it_is_used(self):
        """The kernel ends the server without a word."""
        done = self.serve("--threads", "1", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20)))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "planned: .* blocks .* snapshots .*lower --kv.device-blocks")

    def test_U122_every_flag_of_a_documented_command_exists(self):
        """A command of the documentation fails with the documented flags."""
        root = os.path.dirname(os.path.dirname(HERE))
        helps, n_flags = {}, 0
        for page in ["README.md", *sorted(os.path.join("docs", name) for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".md"))]:
            with open(os.path.join(root, page)) as file:
                text = file.read().replace("\\\n", " ")
            for command in re.findall(r"(?:`|^ {4})hadal ((?:bench )?[a-z-]+)([^`\n]*)", text, re.M):
                name, rest = command
                if name in ("plan", "router"):  # later: docs/architecture.md
                    continue
                if name not in helps:
                    helps[name] = subprocess.run([HADAL, *name.split(), "--help"], capture_output=True, text=True).stdout
                for flag in set(re.findall(r"--[a-z][a-z.-]+", rest)) - {"--help"}:
                    n_flags += 1
                    self.assertIn(flag, helps[name], f"{page}: hadal {name}{rest}")
        self.assertGreater(n_flags, 30)


if __name__ == "__main__":
    give_up_after(870)
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    print(f"{result.testsRun} tests, {len(result.failures) + len(result.errors)} failures")
    sys.exit(0 if result.wasSuccessful() else 1)
