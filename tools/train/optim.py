"""Muon for matrices, Adam for the rest. Everything stays on the device, so that a step can be captured in a graph."""
import torch
import params

RATES = {"muon": 0.03, "adam": 3e-3, "slow": 1e-3, "engram": 9e-3}


def orthogonalise(g):
    """nearest semi-orthogonal matrix of each [.., r, c], five Newton-Schulz rounds"""
    x = g.to(torch.bfloat16)
    flip = x.shape[-2] > x.shape[-1]
    if flip:
        x = x.transpose(-1, -2)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.transpose(-1, -2) if flip else x).float()


class Optimiser:
    def __init__(self, t, P, device):
        self.P = P
        self.group = {n: g for n, (_, _, g, _) in params.table(t).items()}
        self.m = {n: torch.zeros_like(p) for n, p in P.items()}
        self.v = {n: torch.zeros_like(p) for n, p in P.items() if self.group[n] != "muon"}
        self.count = torch.zeros((), device=device)
        self.factor = torch.ones((), device=device)  # schedule: multiplies every rate

    @torch.no_grad()
    def step(self, draft=True):
        self.count += 1
        for n, p in self.P.items():
            if not draft and n.startswith(params.DRAFT_ONLY):
                continue
            g, lr = p.grad, self.factor * RATES[self.group[n]]
            if self.group[n] == "muon":
                m = self.m[n].mul_(0.95).add_(g)
                u = orthogonalise((g + 0.95 * m).view(-1, *p.shape[-2:]))
                p.sub_(lr * max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5 * u.view_as(p))
            else:
                b1, b2 = 0.9, 0.98
                m, v = self.m[n].lerp_(g, 1 - b1), self.v[n].mul_(b2).addcmul_(g, g, value=1 - b2)
                mh, vh = m / (1 - b1**self.count), v / (1 - b2**self.count)
                p.sub_(lr * mh / (vh.sqrt() + 1e-10))
