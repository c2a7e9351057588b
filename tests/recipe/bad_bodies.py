"""Bodies that must be refused quickly, or taken without harm: bad_bodies() yields (name, api, text, want).

`want`: None when the body is fine (200 or a prompt), else the beginning of the path that the 400 has to name; "" where a text is no
JSON and has no field. Each body is made when it is asked for: some have 10 MB.
"""
import base64
import json
import struct
import zlib

MODEL = "deepseek-flash"
APIS = ("chat", "messages", "responses", "completions")


def body(api, text="q", **more):
    """A small good request."""
    if api == "completions":
        return {"model": MODEL, "prompt": text, **more}
    if api == "responses":
        return {"model": MODEL, "input": text, **more}
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 9, **more}


def tool(api, name, schema):
    if api == "chat":
        return {"type": "function", "function": {"name": name, "parameters": schema}}
    if api == "messages":
        return {"name": name, "input_schema": schema}
    return {"type": "function", "name": name, "parameters": schema}


def with_schema(api, schema_text):
    """A request whose tool has this JSON text as its schema."""
    shell = json.dumps(body(api, tools=[tool(api, "f", "SCHEMA")]))
    return shell.replace('"SCHEMA"', schema_text)


def png(width, height, padding=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = zlib.compress(b"".join(b"\0" + b"\0" * (3 * width) for _ in range(height))) if width * height < 1 << 22 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"tEXt", b"x" * padding) +
            chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def picture(api, data, media="image/png"):
    """One content part with these bytes; `data` may be a URL."""
    url = data if isinstance(data, str) else "data:%s;base64,%s" % (media, base64.b64encode(data).decode())
    if api == "chat":
        return {"type": "image_url", "image_url": {"url": url}}
    if api == "responses":
        return {"type": "input_image", "image_url": url}
    if isinstance(data, str):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": url.split(",", 1)[1]}}


def with_parts(api, parts):
    key = "input" if api == "responses" else "messages"
    return {"model": MODEL, key: [{"role": "user", "content": parts}], **({} if api == "responses" else {"max_tokens": 9})}


def text_cases(api):
    good = json.dumps(body(api))
    yield "1 MB of brackets", "[" * 1_000_000, ""
    yield "1 MB of braces", '{"a":' * 200_000, ""
    yield "nesting 10,000 in a field", good[:-1] + ',"x":' + "[" * 10_000 + "]" * 10_000 + "}", ""
    yield "nesting 100,000 closed", "[" * 100_000 + "]" * 100_000, ""
    yield "a lone surrogate", good.replace('"q"', '"\\ud800"'), ""
    yield "two high surrogates", good.replace('"q"', '"\\ud83d\\ud83d"'), ""
    yield "a raw control character", good.replace('"q"', '"a\x01"'), ""
    yield "a byte order mark", "\ufeff" + good, ""
    yield "NaN", good[:-1] + ',"temperature":NaN}', ""
    yield "a number beyond f64", good[:-1] + ',"temperature":1e999}', ""
    yield "a trailing comma", good[:-1] + ",}", ""
    yield "a number of 5 MB", good[:-1] + ',"x":' + "1" * 5_000_000 + "}", ""
    yield "a list", "[]", ""
    yield "an empty text", "", ""
    yield "duplicate keys", good[:-1] + "".join(',"temperature":%d' % (i % 2) for i in range(200_000)) + "}", None
    yield "duplicate keys in a deep nest", good[:-1] + ',"x":' + '{"a":1,"a":' * 100 + "1" + "}" * 100 + "}", None
    yield "a million unknown keys", good[:-1] + "".join(',"k%d":0' % i for i in range(1_000_000)) + "}", None
    yield "5 MB of escapes", good[:-1] + ',"x":"' + "\\u00e9" * 900_000 + '"}', None


def field_cases(api):
    if api == "completions":
        yield "a prompt of objects", body(api, [{"a": 1}] * 100_000), "prompt"
        return
    key = "input" if api == "responses" else "messages"
    name = "input" if api == "responses" else "messages"
    for wrong in (7, {"role": "user"}, [7], [[]], [None]):
        yield "%s is %s" % (key, json.dumps(wrong)), {**body(api), key: wrong}, name
    yield "an unknown role", {**body(api), key: [{"role": "pirate", "content": "x"}]}, name + "[0].role"
    yield "temperature is a text", body(api, temperature="hot"), "temperature"
    yield "100,000 tools", body(api, tools=[tool(api, "f%d" % i, {"type": "object"}) for i in range(100_000)]), None
    yield "100,000 tools, the last one twice", body(api, tools=[tool(api, "f%d" % min(i, 99_998), {"type": "object"}) for i in range(100_000)]), "tools"
    yield "100,000 roles that are none", {**body(api), key: [{"role": "user", "content": "x"}] * 100_000 + [{"role": "x", "content": "y"}]}, name + "[100000].role"
    orphan = {"chat": [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "c1", "content": "r"}],
              "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]}],
              "responses": [{"type": "function_call_output", "call_id": "c1", "output": "r"}]}[api]
    yield "an orphan tool result", {**body(api), key: orphan}, name
    many = {"chat": [{"role": "user", "content": "q"}] + [{"role": "tool", "tool_call_id": "c", "content": "r"}] * 50_000,
            "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}] * 50_000}],
            "responses": [{"type": "function_call_output", "call_id": "c", "output": "r"}] * 50_000}[api]
    yield "50,000 orphan tool results", {**body(api), key: many}, name
    calls = 20_000
    open_calls = {"chat": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c%d" % i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(calls)]}],
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c%d" % i, "name": "f", "input": {}} for i in range(calls)]}, {"role": "user", "content": "and"}],
        "responses": [{"type": "function_call", "call_id": "c%d" % i, "name": "f", "arguments": "{}"} for i in range(calls)]}[api]
    yield "20,000 calls without results", {**body(api), key: open_calls}, name if api != "responses" else "input"


def schema_cases(api):
    if api == "completions":
        return
    where = "tools[0]"
    props = ",".join('"p%d":{"type":"string","description":"%s"}' % (i, "d" * 60) for i in range(100_000))
    yield "a schema of 10 MB", with_schema(api, '{"type":"object","properties":{%s}}' % props), None
    yield "a schema of 10 MB with a wrong end", with_schema(api, '{"type":"object","properties":{%s,"z":{"type":"pirate"}}}' % props), where
    yield "120 nested schemas", with_schema(api, '{"type":"object","properties":{"a":' * 40 + '{"type":"string"}' + "}}" * 40), None
    yield "a schema that is a list", with_schema(api, "[]"), where
    yield "a pattern that explodes", with_schema(api, '{"type":"object","properties":{"a":{"type":"string","pattern":"%s"}}}' % ("(a{1,1000}){1,1000}" * 50)), None
    yield "an open pattern", with_schema(api, '{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}'), where
    enum = ",".join(str(i) for i in range(500_000))
    yield "an enum of 500,000", with_schema(api, '{"type":"object","properties":{"a":{"enum":[%s]}}}' % enum), None
    refs = ",".join('"d%d":{"$ref":"#/$defs/d%d"}' % (i, i + 1) for i in range(50_000))
    yield "a chain of 50,000 refs", with_schema(api, '{"type":"object","$defs":{%s,"d50000":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/d0"}}}' % refs), None


def picture_cases(api):
    if api == "completions":
        return
    where = "input[0]" if api == "responses" else "messages[0]"

    def one(*parts):
        return with_parts(api, list(parts))
    yield "a picture that is text", one(picture(api, b"hello, no picture")), where
    yield "a picture that is SVG", one(picture(api, b"<svg/>", "image/png")), where
    yield "a picture of no bytes", one(picture(api, b"")), where
    yield "a PNG that ends early", one(picture(api, png(2, 2)[:20])), where
    yield "a picture 100,000 pixels wide", one(picture(api, png(100_000, 1))), where
    yield "a picture that claims 2^31 pixels a side", one(picture(api, png(1, 1)[:16] + struct.pack(">II", 2**31 - 1, 2**31 - 1) + png(1, 1)[24:])), where
    yield "15 pictures of 5,000 pixels", one(*[picture(api, png(5000, 1)) for _ in range(15)]), where
    yield "a picture of 33 MB", one(picture(api, png(1, 1, 33 << 20))), where
    yield "601 pictures", one(*[picture(api, png(1, 1)) for _ in range(601)]), where
    yield "base64 with stars", one(json.loads(json.dumps(picture(api, b"abc")).replace("YWJj", "****"))), where
    yield "a picture elsewhere", one(picture(api, "https://example.org/a.png")), where
    yield "a picture of the cloud's metadata", one(picture(api, "http://169.254.169.254/latest/a.png")), where


def bad_bodies(api):
    for cases in (text_cases, field_cases, schema_cases, picture_cases):
        for name, made, want in cases(api):
            yield name, made if isinstance(made, str) else json.dumps(made), want
