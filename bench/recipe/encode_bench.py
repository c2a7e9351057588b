#!/usr/bin/env python3
"""The same body through deepseek-recipe's Python binding and through encode_bench, one after the other.

    encode_bench.py ENCODE_BENCH TOKENIZER.json     (needs deepseek-recipe==0.2.0; pin with taskset)
"""
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time

import deepseek_recipe as R

PARTS = ["The harbour counts seven lanterns while rain drifts over slate roofs. ", "今天上午八点，港口的工人开始检查第三号仓库。",
         "def area(w: float, h: float) -> float:\n    if w < 0:\n        raise ValueError(f\"bad {w!r}\")\n    return w * h\n",
         "Сегодня утром рабочие проверили третий склад; ", "{\"name\": \"pier 7\", \"tons\": [1, 2.5]}\n"]


def body():
    r = random.Random(7)
    messages = [{"role": "system", "content": "Answer briefly."}]
    for i in range(100):
        text = "".join(r.choice(PARTS) for _ in range(26))
        messages.append({"role": "assistant" if i % 2 else "user", "content": text})
    tools = [{"type": "function", "function": {"name": "f%d" % i, "description": "d", "parameters": {
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}} for i in range(3)]
    messages.append({"role": "user", "content": "next"})
    return json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": messages, "tools": tools}, ensure_ascii=False)


def median(n, f):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main():
    text = body()
    options = R.ConversionOptions()
    encoding = R.DeepseekV41Encoding()
    conversation = R.ChatCompletionRequest(text).convert(options).conversation
    convert = median(100, lambda: R.ChatCompletionRequest(text).convert(options))
    render = median(100, lambda: encoding.render_conversation(conversation))
    print(json.dumps({"bench": "deepseek_recipe 0.2.0", "body_bytes": len(text.encode()), "convert_ms": round(convert, 4),
                      "render_ms": round(render, 4)}))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        print(subprocess.run([sys.argv[1], file.name, sys.argv[2]], capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
