#!/usr/bin/env python3
"""Limits that the engine keeps on the demo model: the thinking budget, required and named tools, JSON Schemas, regular
expressions. limits_test.py HADAL"""
import json
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from serve_process import Server

HADAL = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models/demo"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
         for name in ("get_weather", "get_time", "add-numbers")]
NAMES = {t["function"]["name"] for t in TOOLS}


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(HADAL, "--threads", "1", "--kv.block-tokens", "16")
        cls.think_end = cls.ids("</think>")
        assert len(cls.think_end) == 1

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    @classmethod
    def post(cls, path, body):
        status, data, _ = cls.server.request("POST", path, body)
        return status, json.loads(data)

    @classmethod
    def ids(cls, text):
        return cls.post("/tokenize", {"prompt": text, "add_special_tokens": True})[1]["tokens"]

    def chat(self, **more):
        body = {"model": "deepseek-flash", "messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "max_tokens": 60,
                "hadal": {"return_token_ids": True}, **more}
        status, data = self.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, data)
        return data

    def test_thinking_ends_at_its_budget(self):
        for budget in (0, 1, 5, 12):
            for seed in (1, 2):
                ids = self.chat(thinking={"type": "enabled", "budget_tokens": budget}, seed=seed)["hadal"]["token_ids"]
                self.assertIn(self.think_end[0], ids[:budget + 1])
        free = self.chat(thinking={"type": "enabled"}, seed=1)["hadal"]["token_ids"]
        end = free.index(self.think_end[0])
        self.assertGreater(end, 1, "the demo model thinks, or this shows nothing")
        # A budget beyond what the model needs changes nothing.
        self.assertEqual(self.chat(thinking={"type": "enabled", "budget_tokens": end + 5}, seed=1)["hadal"]["token_ids"], free)

    def test_the_same_ids_alone_among_others_cold_and_warm(self):
        asked = [dict(thinking={"type": "enabled", "budget_tokens": 3}, seed=s) for s in range(4)]
        asked += [dict(tools=TOOLS, tool_choice="required", seed=s) for s in range(4)]
        schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 8}, "b": {"type": "integer"}}, "required": ["a", "b"]}
        asked += [dict(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, seed=s) for s in range(2)]
        alone = [self.chat(**a, hadal={"return_token_ids": True, "prefix_cache": False})["hadal"]["token_ids"] for a in asked]
        found = [None] * len(asked)

        def one(i):
            found[i] = self.chat(**asked[i])["hadal"]["token_ids"]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, alone)
        self.assertEqual([self.chat(**a)["hadal"]["token_ids"] for a in asked], alone)

    def test_a_required_call_comes(self):
        for thinking in ("enabled", "disabled"):
            for seed in range(4):
                answer = self.chat(tools=TOOLS, tool_choice="required", seed=seed, thinking={"type": thinking, "budget_tokens": 8})
                choice = answer["choices"][0]
                calls = choice["message"].get("tool_calls") or []
                self.assertGreaterEqual(len(calls), 1, answer)
                for call in calls:
                    self.assertIn(call["function"]["name"], NAMES)
                    self.assertIsInstance(json.loads(call["function"]["arguments"]), dict)

    def test_a_named_call_comes_and_no_other_first(self):
        for thinking in ("enabled", "disabled"):
            for name in sorted(NAMES):
                answer = self.chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}}, seed=3,
                                   thinking={"type": thinking, "budget_tokens": 8})
                self.assertEqual(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], name)

    def test_answers_keep_to_their_schema(self):
        city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "degrees": {"type": "integer", "minimum": -40, "maximum": 50},
                                                 "sky": {"enum": ["clear", "rain"]}}, "required": ["city", "degrees", "sky"], "additionalProperties": False}
        rows = {"type": "array", "items": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}, "minItems": 2, "maxItems": 3}
        for thinking in ("enabled", "disabled"):
            for seed in range(3):
                def ask(schema):
                    answer = self.chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, seed=seed, max_tokens=400,
                                       thinking={"type": thinking, "budget_tokens": 10})
                    self.assertEqual(answer["choices"][0]["finish_reason"], "stop", answer)
                    return json.loads(answer["choices"][0]["message"]["content"])
                got = ask(city)
                self.assertEqual(list(got), ["city", "degrees", "sky"])
                self.assertTrue(len(got["city"]) <= 12 and -40 <= got["degrees"] <= 50 and got["sky"] in ("clear", "rain"), got)
                got = ask(rows)
                self.assertTrue(2 <= len(got) <= 3 and all(list(r) == ["ok"] and isinstance(r["ok"], bool) for r in got), got)

    def test_answers_match_their_expression(self):
        expressions = ["[A-Z]{3}-\\d{4}", "(yes|no|maybe)( indeed){0,2}", "[^\\x00-\\x7F]{3,5}", "^(?:\\w{2,6}, )*\\w{2,6}\\.$"]
        question = [{"role": "user", "content": "What is the weather in Oslo?"}]
        for thinking in ("enabled", "disabled"):
            for seed, expression in enumerate(expressions):
                answer = self.chat(response_format={"type": "regex", "regex": expression}, seed=seed, max_tokens=300,
                                   thinking={"type": thinking, "budget_tokens": 10})
                choice = answer["choices"][0]
                self.assertEqual(choice["finish_reason"], "stop", answer)
                self.assertTrue(re.fullmatch(expression, choice["message"]["content"], re.ASCII), (expression, choice))
        expression = expressions[0]
        status, data = self.post("/v1/responses", {"model": "deepseek-flash", "input": "q", "max_output_tokens": 300,
                                                   "text": {"format": {"type": "regex", "regex": expression}}, "reasoning": {"effort": "none"}})
        self.assertEqual(status, 200, data)
        self.assertTrue(re.fullmatch(expression, data["output"][-1]["content"][0]["text"]), data)
        status, data = self.post("/v1/messages", {"model": "deepseek-flash", "messages": question, "max_tokens": 300,
                                                  "output_config": {"format": {"type": "regex", "regex": expression}}, "thinking": {"type": "disabled"}})
        self.assertEqual(status, 200, data)
        self.assertTrue(re.fullmatch(expression, data["content"][-1]["text"]), data)

    def test_what_is_not_enforced_is_refused(self):
        strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True,
                                                    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}}}]
        for more, path in [({"tools": strict}, "tools[0].function.strict"),
                           ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"not": {}}}}}}},
                            "response_format.json_schema.schema.properties.a.not"),
                           ({"response_format": {"type": "regex", "regex": "a(?=b)"}}, "response_format.regex")]:
            status, data = self.post("/v1/chat/completions", {"model": "deepseek-flash", "messages": [{"role": "user", "content": "q"}], **more})
            self.assertEqual((status, data["error"]["param"]), (400, path), data)
        loose = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": False}}]
        self.chat(tools=loose, tool_choice="none")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
