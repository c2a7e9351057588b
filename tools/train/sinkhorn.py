"""Sinkhorn normalisation of the stream-mixing matrices: one kernel each way on a GPU, plain torch elsewhere.

Forward: softmax over rows, plus eps, column step, then (iters - 1) row and column steps. Backward: implicit
gradient at the (nearly) doubly stochastic result, which needs no stored intermediate.
"""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

EPS = 1e-6


def forward_torch(a, iters):
    a = torch.softmax(a, -1) + EPS
    a = a / (a.sum(-2, keepdim=True) + EPS)
    for _ in range(iters - 1):
        a = a / (a.sum(-1, keepdim=True) + EPS)
        a = a / (a.sum(-2, keepdim=True) + EPS)
    return a


def backward_torch(p, g, iters):
    r, c = (p * g).sum(-1), (p * g).sum(-2)
    al, be = torch.zeros_like(r), torch.zeros_like(c)
    for _ in range(iters):
        al = r - (p * be[..., None, :]).sum(-1)
        be = c - (p * al[..., :, None]).sum(-2)
    return p * (g - al[..., :, None] - be[..., None, :])


if triton is not None:

    @triton.jit
    def _fwd(x, y, n, iters: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        off = row[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        ok = off < n * 16
        a = tl.load(x + off, ok, other=0.0)
        a = tl.exp(a - tl.max(a, 2)[:, :, None])
        a = a / tl.sum(a, 2)[:, :, None] + 1e-6
        a = a / (tl.sum(a, 1)[:, None, :] + 1e-6)
        for _ in range(iters - 1):
            a = a / (tl.sum(a, 2)[:, :, None] + 1e-6)
            a = a / (tl.sum(a, 1)[:, None, :] + 1e-6)
        tl.store(y + off, a, ok)

    @triton.jit
    def _bwd(p_, g_, d, n, iters: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        off = row[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        ok = off < n * 16
        p = tl.load(p_ + off, ok, other=0.25)
        g = tl.load(g_ + off, ok, other=0.0)
        r = tl.sum(p * g, 2)
        c = tl.sum(p * g, 1)
        al = r
        be = c - tl.sum(p * al[:, :, None], 1)
        for _ in range(iters - 1):
            al = r - tl.sum(p * be[:, None, :], 2)
            be = c - tl.sum(p * al[:, :, None], 1)
        tl.store(d + off, p * (g - al[:, :, None] - be[:, None, :]), ok)


@torch.library.custom_op("demo::sinkhorn", mutates_args=())
def sinkhorn(a: torch.Tensor, iters: int) -> torch.Tensor:
    if not a.is_cuda:
        return forward_torch(a, iters)
    a = a.contiguous()
    y = torch.empty_like(a)
    n = a.numel() // 16
    _fwd[(triton.cdiv(n, 64),)](a, y, n, iters, 64)
    return y


@torch.library.custom_op("demo::sinkhorn_backward", mutates_args=())
def sinkhorn_backward(p: torch.Tensor, g: torch.Tensor, iters: int) -> torch.Tensor:
    if not p.is_cuda:
        return backward_torch(p, g, iters)
    p, g = p.contiguous(), g.contiguous()
    d = torch.empty_like(p)
    n = p.numel() // 16
    _bwd[(triton.cdiv(n, 64),)](p, g, d, n, iters, 64)
    return d


@sinkhorn.register_fake
def _(a, iters):
    return torch.empty_like(a, memory_format=torch.contiguous_format)


@sinkhorn_backward.register_fake
def _(p, g, iters):
    return torch.empty_like(p, memory_format=torch.contiguous_format)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.iters = inputs[1]


def _back(ctx, g):
    return sinkhorn_backward(ctx.saved_tensors[0], g, ctx.iters), None


sinkhorn.register_autograd(_back, setup_context=_setup)
