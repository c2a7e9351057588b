#!/usr/bin/env python3
"""Held-out evaluation of the demo model, through PyTorch or through the engine.

usage: evaluate.py --model MODEL_DIR --tldr FILE --packages DIR (--master DIR | --hadal PROGRAM) [--valid DATA.valid.npz] [--count 200]
Prints one line a figure (aim in brackets), then sample chats. Right means: the answer names the right command, the
exact sum, a call that fits the schema, or a refusal for what it cannot know.
"""
import argparse, json, os, random, re, time
import numpy as np
import make_data, recipe_text, sources, toolbox, wordings


def prompt_of(text, thinking=False, tools=None, schema=None):
    return recipe_text.render([{"role": "user", "content": text}], tools, thinking, None, schema, prompt=True)


def parse_calls(text):
    """-> [(name, {key: value})] of a well-formed block, else None"""
    D = recipe_text.D
    m = re.fullmatch(rf"\s*<{D} calls>\n(.*)\n</{D} calls>", text, re.S)
    if not m:
        return None
    calls, rest = [], m.group(1)
    for c in re.finditer(rf'<{D} invoke name="([^"]*)">\n(.*?)\n</{D} invoke>', rest, re.S):
        args = {}
        for p in re.finditer(rf'<{D} parameter name="([^"]*)" string="(true|false)">(.*?)</{D} parameter>', c.group(2), re.S):
            try:
                args[p.group(1)] = p.group(3) if p.group(2) == "true" else json.loads(p.group(3))
            except ValueError:
                return None
        calls.append((c.group(1), args))
    return calls or None


def fits(call, schemas):
    s = {x["name"]: x["parameters"] for x in schemas}.get(call[0])
    if s is None or set(call[1]) != set(s["required"]):
        return False
    kinds = {"string": str, "integer": int, "number": (int, float)}
    return all(isinstance(v, kinds[s["properties"][k]["type"]]) for k, v in call[1].items())


def first_command(answer):
    m = re.search(r"`([^`]+)`", answer)
    return m.group(1) if m else ""


def words(s):
    return set(re.findall(r"[a-z]+", s.lower()))


class Sets:
    """name -> [(pieces of the prompt, judge(answer) -> bool, the question)]"""

    def __init__(self, w, seed, count):
        rng = random.Random(seed)
        w.rng = w.asker.rng = rng
        self.sets = {}
        ask = self.sets.setdefault
        held = wordings.sections("heldout.txt")
        tool, exact = ask("tool calls valid [98]", []), ask("tool calls exact", [])
        while len(tool) < count:
            msgs, schemas, _ = w.tool()
            if len(msgs) < 2 or not msgs[1].get("calls"):
                continue
            want, q = msgs[1]["calls"], msgs[0]["content"]
            p = prompt_of(q, tools=schemas)
            tool.append((p, lambda a, s=schemas: (c := parse_calls(a)) is not None and all(fits(x, s) for x in c), q))
            exact.append((p, lambda a, v=want: parse_calls(a) == v, q))
        valid, same = ask("JSON valid [98]", []), ask("JSON exact", [])
        for i in range(count):
            q, a, _ = w.json_extract() if i % 3 else w.json_command()
            p = prompt_of(q)
            valid.append((p, is_json, q))
            same.append((p, lambda t, v=a: is_json(t) and json.loads(t) == json.loads(v), q))
        pairs = [(a, b) for a in range(10, 100) for b in range(10, 100) if make_data.held_out("sum", (a, b))]
        sums = ask("two-digit sums, pairs kept out [98]", [])
        for a, b in rng.sample(pairs, min(count, len(pairs))):
            q = w.asker.ask("sum", plain=True, a=str(a), b=str(b))
            sums.append((prompt_of(q), lambda t, v=a + b: re.findall(r"\d+", t)[-1:] == [str(v)], q))
        known = ask("known commands, wording kept out for that command [95]", [])
        while len(known) < count:
            c = rng.choice(w.core)
            t, line = rng.choice(c["tasks"])
            kind = rng.choice(["define", "which"])
            s = wordings.choose(rng, rng.choice(w.asker.t[kind]))
            if make_data.held_out(s, c["name"] if kind == "define" else t):
                known.append(self.about(w, kind, s, c, t))
        for kind in ("which", "define"):
            new = ask(f"known commands, new template, {kind} [70]", [])
            while len(new) < count:
                c = rng.choice(w.core)
                t, _ = rng.choice(c["tasks"])
                new.append(self.about(w, kind, rng.choice(held[kind]), c, t))
        unknown = ask("unknown commands refused [80]", [])
        for _ in range(count):
            q = w.unknown()[0]
            unknown.append((prompt_of(q), refuses, q))
        refused = ask("unknown commands refused, new template", [])
        for _ in range(count):
            q = rng.choice(held["define"]).replace("{c}", wordings.unknown_command(rng, w.known, sorted(w.names)[:400]))
            refused.append((prompt_of(q), refuses, q))
        think = ask("known commands, thinking on", [])
        for _ in range(count):
            c = rng.choice(w.core)
            t, _ = rng.choice(c["tasks"])
            kind = rng.choice(["define", "which"])
            q = self.about(w, kind, wordings.choose(rng, rng.choice(w.asker.t[kind])), c, t)
            think.append((prompt_of(q[2], thinking=True), lambda a, j=q[1]: "</think>" in a and j(a.split("</think>", 1)[1]), q[2]))

    @staticmethod
    def about(w, kind, s, c, t):
        if kind == "define":
            q = s.replace("{c}", c["name"])
            want = words(c["does"])
            return prompt_of(q), lambda a: first_command(a) == c["name"] and len(words(a.split("Example")[0]) & want) >= 0.6 * len(want), q
        from intents import third
        q = w.asker.fill(s, {"t": t, "g": wordings.gerund(t), "v3": third(t)})
        right = {x["name"] for x in w.core if any(y[0] == t for y in x["tasks"])}
        return prompt_of(q), lambda a: first_command(a) in right, q


def refuses(a):
    return a.startswith("I do not know") or a.startswith("我不知道")


def is_json(a):
    try:
        json.loads(a)
        return True
    except ValueError:
        return False


class Torch:
    """greedy answers by running the whole prefix again for every token: slow, simple, many prompts at once"""

    def __init__(self, folder, master):
        import torch
        import engram_map, model, storage
        from tokenizers import Tokenizer
        self.torch, self.model = torch, model
        self.dev = "cuda" if torch.cuda.is_available() else "cpu"
        self.tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.enc = make_data.Encoder(self.tok)
        self.net = model.Model(self.config, engram_map.token_map(self.tok)[0], self.dev)
        P, self.bias = storage.load_master(master, self.dev)
        with torch.no_grad():
            self.W = self.net.prepare(P)
        self.net.W = self.W

    def step(self, ids, n):
        """ids [B, T], n [B] lengths -> next id of each"""
        t = self.torch
        B, T = ids.shape
        at = t.arange(T, device=self.dev)
        doc = (at[None] >= n[:, None]).long()
        pos = t.where(doc > 0, at - n[:, None], at[None])
        h, _, _ = self.net.backbone(self.W, self.bias, ids, doc, pos)
        h = h.view(B, T, -1)[t.arange(B, device=self.dev), n - 1]
        return (h.float() @ self.W["head"].float().t()).argmax(-1)

    def answers(self, prompts, most=96):
        t = self.torch
        out = [None] * len(prompts)
        with t.no_grad():
            seqs = [self.enc.pieces(p)[0] for p in prompts]
            order = sorted(range(len(seqs)), key=lambda i: len(seqs[i]))
            for k in range(0, len(order), 512):
                part = order[k:k + 512]
                n = t.tensor([len(seqs[i]) for i in part], device=self.dev)
                start, live = n.clone(), t.ones(len(part), dtype=t.bool, device=self.dev)
                T = -(-(int(n.max()) + most) // 128) * 128
                ids = t.full((len(part), T), 2, dtype=t.long, device=self.dev)
                for r, i in enumerate(part):
                    ids[r, :len(seqs[i])] = t.tensor(seqs[i], device=self.dev)
                for _ in range(most):
                    w = min(T, -(-(int(n.max()) + 1) // 128) * 128)
                    nxt = self.step(ids[:, :w], n)
                    live &= nxt != 1
                    if not bool(live.any()):
                        break
                    ids[live, n[live]] = nxt[live]
                    n = n + live
                for r, i in enumerate(part):
                    out[i] = self.tok.decode(ids[r, start[r]:n[r]].tolist(), skip_special_tokens=False)
        return out

    def perplexity(self, path):
        import train
        t = self.torch
        z, out = np.load(path), {}
        with t.no_grad():
            for k in ("chat", "prose"):
                tok, doc, wt = (t.as_tensor(z[f"{n}_{k}"].astype(np.int16)).to(self.dev) for n in ("tok", "doc", "wt"))
                loss = total = 0.0
                for i in range(0, len(tok), 64):
                    ids, d = tok[i:i + 64].long(), doc[i:i + 64].long()
                    h, _, _ = self.net.backbone(self.W, self.bias, ids, d, train.positions(d))
                    logp = t.log_softmax((h.float() @ self.W["head"].float().t()).view(*ids.shape, -1)[:, :-1], -1)
                    w = ((d[:, 1:] == d[:, :-1]) & (wt[i:i + 64, 1:] == 10)).float()
                    loss -= float((logp.gather(-1, ids[:, 1:, None])[..., 0] * w).sum())
                    total += float(w.sum())
                out[k] = loss / max(total, 1)
        return out


def main():
    ap = argparse.ArgumentParser()
    for a in ("model", "tldr", "packages"):
        ap.add_argument("--" + a, required=True)
    ap.add_argument("--master"), ap.add_argument("--hadal"), ap.add_argument("--valid")
    ap.add_argument("--count", type=int, default=200)
    ap.add_argument("--wrong", type=int, default=4, help="show this many wrong answers of each set")
    a = ap.parse_args()
    if a.hadal:
        from engine import Engine
        back = Engine(a.hadal, a.model)
    else:
        back = Torch(a.model, a.master)
    w = make_data.world(a.tldr, a.packages, random.Random(77))
    sets = Sets(w, 78, a.count).sets
    if a.valid and not a.hadal:
        for k, v in back.perplexity(a.valid).items():
            print(f"held-out {k}: loss {v:.4f}, perplexity {np.exp(v):.3f}", flush=True)
    known = {}
    for name, items in sets.items():
        t0 = time.time()
        todo = [x for x in items if repr(x[0]) not in known]
        for x, ans in zip(todo, back.answers([x[0] for x in todo])):
            known[repr(x[0])] = ans
        ok = [x[1](known[repr(x[0])]) for x in items]
        print(f"{100 * sum(ok) / len(ok):5.1f} %  {name} ({len(ok)}; {time.time() - t0:.0f} s)", flush=True)
        for x, _ in [(x, o) for x, o in zip(items, ok) if not o][:a.wrong]:
            print(f"         {x[2]!r} -> {known[repr(x[0])]!r}")
    chats = wordings.lines("chats.txt")
    for q, ans in zip(chats, back.answers([prompt_of(q) for q in chats])):
        print(f"> {q}\n{ans}\n")


if __name__ == "__main__":
    main()
