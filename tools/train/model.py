"""DeepSeek-V4.1's text model and draft, compact, for training: every quantiser in the loop.

Rows are packed documents [B, T]; T is a multiple of the window. A document starts at an even place, its positions
start at 0, and nothing crosses its borders. EXACT = True evaluates as the engine does (f32 scores and logits,
strict top-k); training rounds those to bf16 for speed.
"""
import torch
import torch.nn.functional as F
import engram_map
import numerics as q
from sinkhorn import sinkhorn

EXACT = False
BF16 = torch.bfloat16


def lin(x, w):
    return (x.float() @ w.float().t()).to(BF16) if EXACT else x @ w.t()


def lin32(x, w):
    return x.float() @ w.float().t() if EXACT else (x @ w.t()).float()


def rms(x, w, eps):
    x = x.float()
    return (w.float() * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))).to(BF16)


def rope(x, cs, inverse=False):
    """rotates the last channels of x [N, (heads,) D]; cs: cos and sin [N, d/2]"""
    c, s = cs[0], -cs[1] if inverse else cs[1]
    if x.dim() == 3:
        c, s = c[:, None], s[:, None]
    d = 2 * c.shape[-1]
    keep, r = x[..., :-d], x[..., -d:].float().unflatten(-1, (-1, 2))
    a, b = r[..., 0], r[..., 1]
    out = torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2).to(BF16)
    return torch.cat([keep, out], -1)


# ---- sites (compiled one by one)

def mix(X, fn, base, scale, iters, hc_eps, eps):
    hc = X.shape[1]
    z = X.flatten(1)
    r = torch.rsqrt((z.float() ** 2).mean(-1, keepdim=True) + eps)
    m = lin32(z, fn) * r
    pre = torch.sigmoid(m[:, :hc] * scale[0] + base[:hc]) + hc_eps
    post = 2 * torch.sigmoid(m[:, hc:2 * hc] * scale[1] + base[hc:2 * hc])
    a = (m[:, 2 * hc:] * scale[2] + base[2 * hc:]).unflatten(-1, (hc, hc))
    return pre, post, sinkhorn(a, iters)


def collapse(X, pre):
    return (pre[..., None] * X.float()).sum(1).to(BF16)


def expand(y, X, post, comb):
    x = X.float()
    out = post[..., None] * y.float()[:, None]
    return (out + sum(comb[:, j, :, None] * x[:, j, None] for j in range(X.shape[1]))).to(BF16)


def attn_in(X, pre, w, cs, c):
    pa, post, comb = mix(X, w["hc_attn_fn"], w["hc_attn_base"], w["hc_attn_scale"], *c[:3])
    h = rms(collapse(X, pre), w["attn_norm"], c[2])
    h8 = q.aq8(h)
    qr = q.aq8(rms(lin(h8, w["wq_a"]), w["q_norm"], c[2]))
    qq = rope(lin(qr, w["wq_b"]).unflatten(-1, (c[3], -1)), cs)
    kv = q.aq8(rope(rms(lin(h8, w["wkv"]), w["kv_norm"], c[2]), cs))
    return h, qr, qq, kv, pa, post, comb


def latent(x, w, cs, c):
    return q.aq8(rope(rms(lin(q.aq8(x), w["wkv"]), w["kv_norm"], c[2]), cs))


def attn_out(o, X, post, comb, w, cs, groups):
    o = rope(o, cs, inverse=True).flatten(1).unflatten(-1, (groups, -1))
    u = torch.stack([lin(o[:, g], w["wo_a"][g]) for g in range(groups)], 1).flatten(1)
    return expand(lin(q.aq8(u), w["wo_b"]), X, post, comb)


def _mm(a, b):
    return a.float() @ b.float() if EXACT else a @ b


def core(qq, kv, sink, doc, window, E=None, sel=None, want_mass=False):
    """qq [B,T,NH,D], kv [B,T,D], doc [B,T]; E [B,M,D] with sel [B,T,M] -> [B,T,NH,D] (and the heads' mean mass on E)"""
    B, T, NH, D = qq.shape
    W, nb, scale = window, T // window, D**-0.5
    kw = F.pad(kv, (0, 0, W, 0)).unfold(1, 2 * W, W)  # [B,nb,D,2W]
    dw = F.pad(doc, (W, 0), value=-1).unfold(1, 2 * W, W)
    i, j = torch.arange(W, device=qq.device)[:, None], torch.arange(2 * W, device=qq.device)[None]
    back = i + W - j
    ok = ((back >= 0) & (back < W)) & (dw[:, :, None, :] == doc.view(B, nb, W, 1))
    sw = _mm(qq.reshape(B, nb, W * NH, D), kw).view(B, nb, W, NH, 2 * W).float() * scale
    sw = sw.masked_fill(~ok[:, :, :, None], float("-inf"))
    m = sw.detach().amax(-1)
    if E is not None:
        sg = _mm(qq.reshape(B, T * NH, D), E.transpose(1, 2)).view(B, T, NH, -1).float() * scale
        sg = sg.masked_fill(~sel[:, :, None], float("-inf"))
        m = torch.maximum(m, sg.detach().amax(-1).view(B, nb, W, NH))
    pw = torch.exp(sw - m[..., None])
    den = pw.sum(-1) + torch.exp(sink - m)
    o = _mm(pw.to(BF16).view(B, nb, W * NH, 2 * W), kw.transpose(2, 3)).view(B, T, NH, D).float()
    den = den.view(B, T, NH)
    mass = None
    if E is not None:
        pg = torch.exp(sg - m.view(B, T, NH)[..., None])
        den = den + pg.sum(-1)
        o = o + _mm(pg.to(BF16).view(B, T * NH, -1), E).view(B, T, NH, D).float()
        if want_mass:
            mass = (pg / den[..., None]).mean(2).detach()
    return (o / den[..., None]).to(BF16), mass


def compress(h, ratio, w, cs_first, c):
    """h [B*T, H] -> entries, index keys; cs_first: rotation at the first token of each group"""
    if ratio == 1:
        u = lin(h, w["comp_wkv"])
    else:
        v, g = lin32(h, w["comp_wkv"]).unflatten(0, (-1, ratio)), lin32(h, w["comp_wgate"]).unflatten(0, (-1, ratio))
        u = (torch.softmax(g, 1) * v).sum(1).to(BF16)
    lat = rms(u, w["comp_norm"], c[2])
    E = q.fq4e4(rope(lat, cs_first))
    K = q.fq4e8(rope(rms(lin(lat.detach(), w["idx_wk"]), w["idx_k_norm"], c[2]), cs_first))
    return E, K


def visible(doc, ratio):
    B, T = doc.shape
    first = torch.arange(0, T, ratio, device=doc.device)
    at = torch.arange(T, device=doc.device)
    return (doc[:, :, None] == doc[:, None, ::ratio]) & (first + ratio - 1 <= at[:, None])[None]


def best(score, vis, k):
    """the k best visible entries of each row, as a mask; training lets ties at the cut in"""
    if score.shape[-1] <= k:
        return vis
    score = score.masked_fill(~vis, float("-inf"))
    if EXACT:
        pick = torch.zeros_like(vis)
        pick.scatter_(-1, torch.sort(score, dim=-1, descending=True, stable=True).indices[..., :k], True)
        return pick & vis
    return vis & (score >= torch.topk(score, k, -1, sorted=False).values.amin(-1, keepdim=True))


def pool(score, vis, ratio, t):
    bs = t["candidate_block_size"]
    B, T, M = score.shape
    b = score.masked_fill(~vis, float("-inf"))
    b = F.pad(b, (0, -M % bs), value=float("-inf")).unflatten(-1, (-1, bs)).amax(-1)
    ok = b > float("-inf")
    newest = ((torch.arange(T, device=score.device) + 1) // ratio - 1).div(bs, rounding_mode="floor")
    b = b.masked_fill(torch.arange(b.shape[-1], device=score.device)[None, None] == newest[None, :, None], float("inf"))
    keep = best(b, ok, t["candidate_topk_blocks"])
    return keep.repeat_interleave(bs, -1)[..., :M] & vis


def index_scores(h, qr, K, w, cs, B, heads, const):
    iq = q.fq4e8(rope(lin(qr.detach(), w["idx_wq_b"]).unflatten(-1, (heads, -1)), cs))
    hw = lin(h.detach(), w["idx_w"]).view(B, -1, heads)
    T = hw.shape[1]
    d = _mm(iq.reshape(B, T * heads, -1), K.transpose(1, 2)).view(B, T, heads, -1).float()
    return (torch.relu(d) * hw.float()[..., None]).sum(2) * const


def index_loss(score, sel, mass):
    """divergence of the index's distribution from the attention mass inside the selection"""
    logp = torch.log_softmax(score.masked_fill(~sel, -1e4), -1)
    total = mass.sum(-1, keepdim=True)
    p = mass / (total + 1e-6)
    return -(p * logp).sum(-1).mean()


def engram(X, e, wkv, qw, kw, eps):
    N, hc, H = X.shape
    kv = lin(q.aq8(e), wkv)
    K, v = kv[:, :hc * H].view(N, hc, H).float(), kv[:, hc * H:].float()
    x = X.float()
    dot = (x * (qw.float() * kw.float()) * K).sum(-1)
    dot = dot * torch.rsqrt((x * x).mean(-1) + eps) * torch.rsqrt((K * K).mean(-1) + eps) * H**-0.5
    gate = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp(min=1e-6)), dot))
    return (x + gate[..., None] * v[:, None]).to(BF16)


def ffn(X, pa, w, bias, c, n_inter, scaling, limit):
    """-> streams, pre for the next site, load of each expert, mean router share of each expert"""
    pf, post, comb = mix(X, w["hc_ffn_fn"], w["hc_ffn_base"], w["hc_ffn_scale"], *c[:3])
    h = rms(collapse(X, pa), w["ffn_norm"], c[2])
    sc = torch.sqrt(F.softplus(h.float() @ w["gate"].float().t()))
    sel = sc.detach() + bias
    top = sel.amax(-1, keepdim=True)  # two experts a token
    second = sel.masked_fill(sel >= top, float("-inf")).amax(-1, keepdim=True)
    on = (sel >= second).float()
    wt = sc * on
    wt = wt / (wt.sum(-1, keepdim=True) + 1e-20) * scaling
    wt = torch.cat([wt, torch.ones_like(wt[:, :1])], 1)  # the shared expert comes last
    h8 = q.aq8(h)
    g, u = lin(h8, w["w1"]).float(), lin(h8, w["w3"]).float()
    a = F.silu(g.clamp(max=limit)) * u.clamp(-limit, limit)
    a = (wt[..., None] * a.unflatten(-1, (-1, n_inter))).flatten(1).to(BF16)
    a = q.aq8(a)
    if EXACT:  # each expert's output is rounded before the sum
        y = sum(lin(x, m).float() for x, m in zip(a.split(n_inter, 1), w["w2"].split(n_inter, 1))).to(BF16)
    else:
        y = lin(a, w["w2"])
    share = sc / sc.sum(-1, keepdim=True)
    return expand(y, X, post, comb), pf, on.mean(0), share.mean(0)


def final(X, pre, norm, eps):
    return rms(collapse(X, pre), norm, eps)


def token_loss(h, head, target, weight):
    logits = lin32(h, head)
    nll = F.cross_entropy(logits, target, reduction="none")
    return (nll * weight).sum() / weight.sum().clamp(min=1), logits.to(BF16)


def draft_core(qq, ring, block, sink, allowed):
    """qq [B,A,k,NH,D], ring [B,T,D], block [B,A,k,D], allowed [B,A,T]: a row sees the ring and its own block"""
    B, A, k, NH, D = qq.shape
    s = _mm(qq.reshape(B, A * k * NH, D), ring.transpose(1, 2)).view(B, A, k * NH, -1).float() * D**-0.5
    s = s.masked_fill(~allowed[:, :, None], float("-inf"))
    own = _mm(qq.reshape(B, A, k * NH, D), block.transpose(2, 3)).float() * D**-0.5
    m = torch.maximum(s.amax(-1), own.amax(-1)).detach()[..., None]
    p, po = torch.exp(s - m), torch.exp(own - m)
    den = p.sum(-1) + po.sum(-1) + torch.exp(sink.repeat(k) - m[..., 0])
    o = _mm(p.to(BF16).view(B, A * k * NH, -1), ring).view(B, A, k * NH, D).float() + _mm(po.to(BF16), block).float()
    return (o / den[..., None]).to(BF16).view(B * A * k, NH, D)


def draft_head(x, norm, head, m_embed, m_head, conf, eps):
    """x [N, H] collapsed, m_embed [N, r] of the previous token -> logits f32, confidence"""
    logits = lin32(rms(x, norm, eps), head) + lin32(m_embed, m_head)
    return logits, (torch.cat([x, m_embed], -1).float() @ conf.float().t())[:, 0]


def draft_loss(x, norm, head, m_embed, m_head, conf, target_logits, label, weight, eps):
    logits, z = draft_head(x, norm, head, m_embed, m_head, conf, eps)
    logq, p = torch.log_softmax(logits, -1), torch.softmax(target_logits.float(), -1)
    ce = -logq.gather(1, label[:, None])[:, 0]
    dist = (logq.exp() - p).abs().sum(-1)
    bce = F.binary_cross_entropy_with_logits(z, (1 - 0.5 * dist).detach().clamp(0, 1), reduction="none")
    agree = (logits.argmax(-1) == target_logits.argmax(-1)).float()
    total = weight.sum().clamp(min=1e-3)
    return ((0.1 * ce + 0.9 * dist + bce) * weight).sum() / total, (agree * (weight > 0)).sum() / (weight > 0).float().sum().clamp(min=1)


SITES = ["attn_in", "latent", "attn_out", "core", "compress", "index_scores", "index_loss", "engram", "ffn", "final", "token_loss",
         "draft_core", "draft_loss"]


class Model:
    def __init__(self, config, token_map, device="cpu", compiled=False):
        t = self.t = config["text_config"]
        self.dev = device
        self.c = (t["hc_sinkhorn_iters"], t["hc_eps"], t["rms_norm_eps"], t["num_attention_heads"])
        self.f = {n: globals()[n] for n in SITES}
        if compiled:
            self.f = {n: torch.compile(f, dynamic=False) for n, f in self.f.items()}
        self.tm = torch.as_tensor(token_map, device=device)
        self.pad = int(token_map[t["engram_pad_token_id"]])
        self.hash = {}
        for l, p in engram_map.primes(t).items():
            off = torch.as_tensor(p).cumsum(0) - torch.as_tensor(p)
            self.hash[l] = ([int(m) for m in engram_map.multipliers(t, l)], torch.as_tensor(p, device=device), off.to(device))
        self.cs = {False: self._angles(False), True: self._angles(True)}

    def _angles(self, comp):
        import math
        t, d = self.t, self.t["qk_rope_head_dim"]
        base = float(t["compress_rope_theta"] if comp else t["rope_theta"])
        f = 1 / torch.pow(torch.tensor(base), torch.arange(0, d, 2, dtype=torch.float32) / d)
        y = t["rope_scaling"]
        if comp:
            cd = lambda r: d * math.log(y["original_max_position_embeddings"] / (2 * math.pi * r)) / (2 * math.log(base))
            lo, hi = max(math.floor(cd(y["beta_fast"])), 0), min(math.ceil(cd(y["beta_slow"])), d - 1)
            ramp = ((torch.arange(d // 2, dtype=torch.float32) - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
            f = f / y["factor"] * ramp + f * (1 - ramp)
        a = (torch.arange(t["max_position_embeddings"], dtype=torch.float32)[:, None] * f).double()
        return a.cos().float().to(self.dev), a.sin().float().to(self.dev)

    def prepare(self, P):
        """master weights -> weights as the engine will see them (bf16 values, straight-through), split by layer"""
        import params
        t, W = self.t, {}
        for n, (_, fmt, _, _) in params.table(t).items():
            w = P[n]
            W[n] = (q.weight_fp8(w) if fmt == "fp8" else q.weight_fp4(w) if fmt == "fp4" else q.weight_fp8(w, rows=1) if fmt == "rows8"
                    else w.to(BF16) if fmt == "bf16" or n.endswith("_fn") else w)
        N, L, I = t["num_hidden_layers"] + t["num_nextn_predict_layers"], t["num_hidden_layers"], t["moe_intermediate_size"]
        W["wo_a"] = W["wo_a"].unflatten(0, (N, -1))
        layers = [{} for _ in range(N)]
        for n in ("wq_a wq_b wkv wo_a wo_b q_norm kv_norm attn_sink attn_norm ffn_norm hc_attn_fn hc_attn_base hc_attn_scale "
                  "hc_ffn_fn hc_ffn_base hc_ffn_scale").split():
            for d, w in zip(layers, W[n].unbind(0)):
                d[n] = w
        for p, lo, hi in (("", 0, L), ("draft_", L, N)):
            for k, d in enumerate(layers[lo:hi]):
                d["gate"] = None
            for n, perm in (("w1", False), ("w3", False), ("w2", True)):
                e, s = W[p + n], W["shared_" + n][lo:hi]
                w = torch.cat([e, s[:, None]], 1)  # [n, experts + 1, out, in]
                w = w.permute(0, 2, 1, 3).flatten(2) if perm else w.flatten(1, 2)
                for d, x in zip(layers[lo:hi], w.contiguous().unbind(0)):
                    d[n] = x
            for d, x in zip(layers[lo:hi], W[p + "gate"].unbind(0)):
                d["gate"] = x
        for i, l in enumerate(t["kv_source_layer_ids"]):
            layers[l] |= {n: W[n][i] for n in ("comp_wkv", "comp_norm", "idx_wk", "idx_k_norm")}
        gated = [l for l in t["kv_source_layer_ids"] if t["compress_ratios"][l] > 1]
        for i, l in enumerate(gated):
            layers[l]["comp_wgate"] = W["comp_wgate"][i]
        for i, l in enumerate(t["index_source_layer_ids"]):
            layers[l] |= {n: W[n][i] for n in ("idx_wq_b", "idx_w")}
        W["layers"] = layers
        return W

    def engram_rows(self, ids, pos):
        """-> layer -> table rows [B, T, columns]"""
        t, comp = self.t, self.tm[ids]
        B, T = ids.shape
        src = []
        for i in range(t["engram_max_ngram_size"]):
            s = F.pad(comp, (i, 0), value=self.pad)[:, :T]
            src.append(torch.where(pos >= i, s, self.pad))
        out = {}
        for l, (mult, prime, off) in self.hash.items():
            z, rows, H = src[0] * mult[0], [], t["engram_n_heads"]
            for i in range(1, len(src)):
                z = z ^ (src[i] * mult[i])
                rows.append(z[..., None] % prime[(i - 1) * H:i * H] + off[(i - 1) * H:i * H])
            out[l] = torch.cat(rows, -1)
        return out

    def backbone(self, W, bias, ids, doc, pos):
        """-> h [B*T, H] (normed), taps [B*T, k*H], stats: loads, shares, index losses"""
        t, f, c = self.t, self.f, self.c
        B, T = ids.shape
        cs = {k: (v[0][pos.flatten()], v[1][pos.flatten()]) for k, v in self.cs.items()}
        erows = self.engram_rows(ids, pos)
        e = W["embed"].index_select(0, ids.flatten())
        X = e[:, None].expand(-1, t["hc_mult"], -1).contiguous()
        pre = torch.zeros(B * T, t["hc_mult"], device=ids.device)
        pre[:, 0] = 1
        if torch.is_grad_enabled():
            pre.requires_grad_()  # one compiled variant of a site for all layers
        taps, stats = [], {"load": [], "share": [], "index": []}
        E = K = sel = cand = vis = None
        for l in range(t["num_hidden_layers"]):
            w, ratio = W["layers"][l], t["compress_ratios"][l]
            if l in t["engram_layer_ids"]:
                i = t["engram_layer_ids"].index(l)
                rows = W[f"engram_table_{i}"].index_select(0, erows[l].flatten()).view(B * T, -1)
                X = f["engram"](X, rows, W["engram_wkv"][i], W["engram_q"][i], W["engram_k"][i], c[2])
            if l in t["dspark_target_layer_ids"]:
                taps.append(X.detach().float().mean(1).to(BF16))
            comp = ratio > 0
            h, qr, qq, kv, pa, post, comb = f["attn_in"](X, pre, w, cs[comp], c)
            score = mass = None
            if l in t["kv_source_layer_ids"]:
                first = tuple(x.view(B, T, -1)[:, ::ratio].flatten(0, 1) for x in cs[True])
                E, K = f["compress"](h, ratio, w, first, c)
                E, K, vis = E.view(B, T // ratio, -1), K.view(B, T // ratio, -1), visible(doc, ratio)
            if l in t["index_source_layer_ids"]:
                score = f["index_scores"](h, qr, K, w, cs[True], B, t["index_n_heads"], (t["index_head_dim"] * t["index_n_heads"]) ** -0.5)
                with torch.no_grad():
                    d = score.detach()
                    if l == t["candidate_source_layer_id"]:
                        cand = pool(d, vis, ratio, t)
                    sel = best(d, cand if 0 <= t["candidate_source_layer_id"] < l else vis, t["index_topk"])
            qv, kvv = qq.view(B, T, *qq.shape[1:]), kv.view(B, T, -1)
            if comp:
                o, mass = f["core"](qv, kvv, w["attn_sink"], doc, t["sliding_window"], E, sel, score is not None)
            else:
                o, _ = f["core"](qv, kvv, w["attn_sink"], doc, t["sliding_window"])
            if score is not None and torch.is_grad_enabled():
                stats["index"].append(f["index_loss"](score, sel, mass))
            X = f["attn_out"](o.reshape(B * T, *o.shape[2:]), X, post, comb, w, cs[comp], t["o_groups"])
            X, pre, load, share = f["ffn"](X, pa, w, bias["bias"][l], c, t["moe_intermediate_size"], t["routed_scaling_factor"], t["swiglu_limit"])
            stats["load"].append(load), stats["share"].append(share)
        return f["final"](X, pre, W["norm"], c[2]), torch.cat(taps, 1), stats

    def draft_hidden(self, W, bias, taps, first, pos, anchor, allowed):
        """taps [B*T, .] of context, first [B,A] token at position anchor [B,A] -> x [B*A*k, H] collapsed, stats"""
        t, f, c = self.t, self.f, self.c
        B, A = first.shape
        k, n, L = t["dspark_block_size"], t["num_nextn_predict_layers"], t["num_hidden_layers"]
        main = rms(lin(q.aq8(taps), W["main_proj"][0]), W["main_norm"], c[2])
        ids = torch.full((B, A, k), t["dspark_noise_token_id"], device=first.device, dtype=torch.long)
        ids[..., 0] = first
        at = (anchor[..., None] + torch.arange(k, device=first.device)).flatten()
        cs = self.cs[False][0][at], self.cs[False][1][at]
        mcs = self.cs[False][0][pos.flatten()], self.cs[False][1][pos.flatten()]
        X = W["embed"].detach().index_select(0, ids.flatten())[:, None].expand(-1, t["hc_mult"], -1).contiguous()
        pre = torch.zeros(B * A * k, t["hc_mult"], device=first.device)
        pre[:, 0] = 1
        if torch.is_grad_enabled():
            pre.requires_grad_(), X.requires_grad_()
        stats = {"load": [], "share": []}
        for s in range(n):
            w = W["layers"][L + s]
            _, _, qq, kv, pa, post, comb = f["attn_in"](X, pre, w, cs, c)
            ring = f["latent"](main, w, mcs, c).view(B, pos.shape[1], -1)
            o = f["draft_core"](qq.view(B, A, k, *qq.shape[1:]), ring, kv.view(B, A, k, -1), w["attn_sink"], allowed)
            X = f["attn_out"](o, X, post, comb, w, cs, t["o_groups"])
            X, pre, load, share = f["ffn"](X, pa, w, bias["draft_bias"][s], c, t["moe_intermediate_size"], t["routed_scaling_factor"], t["swiglu_limit"])
            stats["load"].append(load), stats["share"].append(share)
        return collapse(X, pre), stats

    def draft_train(self, W, bias, ids, doc, pos, taps, logits, weight, where):
        """where [B,A]: places of the anchors in the packed rows; a place needs one earlier token of its document"""
        t = self.t
        B, T = ids.shape
        k = t["dspark_block_size"]
        at = torch.arange(T, device=ids.device)
        d = doc.gather(1, where)
        back = where[..., None] - at
        allowed = (back >= 1) & (back <= t["sliding_window"]) & (doc[:, None] == d[..., None])
        x, stats = self.draft_hidden(W, bias, taps, ids.gather(1, where), pos, pos.gather(1, where), allowed)
        step = where[..., None] + torch.arange(k, device=ids.device)  # row i stands at this place
        row, nxt = step.clamp(max=T - 1).flatten(1), (step + 1).clamp(max=T - 1).flatten(1)
        ok = (step + 1 < T) & (doc.gather(1, nxt).view_as(step) == d[..., None]) & (weight.gather(1, nxt).view_as(step) > 0)
        ok = ok.cumprod(-1).float() * torch.exp(-torch.arange(k, device=ids.device) / k)
        ok = ok * (pos.gather(1, where) > 0)[..., None]
        prev, label = ids.gather(1, row).flatten(), ids.gather(1, nxt).flatten()
        tl = logits.detach().view(B, T, -1).gather(1, row[..., None].expand(-1, -1, logits.shape[-1])).flatten(0, 1)
        loss, agree = self.f["draft_loss"](x, W["draft_norm"], W["head"].detach(), W["markov_embed"].index_select(0, prev), W["markov_head"],
                                           W["confidence"], tl, label, ok.flatten(), self.c[2])
        return loss, agree, stats
