#!/usr/bin/env python3
"""Limits that the engine keeps on the demo model: the thinking budget, required and named tools, JSON Schemas, regular
expressions, arguments of strict tools, inputs of custom tools. limits_test.py HADAL"""
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
FORECAST = {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{1,11}$"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                             "unit": {"type": "string", "enum": ["C", "F"]}, "exact": {"type": ["boolean", "null"]},
                                             "tags": {"type": "array", "items": {"type": "string", "enum": ["wind", "rain"]}}},
            "required": ["city", "days", "unit", "exact", "tags"], "additionalProperties": False}
STRICT = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": FORECAST}}
LIST = 'start: WORD (", " WORD)~1..3\nWORD: /[a-z]{1,6}/\n'


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

    def test_json_mode_gives_one_object_and_nothing_else(self):
        whole = 0
        for thinking in ("enabled", "disabled"):
            for seed in range(5):
                choice = self.chat(messages=[{"role": "user", "content": "Give me the port of ssh as JSON."}], response_format={"type": "json_object"}, seed=seed,
                                   temperature=1.3, max_tokens=200, thinking={"type": thinking, "budget_tokens": 10})["choices"][0]
                if choice["finish_reason"] == "stop":
                    self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
                    whole += 1
                else:
                    self.assertTrue(choice["message"]["content"].lstrip().startswith("{"), choice)
        self.assertGreater(whole, 5)

    def test_with_tools_the_answer_is_calls_or_a_text_of_the_format(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"], "additionalProperties": False}
        formats = [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}]
        n_calls = n_texts = 0
        for asked in formats:
            for question in ("What is the weather in Oslo?", "Which port does ssh use? Answer in JSON."):
                for seed in range(4):
                    choice = self.chat(messages=[{"role": "user", "content": question + " (json)"}], response_format=asked, tools=TOOLS, seed=seed, max_tokens=300,
                                       thinking={"type": "enabled" if seed % 2 else "disabled", "budget_tokens": 10})["choices"][0]
                    message = choice["message"]
                    if choice["finish_reason"] == "tool_calls":
                        self.assertEqual(message["content"] or "", "")
                        self.assertTrue(all(c["function"]["name"] in NAMES for c in message["tool_calls"]), message)
                        n_calls += 1
                    elif choice["finish_reason"] == "stop":
                        self.assertFalse(message.get("tool_calls"))
                        value = json.loads(message["content"])
                        self.assertTrue(list(value) == ["city"] if asked is formats[1] else isinstance(value, dict), message)
                        n_texts += 1
        self.assertGreater(n_calls, 0)
        self.assertGreater(n_texts, 0)

    def test_a_prefix_is_the_beginning_of_the_form(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                  "required": ["city", "days"], "additionalProperties": False}
        asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        for thinking in ("enabled", "disabled"):
            for prefix in ('{"city": "Os', '{"city": "Oslo", "days":'):
                messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": prefix, "prefix": True}]
                choice = self.chat(messages=messages, response_format=asked, seed=1, thinking={"type": thinking})["choices"][0]
                self.assertEqual(choice["finish_reason"], "stop", choice)
                value = json.loads(prefix + choice["message"]["content"])
                self.assertTrue(value["city"].startswith("Os") and 1 <= value["days"] <= 9, value)
        messages[-1]["content"] = "The city is"
        status, data = self.post("/v1/chat/completions", {"model": "deepseek-flash", "messages": messages, "response_format": asked})
        self.assertEqual((status, data["error"]["param"]), (400, "response_format.json_schema.schema"))
        self.assertIn("prefix", data["error"]["message"])

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

    def check_forecast(self, call):
        got = json.loads(call["function"]["arguments"])
        self.assertEqual(list(got), FORECAST["required"])
        self.assertRegex(got["city"], "^[A-Z][a-z]{1,11}$")
        self.assertTrue(isinstance(got["days"], int) and 1 <= got["days"] <= 9 and got["unit"] in ("C", "F") and got["exact"] in (True, False, None), got)
        self.assertTrue(set(got["tags"]) <= {"wind", "rain"}, got)

    def test_arguments_of_strict_tools_keep_to_their_schema(self):
        free = TOOLS[1]
        n_calls = 0
        for choice in ("auto", "required", {"type": "function", "function": {"name": "get_weather"}}):
            for thinking in ("enabled", "disabled"):
                for seed in range(3):
                    answer = self.chat(tools=[free, STRICT], tool_choice=choice, seed=seed, max_tokens=400, parallel_tool_calls=seed != 0,
                                       thinking={"type": thinking, "budget_tokens": 20})["choices"][0]
                    calls = answer["message"].get("tool_calls") or []
                    if choice != "auto":
                        self.assertTrue(calls, answer)
                    if seed == 0:
                        self.assertLessEqual(len(calls), 1)
                    if calls and answer["finish_reason"] != "length":
                        self.assertEqual(answer["finish_reason"], "tool_calls")
                    for call in calls[:len(calls) - (answer["finish_reason"] == "length")]:
                        n_calls += 1
                        if call["function"]["name"] == "get_weather":
                            self.check_forecast(call)
                        else:
                            self.assertEqual(call["function"]["name"], free["function"]["name"])
                            self.assertIsInstance(json.loads(call["function"]["arguments"]), dict)
        self.assertGreater(n_calls, 12)

    def test_inputs_of_custom_tools_match(self):
        def tool(syntax, definition):
            return {"type": "custom", "custom": {"name": "put", "format": {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}}}
        for syntax, definition, expression in [("lark", LIST, "[a-z]{1,6}(, [a-z]{1,6}){1,3}"), ("regex", "[A-C]{2}-\\d{3}", "[A-C]{2}-\\d{3}"),
                                               ("gbnf", 'root ::= "(" root ")" | [0-9]{1,3}', "\\(*\\d{1,3}\\)*")]:
            for thinking in ("enabled", "disabled"):
                answer = self.chat(tools=[tool(syntax, definition)], tool_choice="required", seed=2, max_tokens=300, parallel_tool_calls=False,
                                   thinking={"type": thinking, "budget_tokens": 10})["choices"][0]
                self.assertEqual(answer["finish_reason"], "tool_calls", answer)
                self.assertRegex(json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])["input"], "^(?:%s)$" % expression)
        status, data = self.post("/v1/responses", {
            "model": "deepseek-flash", "input": "Put it.", "max_output_tokens": 300, "tool_choice": "required", "parallel_tool_calls": False,
            "reasoning": {"effort": "none"}, "tools": [{"type": "custom", "name": "put", "format": {"type": "grammar", "syntax": "lark", "definition": LIST}}]})
        self.assertEqual(status, 200, data)
        call = next(item for item in data["output"] if item["type"] == "custom_tool_call")
        self.assertRegex(call["input"], "^[a-z]{1,6}(, [a-z]{1,6}){1,3}$")

    def test_what_is_not_enforced_is_refused(self):
        strict = [TOOLS[1], {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.3}}, "required": ["a"], "additionalProperties": False}}}]
        custom = [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}}}]
        for more, path in [({"tools": strict}, "tools[1].function.parameters.properties.a.multipleOf"),
                           ({"tools": custom}, "tools[0].custom.format.grammar.definition"),
                           ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"not": {}}}}}}},
                            "response_format.json_schema.schema.properties.a.not"),
                           ({"response_format": {"type": "regex", "regex": "a(?=b)"}}, "response_format.regex")]:
            status, data = self.post("/v1/chat/completions", {"model": "deepseek-flash", "messages": [{"role": "user", "content": "q"}], **more})
            self.assertEqual((status, data["error"]["param"]), (400, path), data)
        loose = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": False}}]
        self.chat(tools=loose, tool_choice="none")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
