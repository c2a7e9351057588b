"""Quantisers of the released format, with straight-through gradients, and their bit encodings.

All of them follow the number formats of DeepSeek-V4.1: E4M3 and E2M1 values, power-of-two scales (E8M0) for
linears, activations and index vectors, E4M3 scales for compressed cache entries. Rounding is to nearest even.
"""
import torch

F32, BF16 = torch.float32, torch.bfloat16


def pow2ceil(t):
    u = t.view(torch.int32)
    e = (u >> 23) + ((u & 0x7FFFFF) != 0).to(torch.int32)
    return (e << 23).view(F32)


def e4m3(x):
    """Nearest E4M3 value of f32 |x| <= 448."""
    e = ((x.abs().view(torch.int32) >> 23) - 127).clamp(min=-6)
    step = ((e + 124) << 23).view(F32)
    return torch.round(x / step) * step


def e2m1(x):
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.round(x / step) * step


def _groups(x, n):
    return x.float().unflatten(-1, (-1, n))


def _ste(x, q):
    """q forward, identity backward; bf16 holds every q exactly."""
    x32 = x.float()
    return (x32 + (q.reshape(x.shape) - x32).detach()).to(BF16)


def aq8(x):
    g = _groups(x.detach(), 32)
    s = pow2ceil(g.abs().amax(-1, keepdim=True).clamp(min=1e-4) * (1 / 448))
    return _ste(x, e4m3((g / s).clamp(-448, 448)) * s)


def fq4e8(x):
    g = _groups(x.detach(), 32)
    s = pow2ceil(g.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-126) * (1 / 6))
    return _ste(x, e2m1((g / s).clamp(-6, 6)) * s)


def fq4e4(x):
    g = _groups(x.detach(), 16)
    s = e4m3(g.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-9) / 6)
    return _ste(x, e2m1((g / s).clamp(-6, 6)) * s)


def tile_scale(w, last, rows):
    """Scale of each tile of `rows` x 32 of w [..., N, K]; last = largest value of the element format."""
    t = w.unflatten(-1, (-1, 32)).unflatten(-3, (-1, rows))
    a = t.abs().amax((-3, -1), keepdim=True).clamp(min=2.0**-100)
    return t, pow2ceil(a * (1 / last))


def weight_fp8(w, rows=32):
    t, s = tile_scale(w.detach(), 448, rows)
    return _ste(w, e4m3((t / s).clamp(-448, 448)) * s)


def weight_fp4(w):
    t, s = tile_scale(w.detach(), 6, 1)
    return _ste(w, e2m1((t / s).clamp(-6, 6)) * s)


# ---- bit encodings for the released files

def exponent_bytes(s):
    return (s.contiguous().view(torch.int32) >> 23).to(torch.uint8)


def encode_fp8(w, rows=32):
    """w [N, K] f32 -> (bytes [N, K], scale bytes [N/rows, K/32])"""
    t, s = tile_scale(w, 448, rows)
    q = e4m3((t / s).clamp(-448, 448)).reshape(w.shape)
    return q.to(torch.float8_e4m3fn).view(torch.uint8), exponent_bytes(s.squeeze((-3, -1)))


def encode_fp4(w):
    """w [N, K] f32 -> (bytes [N, K/2], low nibble = even K; scale bytes [N, K/32])"""
    t, s = tile_scale(w, 6, 1)
    q = e2m1((t / s).clamp(-6, 6)).reshape(w.shape)
    code = torch.bucketize(q.abs(), torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=w.device))
    code = code.to(torch.uint8) | ((q < 0).to(torch.uint8) << 3)
    return code[:, ::2] | (code[:, 1::2] << 4), exponent_bytes(s.squeeze((-3, -1)))
