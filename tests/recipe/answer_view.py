"""One answer of any dialect, whole or streamed, as plain parts: what a client has in its hands at the end.

view(case, got) -> {"reasoning", "content", "calls": [[name, arguments or input]], "custom": [bool], "finish", "usage"}
"""
import json


def _chat(response):
    choice = response["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    return {"reasoning": message.get("reasoning_content") or "", "content": message.get("content") or "",
            "calls": [[c["function"]["name"], c["function"]["arguments"]] for c in calls], "custom": [False] * len(calls),
            "finish": choice["finish_reason"], "usage": response["usage"], "logprobs": choice.get("logprobs")}


def _chat_stream(events):
    out = {"reasoning": "", "content": "", "calls": [], "custom": [], "finish": None, "usage": None, "logprobs": None}
    logprobs = {}
    for event in events:
        data = event["data"]
        if data.get("usage"):
            out["usage"] = data["usage"]
        for choice in data["choices"]:
            delta = choice["delta"]
            if delta.get("content") and delta.get("reasoning_content"):
                raise ValueError("reasoning and content in one delta")
            out["reasoning"] += delta.get("reasoning_content") or ""
            out["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                if "id" in call:
                    out["calls"].append([call["function"]["name"], ""])
                    out["custom"].append(False)
                out["calls"][call["index"]][1] += call["function"]["arguments"]
            for key, entries in (choice.get("logprobs") or {}).items():
                logprobs.setdefault(key, []).extend(entries or [])
            out["finish"] = choice.get("finish_reason") or out["finish"]
    out["logprobs"] = logprobs or None
    return out


def _messages(response, texts=None):
    out = {"reasoning": "", "content": "", "calls": [], "custom": [], "finish": [response["stop_reason"], response["stop_sequence"]],
           "usage": response["usage"]}
    for i, block in enumerate(response["content"]):
        if block["type"] == "thinking":
            out["reasoning"] += block["thinking"]
        elif block["type"] == "text":
            out["content"] += block["text"]
        else:
            out["calls"].append([block["name"], texts[i] if texts else json.dumps(block["input"])])
            out["custom"].append(False)
    return out


def _messages_stream(events):
    response, texts, opened = None, {}, set()
    for event in events:
        data = event["data"]
        if data["type"] == "message_start":
            response = data["message"]
        elif data["type"] == "content_block_start":
            if data["index"] != len(response["content"]):
                raise ValueError("blocks out of order")
            response["content"].append(data["content_block"])
            texts[data["index"]] = ""
            opened.add(data["index"])
        elif data["type"] == "content_block_delta":
            if data["index"] not in opened:
                raise ValueError("a delta of a block that is not open")
            block, delta = response["content"][data["index"]], data["delta"]
            if delta["type"] == "thinking_delta":
                block["thinking"] += delta["thinking"]
            elif delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                texts[data["index"]] += delta["partial_json"]
        elif data["type"] == "content_block_stop":
            opened.remove(data["index"])
        elif data["type"] == "message_delta":
            response.update(data["delta"])
            response["usage"] = data["usage"]
    if opened:
        raise ValueError("a block stayed open")
    return _messages(response, texts)


def _responses(response):
    out = {"reasoning": "", "content": "", "calls": [], "custom": [], "finish": [response["status"], response["incomplete_details"]],
           "usage": response["usage"]}
    for item in response["output"]:
        if item["type"] == "reasoning":
            out["reasoning"] += "".join(part["text"] for part in item["content"])
        elif item["type"] == "message":
            out["content"] += "".join(part["text"] for part in item["content"])
        else:
            name = item.get("name", "tool_search")
            if item.get("namespace"):
                name = item["namespace"] + "::" + name
            custom = item["type"] == "custom_tool_call"
            value = item["input"] if custom else item["arguments"]
            out["calls"].append([name, value if isinstance(value, str) else json.dumps(value)])
            out["custom"].append(custom)
    return out


def _responses_stream(events):
    deltas = {}
    done = {}
    for event in events:
        data = event["data"]
        if data["type"].endswith(".delta"):
            deltas[data["item_id"]] = deltas.get(data["item_id"], "") + data["delta"]
        elif data["type"] == "response.output_item.done":
            done[data["output_index"]] = data["item"]
    final = events[-1]["data"]["response"]
    for i, item in enumerate(final["output"]):
        if done.get(i) != item:
            raise ValueError("item %d is not what its done event said" % i)
        if item["type"] == "tool_search_call":
            continue
        whole = "".join(p["text"] for p in item["content"]) if "content" in item else item.get("arguments", item.get("input"))
        if deltas.get(item["id"], "") != whole:
            raise ValueError("the deltas of item %d are not its text" % i)
    return _responses(final)


def view(case, got):
    if "response" in got:
        return {"chat": _chat, "messages": _messages, "responses": _responses}[case["api"]](got["response"])
    return {"chat": _chat_stream, "messages": _messages_stream, "responses": _responses_stream}[case["api"]](got["events"])
