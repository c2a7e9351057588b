#!/usr/bin/env python3
"""Other people's kernels at our shapes, on the GPU of this machine: peers.py > peers.jsonl, then table.py OPS.jsonl peers.jsonl

  torch      matrix products in bf16 (cuBLAS); needs PyTorch with CUDA
  deep_gemm  bf16 and FP8 products, and those of experts in FP8 (PyPI tokenspeed-deepgemm; compiles its kernels at first use, with nvcc)
  flash_mla  sparse attention over bf16 keys and over FP8 rows of 584 bytes (PyPI tokenspeed-flashmla)

Wheels are made for one version of Python and torch (tokenspeed-deepgemm 2.5.0.post20260629 and tokenspeed-flashmla 1.0.0.post20260429
go with torch 2.11): `pip download --no-deps --only-binary=:all: --python-version 3.12 NAME==VERSION`, unpack them
(`python3 -m zipfile -e WHEEL DIR`) and put DIR into PYTHONPATH. What is absent, or does not take a shape, is a line on stderr,
and the rest goes on. Times: the median of seven replays of a CUDA graph of calls, over so many copies of the weights that 160 MB lie
between two uses of one. Their arithmetic is not ours: DeepGEMM's scales are f32 per 128 x 128, FlashMLA's keys here are bf16."""
import json
import statistics
import sys

ROWS = (1, 8, 64, 256, 8192)
LINEARS = (("linear q_kv fp8 1792x5120", 1792, 5120), ("linear compress bf16 1024x5120", 1024, 5120), ("linear gate bf16 384x5120", 384, 5120),
           ("linear engram fp8 25600x6144", 25600, 6144), ("head bf16 129280x5120", 129280, 5120))
COLD_BYTES = 160 << 20


def note(text):
    print(text, file=sys.stderr, flush=True)


class Clock:
    def __init__(self, torch):
        self.torch = torch
        self.device = torch.cuda.get_device_name(0)

    def microseconds(self, call, n_copies):
        """Of call(i), i a copy of the weights."""
        torch = self.torch
        n_calls = max(20, min(400, n_copies))
        for i in range(n_copies):
            call(i)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n_calls):
                call(i % n_copies)
        times = []
        for _ in range(8):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / n_calls)
        return statistics.median(times[1:])

    def report(self, who, op, rows, make):
        """make() -> (call, n_copies)."""
        try:
            call, n_copies = make()
            us = self.microseconds(call, n_copies)
        except Exception as error:  # a peer's limits are its own; the others go on
            note(f"{who}, {op}, {rows} rows: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return
        finally:
            self.torch.cuda.empty_cache()
        print(json.dumps({"op": op, "rows": rows, "us": round(us, 2), "who": who, "on": self.device, "source": "the same machine, peers.py"}), flush=True)


def copies(n_bytes):
    return max(1, min(64, -(-COLD_BYTES // n_bytes)))


def products(torch, clock):
    def bf16(rows, n, k, run):
        def make():
            count = copies(2 * n * k)
            x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
            w = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
            y = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
            return (lambda i: run(x, w[i], y)), count
        return make

    def fp8(rows, n, k, deep_gemm):
        def make():
            count = copies(n * k)
            x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
            x_scale = torch.rand(rows, k // 128, device="cuda") + 0.5
            w = [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
            w_scale = torch.rand(-(-n // 128), k // 128, device="cuda") + 0.5
            y = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
            gemm = getattr(deep_gemm, "fp8_gemm_nt", None) or deep_gemm.fp8_fp4_gemm_nt
            return (lambda i: gemm((x, x_scale), (w[i], w_scale), y)), count
        return make

    # Up and down of 384 or 48 experts, `rows` rows of 6 choices each, the same number for every expert. FP8 weights: twice our bytes.
    def experts(rows, n_experts):
        def make():
            hidden, inner, m = 5120, 2304, 64 * -(-rows * 6 // (64 * n_experts))
            scale = lambda n, k: torch.rand(n_experts, n, k, device="cuda") + 0.5
            codes = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
            up, down = codes(n_experts, 2 * inner, hidden), codes(n_experts, hidden, inner)
            up_scale, down_scale = scale(2 * inner // 128, hidden // 128), scale(hidden // 128, inner // 128)
            x, x_scale = codes(n_experts, m, hidden), scale(m, hidden // 128)
            h, h_scale = codes(n_experts, m, inner), scale(m, inner // 128)
            gate_up = torch.empty(n_experts, m, 2 * inner, device="cuda", dtype=torch.bfloat16)
            y = torch.empty(n_experts, m, hidden, device="cuda", dtype=torch.bfloat16)
            each = -(-rows * 6 // n_experts)
            count = torch.full((n_experts,), each, device="cuda", dtype=torch.int32)

            def call(_):
                deep_gemm.m_grouped_fp8_gemm_nt_masked((x, x_scale), (up, up_scale), gate_up, count, each)
                deep_gemm.m_grouped_fp8_gemm_nt_masked((h, h_scale), (down, down_scale), y, count, each)
            return call, 1
        return make

    deep_gemm = module("deep_gemm")
    if deep_gemm is not None:
        for rows in (64, 256, 1024, 8192):
            clock.report("DeepGEMM, FP8, products only", "moe_ffn 384+1 experts", rows, experts(rows, 384))
        for rows in (128, 192):
            clock.report("DeepGEMM, FP8, products only", "moe_ffn 48 experts", rows, experts(rows, 48))
    for op, n, k in LINEARS:
        for rows in ROWS:
            if rows == 8192 and n > 30000:
                continue
            clock.report("torch (cuBLAS), bf16", op, rows, bf16(rows, n, k, lambda x, w, y: torch.mm(x, w.t(), out=y)))
            if deep_gemm is None:
                continue
            if "fp8" in op:
                clock.report("DeepGEMM, FP8", op, rows, fp8(rows, n, k, deep_gemm))
            else:
                clock.report("DeepGEMM, bf16", op, rows, bf16(rows, n, k, deep_gemm.bf16_gemm_nt))


def attention(torch, clock):
    """64 heads of 512, 640 keys a row of 131,072: window and listed entries in one list."""
    flash_mla = module("flash_mla")
    if flash_mla is None:
        return
    heads, width, listed, context = 64, 512, 640, 131072
    for rows in ROWS:
        def make(rows=rows):
            q = torch.randn(rows, heads, width, device="cuda", dtype=torch.bfloat16) / 10
            kv = torch.randn(context, 1, width, device="cuda", dtype=torch.bfloat16) / 10
            chosen = torch.randint(0, context, (rows, 1, listed), device="cuda", dtype=torch.int32)
            sink = torch.randn(heads, device="cuda")
            return (lambda i: flash_mla.flash_mla_sparse_fwd(q, kv, chosen, width ** -0.5, d_v=width, attn_sink=sink)), 1
        clock.report("FlashMLA, bf16 keys", "sparse_attend 128+512", rows, make)

        def make_decode(rows=rows):
            page, row_bytes = 64, 584
            q = torch.randn(rows, 1, heads, width, device="cuda", dtype=torch.bfloat16) / 10
            cache = torch.randint(0, 64, (context // page, page, 1, row_bytes), device="cuda", dtype=torch.uint8).view(torch.float8_e4m3fn)
            near = torch.randint(0, context, (rows, 1, 128), device="cuda", dtype=torch.int32)
            far = torch.randint(0, context, (rows, 1, 512), device="cuda", dtype=torch.int32)
            sink = torch.randn(heads, device="cuda")
            plan, _ = flash_mla.get_mla_metadata()
            return (lambda i: flash_mla.flash_mla_with_kvcache(q, cache, None, None, width, plan, None, width ** -0.5, False, True, near, sink,
                                                               cache, far)), 1
        if rows <= 256:
            clock.report("FlashMLA, FP8 rows of 584 bytes", "sparse_attend 128+512", rows, make_decode)


def module(name):
    try:
        return __import__(name)
    except Exception as error:  # an extension for another torch fails in many ways
        note(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return None


def main():
    torch = module("torch")
    if torch is None or not torch.cuda.is_available():
        sys.exit("peers.py: needs PyTorch and a GPU")
    torch.manual_seed(1)
    clock = Clock(torch)
    attention(torch, clock)
    products(torch, clock)


if __name__ == "__main__":
    main()
