"""The V4.1 prompt format, as much of it as the training texts use, as pieces: control tokens apart from text."""
import json

BOS, EOS, SYS, USR, AST, THINK, END_THINK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜System｜>", "<｜User｜>", "<｜Assistant｜>",
                                             "<think>", "</think>")
D = "｜DSML｜"
EFFORT = {"low": 50, "high": 75, "xhigh": 75, "max": 100, None: 75}
TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{D} calls>" block like the following:

<{D} calls>
<{D} invoke name="$TOOL_NAME">
<{D} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{D} parameter>
...
</{D} invoke>
<{D} invoke name="$TOOL_NAME2">
...
</{D} invoke>
</{D} calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{S}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
FORMAT = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
QUIET, ASKED, TAUGHT = 0, 2, 10  # weight of a piece in the training loss, in tenths


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


def tool_text(tools):
    """tools: [{"name", "description", "parameters"}]"""
    return TOOLS.replace("{D}", D).replace("{S}", "\n".join(dumps(t) for t in tools))


def call_text(calls):
    """calls: [(name, {key: value})]"""
    out = []
    for name, args in calls:
        lines = [f'<{D} parameter name="{k}" string="{"true" if isinstance(v, str) else "false"}">{v if isinstance(v, str) else dumps(v)}</{D} parameter>'
                 for k, v in args.items()]
        out.append(f'<{D} invoke name="{name}">\n' + "\n".join(lines) + f"\n</{D} invoke>")
    return f"\n\n<{D} calls>\n" + "\n".join(out) + f"\n</{D} calls>"


def render(messages, tools=None, thinking=False, effort=None, schema=None, prompt=False):
    """messages: dicts with role, content (reasoning, calls) -> [(text, weight)]; the texts joined are the prompt.

    prompt: end with the open assistant turn, as a request does."""
    msgs = list(messages)
    if tools or schema:
        if not msgs or msgs[0]["role"] != "system":
            msgs.insert(0, {"role": "system", "content": ""})
        extra = "\n\n" + tool_text(tools) if tools else ""
        extra += FORMAT + dumps(schema) if schema else ""
        msgs[0] = msgs[0] | {"content": msgs[0]["content"] + extra}
    out = [(BOS, QUIET)]
    if thinking or (msgs and msgs[0]["role"] == "system"):
        out.append((SYS, QUIET))
    if thinking:
        out.append((f"Reasoning Effort: {EFFORT[effort]} (range 1-100, the higher the value, the more thorough the reasoning)\n\n", QUIET))
    before = None
    for i, m in enumerate(msgs):
        role = m["role"]
        if role == "system":
            out += [(SYS, QUIET)] * (i > 0) + [(m["content"], QUIET)]
        elif role in ("user", "tool"):
            out.append(("\n\n", QUIET) if before in ("user", "tool") else (USR, QUIET))
            out.append((m["content"], ASKED) if role == "user" else (f"<tool_result>{m['content']}</tool_result>", QUIET))
        else:
            last = i == len(msgs) - 1
            out.append((AST, QUIET))
            # reasoning of earlier turns stays only where tools are visible; the turn being taught always shows its own
            if thinking and (tools or last):
                out += [(THINK, QUIET), (m.get("reasoning", ""), TAUGHT), (END_THINK, TAUGHT)]
            else:
                out.append((END_THINK, QUIET))
            out.append((m["content"], TAUGHT))
            if m.get("calls"):
                out.append((call_text(m["calls"]), TAUGHT))
            out.append((EOS, TAUGHT))
        before = role
    if prompt:
        out += [(AST, QUIET), (THINK if thinking else END_THINK, QUIET)]
    return [(t, w) for t, w in out if t]
