"""One ftllm engine behind pipes: ftllm_worker.py DIR THREADS library|serve, run by the Python that has ftllm.

Reads one JSON object a line: {"ids": [...], "n": tokens to make, "logits": bool}; answers one a line:
{"ids": tokens made, "times": seconds from the launch to each, "logits": those of the prompt's last token, or null}. The first line says "ready".
ftllm's own words go to stderr.
"""
import ctypes
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

os.environ["FASTLLM_PREFIX_CACHE"] = "false"          # every prompt is computed
from ftllm import llm                  # noqa: E402
from ftllm.llm import fastllm_lib      # noqa: E402
from ftllm.util import make_normal_llm_model, make_normal_parser      # noqa: E402


def answer(model, vocab, ids, n, logits):
    """Greedy; no id ends the answer. The calls are those of the package's own benchmark and response_logits."""
    row = (ctypes.c_float * (vocab * 4))()
    began = time.perf_counter()
    handle = fastllm_lib.launch_response_llm_model(
        model.model, len(ids), (ctypes.c_int * len(ids))(*ids), n, 0 if logits else n, False, 1.0, 1, 1.0, 1.0, logits, *model.stop_token_ctypes(None))
    out, times, first_row = [], [], None
    while True:
        if logits:
            token = fastllm_lib.fetch_response_logits_llm_model(model.model, handle, row)
        else:
            token = fastllm_lib.fetch_response_llm_model(model.model, handle)
        if token <= -1:
            break
        times.append(time.perf_counter() - began)
        out.append(token)
        if logits and first_row is None:
            first_row = list(row[:vocab])
    return {"ids": out, "times": times, "logits": first_row}


def main():
    folder, threads, setup = sys.argv[1:4]
    with open(os.path.join(folder, "config.json")) as f:
        vocab = json.load(f)["text_config"]["vocab_size"]
    if setup == "serve":                                  # as `ftllm serve` does
        model = make_normal_llm_model(make_normal_parser("").parse_args([folder, "--device", "cpu", "-t", threads]))
    else:
        llm.set_cpu_threads(int(threads))
        llm.set_device_map("cpu")
        model = llm.model(folder)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        print(json.dumps(answer(model, vocab, ask["ids"], ask["n"], ask.get("logits", False))), file=answers, flush=True)


if __name__ == "__main__":
    main()
