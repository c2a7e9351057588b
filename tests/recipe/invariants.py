"""What default mode owes whatever the model writes and however its text is cut.

Outputs: only declared tools are called, arguments are a JSON object, every cut and the streamed form give the same, no markup is
shown. Requests: a prompt with ids, or a refusal of the client's kind that names its field.
"""
import json
import re

from answer_view import view

END_OF_SENTENCE = "<｜end▁of▁sentence｜>"
# A whole opening tag, in any form that is read. A damaged one stays text, and a closing tag before any other, as in 0.2.0.
BLOCK = re.compile("<｜DSML｜ ?(?:(?:tool_)?calls|invoke\\s+name\\s*=\\s*([\"']?)[^\"'<>=\\s]+\\1)\\s*>")


def request_problem(case, got):
    error = got.get("error")
    if error is None:
        return None if got.get("prompt") and got.get("token_ids") else "neither prompt nor error"
    if error["status"] not in (400, 404):
        return "status %s" % error["status"]
    body = error["body"]["error"]
    if not body.get("message"):
        return "an error without a message"
    # A body that is no JSON object has no field to name.
    whole = "body" in body["message"]
    if case["api"] != "messages" and not whole and not body.get("param"):
        return "an error without a path: %s" % body["message"]
    return None


def _text(piece):
    return piece if isinstance(piece, str) else piece.get("text") if isinstance(piece, dict) else None


def _ids(piece):
    return piece if isinstance(piece, list) else piece["ids"]


def recut(pieces, whole):
    """The same output, joined as far as its kinds allow, or cut to characters and single ids."""
    out = []
    for piece in pieces:
        text = _text(piece)
        if text is not None:
            if whole and out and isinstance(out[-1], str):
                out[-1] += text
            else:
                out.extend([text] if whole else list(text))
            continue
        entries = piece.get("logprobs") if isinstance(piece, dict) else None
        if whole and out and isinstance(out[-1], (list, dict)) and isinstance(out[-1], dict) == bool(entries):
            if entries:
                out[-1]["ids"] += piece["ids"]
                out[-1]["logprobs"] += entries
            else:
                out[-1] += _ids(piece)
        elif whole:
            out.append({"ids": list(piece["ids"]), "logprobs": list(entries)} if entries else list(_ids(piece)))
        else:
            for i, token in enumerate(_ids(piece)):
                out.append({"ids": [token], "logprobs": [entries[i]]} if entries else [token])
    return out


def variants(case):
    """The case streamed and whole, as cut, joined and cut to the smallest."""
    cuts = {"as sent": case["pieces"], "joined": recut(case["pieces"], True), "smallest": recut(case["pieces"], False)}
    return [dict(case, pieces=pieces, stream=stream, id="%s %s%s" % (case["id"], name, " streamed" if stream else ""))
            for name, pieces in cuts.items() for stream in (False, True)]


def declared(case):
    names = set()
    for tool in case["body"].get("tools") or []:
        if tool.get("type") == "namespace":
            names |= {"%s::%s" % (tool["name"], t["name"]) for t in tool["tools"]}
        elif tool.get("type") == "tool_search":
            names.add("tool_search")
        elif "name" in (tool.get("function") or tool):
            names.add((tool.get("function") or tool)["name"])
    return names


def calls_are_read(case):
    """Tools that may be called: without, markup in text pieces is text."""
    choice = case["body"].get("tool_choice")
    return bool(declared(case)) and "none" not in (choice, (choice or {}).get("type") if isinstance(choice, dict) else None)


def spelt(case, tokens):
    """What the ordinary tokens alone spell: letters of a marker there are text."""
    return b"".join(tokens.get(token, b"") for piece in case["pieces"] for token in _ids(piece)).decode("utf-8", "replace")


def shown_markup(case, seen, tokens):
    texts = [_text(p) for p in case["pieces"]]
    all_text, no_text = all(t is not None for t in texts), all(t is None for t in texts)
    if not (all_text or no_text):
        return None  # a marker cut between text and ids is text
    if no_text and ("</think>" in spelt(case, tokens) or BLOCK.search(spelt(case, tokens))):
        return None
    shown = (("reasoning", seen["reasoning"]), ("content", seen["content"]))
    for part, text in shown:
        if END_OF_SENTENCE in text:
            return "%s shows the end token" % part
    fields = case["body"]
    if "json_object" in json.dumps([fields.get("response_format"), fields.get("text")]):
        return None  # the JSON is shown as it is
    sent = "".join(texts) if all_text else ""
    for part, text in shown:
        if "</think>" in text:
            return "%s shows </think>" % part
        tag = BLOCK.search(text) if calls_are_read(case) or no_text else None
        # What is left of a damaged tag when another marker is taken out of its middle is text.
        if tag and (no_text or tag.group() in sent):
            return "%s shows a tag: %r" % (part, text[-200:])
    return None


def output_problem(case, answers, tokens):
    """`case` and the answers to its variants."""
    views = []
    for sent, got in answers:
        if "error" in got:
            if not all("error" in g for _, g in answers):
                return "refused in one form only: %s" % sent["id"]
            return None
        try:
            seen = view(sent, got)
        except (ValueError, KeyError, IndexError) as problem:
            return "%s: %r" % (sent["id"], problem)
        for (name, arguments), custom in zip(seen["calls"], seen["custom"]):
            if name not in declared(case):
                return "%s: calls %s, which is not declared" % (sent["id"], name)
            try:
                if not custom and not isinstance(json.loads(arguments), dict):
                    return "%s: arguments are no object: %r" % (sent["id"], arguments)
            except ValueError:
                return "%s: arguments are no JSON: %r" % (sent["id"], arguments)
        if case["api"] == "messages":  # there the whole form has an object where the stream has text
            seen["calls"] = [[name, json.loads(arguments)] for name, arguments in seen["calls"]]
        problem = shown_markup(case, seen, tokens)
        if problem:
            return "%s: %s" % (sent["id"], problem)
        if any(_text(p) is not None for p in case["pieces"]):
            seen.pop("usage")  # a piece of text is one token, so cuts count differently
        if "chat" != case["api"]:
            seen.pop("logprobs", None)
        views.append((sent["id"], seen))
    for name, seen in views[1:]:
        if seen != views[0][1]:
            keys = [k for k in seen if seen[k] != views[0][1].get(k)]
            return "%s is not %s: %s" % (name, views[0][0], "; ".join("%s %.300r, %.300r" % (k, seen[k], views[0][1].get(k)) for k in keys))
    return None


def check_outputs(hadal, cases, runs, what):
    sent = [v for case in cases for v in variants(case)]
    answers = runs.run(hadal, "decode", sent, False)
    n = len(sent) // max(len(cases), 1)
    grouped = [list(zip(sent[i * n:(i + 1) * n], answers[i * n:(i + 1) * n])) for i in range(len(cases))]
    tokens = runs.ordinary_tokens()
    return runs.report("default mode, %s outputs" % what, cases, grouped, lambda case, got: output_problem(case, got, tokens))


def check_requests(hadal, cases, runs, what):
    cases = [c for c in cases if c["api"] != "conversation"]
    return runs.report("default mode, %s requests" % what, cases, runs.run(hadal, "encode", cases, False), request_problem)
