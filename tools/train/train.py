#!/usr/bin/env python3
"""Trains the demo model on one GPU within a time limit, draft layers included.

usage: train.py --data DATA.npz --config config.json --out DIR --seconds 420 [--init DIR]
Writes DIR/weights.N.pt (bf16 master weights in parts) and DIR/train.log. The schedule follows the clock: the
number of steps comes from the measured step time.
"""
import argparse, json, os, time
import numpy as np
import torch
import model, optim, params, storage

SEQS, ANCHORS, LOG = 128, 32, 100


def load(path, device):
    z = np.load(path)
    tok, doc, wt, group = (torch.as_tensor(z[k].astype(np.int16)) for k in ("tok", "doc", "wt", "group"))
    return tok.to(device), doc.to(device), wt.to(device), group.numpy(), z["token_map"]


def positions(doc):
    """place inside its document, for each place of packed rows"""
    at = torch.arange(doc.shape[1], device=doc.device)
    new = torch.ones_like(doc, dtype=torch.bool)
    new[:, 1:] = doc[:, 1:] != doc[:, :-1]
    return at - torch.where(new, at, 0).cummax(1).values


class Step:
    """One training step over static buffers; captured in a CUDA graph where there is one."""

    def __init__(self, config, data, device, compiled, seqs):
        self.t, self.dev = config["text_config"], device
        self.tok, self.doc, self.wt, _, tm = data
        self.net = model.Model(config, tm, device, compiled)
        self.P = params.create(self.t, 1, device)
        self.bias = params.router_biases(self.t, device)
        self.opt = optim.Optimiser(self.t, self.P, device)
        self.idx = torch.zeros(seqs, dtype=torch.long, device=device)
        self.sums = torch.zeros(6, device=device)
        self.graphs = {}
        for p in self.P.values():
            p.grad = torch.zeros_like(p)

    def balance(self, bias, loads, weight):
        bias.add_(weight * self.opt.factor * torch.sign(loads.mean(1, keepdim=True) - loads))

    def run(self, draft):
        t, net = self.t, self.net
        torch._foreach_zero_([p.grad for p in self.P.values()])
        ids, doc = self.tok[self.idx].long(), self.doc[self.idx].long()
        pos = positions(doc)
        nxt = torch.cat([ids[:, 1:], ids[:, :1]], 1)
        w = self.wt[self.idx].float() / 10
        inside = torch.zeros_like(w)
        inside[:, :-1] = (doc[:, 1:] == doc[:, :-1]).float()
        w_next = torch.cat([w[:, 1:], w[:, :1]], 1) * inside
        W = net.prepare(self.P)
        h, taps, st = net.backbone(W, self.bias, ids, doc, pos)
        loss, logits = net.f["token_loss"](h, W["head"], nxt.flatten(), w_next.flatten())
        loads, shares = torch.stack(st["load"]), torch.stack(st["share"])
        aux = (loads.detach() * shares).sum() * t["n_routed_experts"] * 0.0005
        index = sum(st["index"])
        total = loss + aux + 0.05 * index
        dloss = agree = loss.detach() * 0
        if draft:
            ok = (pos > 0) & (w_next > 0.9)
            where = torch.topk(torch.rand(ids.shape, device=self.dev) + ok.float(), ANCHORS, 1).indices
            dloss, agree, ds = net.draft_train(W, self.bias, ids, doc, pos, taps, logits, w * (w > 0.9), where)
            dl, dsh = torch.stack(ds["load"]), torch.stack(ds["share"])
            total = total + dloss + (dl.detach() * dsh).sum() * t["dspark_n_routed_experts"] * 0.0005
        total.backward()
        self.opt.step(draft)
        with torch.no_grad():
            self.balance(self.bias["bias"], loads, 0.01)
            if draft:
                self.balance(self.bias["draft_bias"], dl, 0.01)
            self.sums += torch.stack([loss.detach(), index.detach(), dloss.detach(), agree.detach(), loads.max().detach(), loads.min().detach()])

    def warm(self):
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for draft in (False, True, False, True):
                a = time.time()
                self.run(draft)
                torch.cuda.synchronize()
                print(f"warm-up step, draft {draft}: {time.time() - a:.1f} s", flush=True)
        torch.cuda.current_stream().wait_stream(s)

    def capture(self):
        pool = None
        for draft in (False, True):
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, pool=pool):
                self.run(draft)
            pool = g.pool()
            self.graphs[draft] = g
        torch.cuda.synchronize()

    def __call__(self, idx, factor, draft):
        self.idx.copy_(idx, non_blocking=True)
        self.opt.factor.fill_(factor)
        self.graphs[draft].replay() if self.graphs else self.run(draft)


def batches(group, seqs, share, rng):
    """endless batches; share(progress) = part of each batch from group 0 (broad), the rest from group 1"""
    order, at = [np.flatnonzero(group == g) for g in (0, 1)], [0, 0]
    perm = [rng.permutation(o) for o in order]

    def take(g, n):
        out = []
        while n:
            if at[g] == len(perm[g]):
                perm[g], at[g] = rng.permutation(order[g]), 0
            k = min(n, len(perm[g]) - at[g])
            out.append(perm[g][at[g]:at[g] + k])
            at[g], n = at[g] + k, n - k
        return np.concatenate(out) if out else np.zeros(0, np.int64)

    while True:
        progress = yield
        a = int(round(seqs * share(progress))) if len(order[0]) else 0
        yield np.concatenate([take(0, a), take(1, seqs - a)])


def schedule(p, warm):
    return min(1.0, warm) * (1.0 if p < 0.4 else max(0.015, 1 - (p - 0.4) / 0.6))


def main():
    ap = argparse.ArgumentParser()
    for a in ("data", "config", "out"):
        ap.add_argument("--" + a, required=True)
    ap.add_argument("--seconds", type=float, default=420, help="wall time for everything, compiling included")
    ap.add_argument("--init", help="folder with weights.N.pt to start from")
    ap.add_argument("--rate", type=float, default=1.0, help="multiplies every learning rate")
    ap.add_argument("--seqs", type=int, default=SEQS)
    ap.add_argument("--steps", type=int, help="fixed number of steps (a dry run)")
    ap.add_argument("--eager", action="store_true")
    a = ap.parse_args()
    t0 = time.time()
    os.makedirs(a.out, exist_ok=True)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    config = json.load(open(a.config))
    data = load(a.data, dev)

    def build(compiled):
        s = Step(config, data, dev, compiled, a.seqs)
        if a.init:
            P, bias = storage.load_master(a.init, dev)
            with torch.no_grad():
                for n, p in s.P.items():
                    p.copy_(P[n])
                for n, b in s.bias.items():
                    b.copy_(bias[n])
        return s

    rng = np.random.default_rng(1)
    gen = batches(data[3], a.seqs, lambda p: 0.08 if p < 0.5 else 0.03, rng)
    next(gen)
    step = build(dev == "cuda" and not a.eager)
    if dev == "cuda":
        step.opt.factor.fill_(0.0)  # warm-up and capture leave the weights alone
        step.idx.copy_(torch.as_tensor(gen.send(0.0)))
        next(gen)
        try:
            step.warm()
        except Exception as e:
            print("compiled step failed, going on without compiling:", repr(e)[:3000], flush=True)
            step = build(False)
            step.opt.factor.fill_(0.0)
            step.warm()
        step.capture()
        print(f"captured after {time.time() - t0:.1f} s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
        for m in (step.opt.m, step.opt.v):
            for x in m.values():
                x.zero_()
        step.opt.count.zero_()
        for b in step.bias.values():
            b.zero_() if not a.init else None
    n, start, p, steps = 0, time.time(), 0.0, a.steps
    step.sums.zero_()
    log = open(os.path.join(a.out, "train.log"), "w")
    while p < 1:
        p = n / steps if steps else min((time.time() - start) / (a.seconds - (start - t0)), 1.0)
        idx = torch.as_tensor(gen.send(p))
        next(gen)
        step(idx, a.rate * schedule(p, (n + 1) / 100), p > 0.5)
        n += 1
        if dev == "cuda" and n % 10 == 0:
            torch.cuda.synchronize()  # the clock decides the schedule
        if n % (LOG if dev == "cuda" else 1) == 0:
            s = (step.sums / (LOG if dev == "cuda" else 1)).tolist()
            step.sums.zero_()
            line = (f"step {n} progress {p:.3f} time {time.time() - t0:.0f} s tokens {n * a.seqs * 512 / 1e6:.1f} M loss {s[0]:.4f} index {s[1]:.3f} "
                    f"draft {s[2]:.4f} agree {s[3]:.3f} load {s[5]:.4f}..{s[4]:.4f}")
            print(line, flush=True)
            print(line, file=log, flush=True)
    storage.save_master(a.out, step.P, step.bias)
    print(f"done: {n} steps, {n * a.seqs * 512 / 1e6:.1f} M tokens, {time.time() - t0:.0f} s", flush=True)


if __name__ == "__main__":
    main()
