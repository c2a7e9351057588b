"""The worked cases of the prompt format and the parser (recipe-cases.jsonl): as lines of the batch commands, with what they owe.

Three kinds: prompts of the recipe profile (R, checked in compat mode; those of profile "hadal" are ours and checked in default
mode), prompts of the reference profile (F), parser runs (P: in compat as recorded and cut at every character; in default mode the
same but for the faults listed in MENDED).
"""
import json

VERSIONS = {"v4": "v4", "v41": "v4.1"}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
# Parser cases that record a fault of 0.2.0, and what default mode gives instead (docs/recipe.md, "Reading the output").
MENDED = {
    "P11": {"calls": [{"name": "f", "arguments": "{\"q\": \"par\"}"}]},
    "P13": {"calls": [{"name": "f", "arguments": "{\"q\": \"1\"}"}]},
    "P14": {"calls": [{"name": "f", "arguments": "{\"q\": \"True\"}"}]},
    "P23": {"content": "{\"a\":1}"},
    "P27": {"calls": [{"name": "f", "arguments": "{\"a b\": \"1\", \"\": 2}"}]},
}


def _message(message):
    out = dict(message)
    if "reasoning" in out:
        out["reasoning_content"] = out.pop("reasoning")
    if out.pop("wo_eos", False):
        out["prefix"] = True
    return out


def prompt_line(case):
    """A render case as a line of `hadal encode`, and whether it is for compat mode."""
    conversation = dict(case.get("conversation") or dict(case["options"], messages=case["messages"]))
    messages = [_message(m) for m in conversation["messages"]]
    if case["profile"] == "reference" and messages and messages[0].get("tools"):
        # There the first system message declares the tools.
        conversation["tools"] = messages[0].pop("tools")
    conversation["messages"] = messages
    if conversation.pop("json", False):
        conversation["response_format"] = "json_object"
    unknown = set(conversation) - {"messages", "thinking", "tools", "tool_choice", "effort", "response_format"}
    assert not unknown, "%s: not carried over: %s" % (case["id"], unknown)
    line = {"id": case["id"], "api": "conversation", "model_version": VERSIONS[case["version"]], "body": conversation,
            "case": case}
    if case["profile"] == "reference":
        line["profile"] = "reference"
    return line, case["profile"] == "recipe"


def prompt_problem(case, got):
    want = case["case"]
    if "error" in got:
        return "refused: %s" % json.dumps(got["error"])
    if got["prompt"] != want["prompt"]:
        return "prompt %r, expected %r" % (got["prompt"][-300:], want["prompt"][-300:])
    if "ids" in want and got["token_ids"] != want["ids"]:
        return "other ids"
    if "n_tokens" in want and len(got["token_ids"]) != want["n_tokens"]:
        return "%d tokens, expected %d" % (len(got["token_ids"]), want["n_tokens"])
    return None


def parser_line(case, cut):
    """A parser case as a line of `hadal decode`; `cut`: one piece per character."""
    options = case["options"]
    stage = options.get("stage")
    body = {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "json?"}]}
    body["thinking"] = {"type": "enabled" if stage else "disabled"}
    if stage in ("content", "reasoning"):
        body["messages"].append({"role": "assistant", "content": "so" if stage == "content" else "", "reasoning_content": "as",
                                 "prefix": True})
    if options.get("tools", True):
        body["tools"] = TOOLS
    if options.get("initial_tool"):
        body["tool_choice"] = "required"
    if options.get("json"):
        body["response_format"] = {"type": "json_object"}
    if options.get("stop"):
        body["stop"] = options["stop"]
    pieces = list("".join(case["chunks"])) if cut else case["chunks"]
    return {"id": case["id"], "api": "chat", "model_version": "v4.1", "body": body, "pieces": pieces,
            "finish": case["backend_finish"], "usage": {"prompt_tokens": 5}, "stream": False, "case": case}


def parser_problem(compat):
    finishes = {"stop_sequence": "stop", "end_of_stream": "stop"}

    def differ(line, got):
        case = line["case"]
        if "error" in got:
            return "refused: %s" % json.dumps(got["error"])
        want = dict(case["expect"])
        if not compat:
            want.update(MENDED.get(case["id"], {}))
        choice = got["response"]["choices"][0]
        message = choice["message"]
        have = {"reasoning": message.get("reasoning_content") or "", "content": message["content"] or "",
                "calls": [{k: c["function"][k] for k in ("name", "arguments")} for c in message.get("tool_calls") or []],
                "finish": choice["finish_reason"]}
        want["finish"] = finishes.get(want["finish"], want["finish"])
        want.pop("stop_sequence", None)
        return None if have == want else "%s, expected %s" % (json.dumps(have, ensure_ascii=False), json.dumps(want, ensure_ascii=False))
    return differ


def check(hadal, runs):
    """Runs all of it; returns the number of differences. `runs`: the module that runs hadal."""
    cases = runs.read("recipe-cases")

    def answers(kind, lines, compat):
        sent = [{k: v for k, v in line.items() if k != "case"} for line in lines]
        return runs.run(hadal, kind, sent, compat)

    bad = 0
    prompts = [prompt_line(c) for c in cases if c["kind"] == "render"]
    for compat in (True, False):
        lines = [line for line, is_compat in prompts if is_compat == compat]
        bad += runs.report("worked prompts, %s" % ("compat" if compat else "reference and ours"), lines,
                           answers("encode", lines, compat), prompt_problem)
    parsed = [c for c in cases if c["kind"] == "parse"]
    for compat in (True, False):
        for cut in (False, True):
            lines = [parser_line(c, cut) for c in parsed if not (cut and compat and c.get("chunk_dependent"))]
            bad += runs.report("worked outputs, %s%s" % ("compat" if compat else "default", ", by character" if cut else ""), lines,
                               answers("decode", lines, compat), parser_problem(compat))
    return bad
