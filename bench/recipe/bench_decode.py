#!/usr/bin/env python3
"""Decoding beside the real package, in one run on one core.

    bench_decode.py TOKENIZER.json BENCH_DECODE_PROGRAM

Needs `pip install deepseek-recipe==0.2.0 tokenizers`. Makes one output (reasoning 20 kB, answer 40 kB, call 20 kB), cuts it
into one-token pieces, and times both: text pieces in, event JSON out.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import deepseek_recipe as R
from tokenizers import Tokenizer

D = "｜DSML｜"
WORDS = ("the quick harbour counts seven lanterns while rain drifts over slate roofs and a clerk files the ledger under winter "
         "please list every port compute ratio return value config error retry json stream token cache prefix 雨が降る 今天 контроль "
         "{x} \"q\" x < y `code` \n \n\n").split(" ")


def text(r, size):
    out = []
    while sum(map(len, out)) < size:
        out.append(r.choice(WORDS) + " ")
    return "".join(out)


def main():
    r = random.Random("bench")
    out = text(r, 18000) + "</think>" + text(r, 36000)
    out += '\n\n<%s calls>\n<%s invoke name="f">\n<%s parameter name="body" string="true">%s</%s parameter>\n</%s invoke>\n</%s calls>' % (
        D, D, D, text(r, 18000), D, D, D)
    tokenizer = Tokenizer.from_file(sys.argv[1])
    pieces, pending = [], []
    for i in tokenizer.encode(out, add_special_tokens=False).ids:
        pending.append(i)
        s = tokenizer.decode(pending, skip_special_tokens=False)
        if not s.endswith("\ufffd"):
            pieces.append(s)
            pending = []
    assert "".join(pieces) == out
    blocks = [out[i:i + 4096] for i in range(0, len(out), 4096)]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        f.write(json.dumps(pieces, ensure_ascii=False) + "\n")
        f.flush()
        subprocess.run([sys.argv[2], f.name], check=True)
    requests = {"chat": (R.ChatCompletionRequest, {"messages": [{"role": "user", "content": "q"}], "tools": [{"type": "function", "function": {"name": "f"}}]}),
                "messages": (R.MessagesRequest, {"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
                "responses": (R.ResponsesRequest, {"input": "q", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]})}
    for name, cut in (("tokens", pieces), ("4kB", blocks)):
        for api, (kind, body) in requests.items():
            times = []
            for _ in range(9):
                request = kind(json.dumps({"model": "DeepSeek-V4.1-Flash", **body}))
                model = request.model  # conversion consumes the request
                converted = request.convert(R.ConversionOptions())
                processor = R.StreamProcessor(kind.chunk_generator(converted, "r1", model), converted.parsing_options, R_TOKENIZER)
                chunks = [R.InferenceChunk.ready(prompt_usage=R.PromptUsage(prompt_tokens=1, prompt_cache_hit_tokens=0), system_fingerprint=None)]
                chunks += [R.InferenceChunk.text(p, 1) for p in cut] + [R.InferenceChunk.finish(R.InferenceFinishReason.Stop)]
                t = time.perf_counter()
                for c in chunks:
                    for e in processor.push(c):
                        e.to_json()
                for e in processor.finish():
                    e.to_json()
                times.append(time.perf_counter() - t)
            m = statistics.median(times)
            print(json.dumps({"bench": "decode", "program": "deepseek-recipe 0.2.0", "workload": "%s %s" % (name, api), "pieces": len(cut),
                              "median_ms": round(m * 1e3, 3), "pieces_per_s": round(len(cut) / m), "MB_per_s": round(len(out.encode()) / m / 1e6, 1)}))


R_TOKENIZER = R.Tokenizer.from_file(sys.argv[1]) if len(sys.argv) == 3 else None
if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
