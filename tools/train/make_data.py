#!/usr/bin/env python3
"""Writes training data, tokenizer and config of the demo model.

usage: make_data.py --tldr tldr.jsonl.xz --packages DIR --model MODEL_DIR --out DATA.npz [--chats 300000]
DIR: wordnet-base and dict-vera unpacked with `dpkg -x` (fetch_packages.sh does it). Also writes held-out texts
beside DATA.npz for evaluate.py.
"""
import argparse, json, os, random
import numpy as np
import config, engram_map, make_tokenizer, recipe_text, sources, wordings
from intents import Intents

LENGTH = 512


def held_out(kind, key):
    """facts in wordings that no training text has: pairs of sums, pairs of wording and task"""
    if kind == "sum":
        a, b = key
        return 10 <= a < 100 and 10 <= b < 100 and sources.stable(f"sum {a} {b}", 16) == 0
    return sources.stable(f"{kind} {key}", 12) == 0


def world(tldr, packages, rng):
    core = wordings.commands()
    pages = sources.tldr(tldr)
    names = {c["name"] for c in core}
    taken = names | {t for t, _ in wordings.pairs("terms.txt")}
    others = sources.others(pages, names, 500)
    return Intents(rng, core, others, sources.chinese(pages, names), sources.wordnet(packages, taken, 300), sources.vera(packages), sources.names(pages), held_out)


class Encoder:
    def __init__(self, tok):
        self.tok = tok
        self.control = {s: tok.token_to_id(s) for s in config.FIRST + [s for s, _ in config.ADDED]}
        self.cache = {}

    def text(self, s):
        """ids of ordinary text with the markup token of tool calls in it"""
        out = []
        for i, part in enumerate(s.split(recipe_text.D)):
            out += [self.control[recipe_text.D]] if i else []
            if part:
                if part not in self.cache:
                    self.cache[part] = self.tok.encode(part, add_special_tokens=False).ids
                    if len(self.cache) > 200000:
                        self.cache.clear()
                        return self.text(s)
                out += self.cache[part]
        return out

    def pieces(self, pieces):
        """render()'s pieces -> ids, weights; neighbouring texts are encoded together, control tokens stand alone"""
        ids, wt, run = [], [], []

        def flush():
            if run:
                text = "".join(t for t, _ in run)
                got = self.text(text)
                ids.extend(got)
                wt.extend([max(w for _, w in run)] * len(got))
                run.clear()

        for t, w in pieces:
            if t in self.control:
                flush()
                ids.append(self.control[t])
                wt.append(w)
            else:
                run.append((t, w))
        flush()
        return ids, wt


def pack(docs, rng):
    """documents -> rows of LENGTH; each document starts at an even place"""
    rng.shuffle(docs)
    docs.sort(key=lambda d: -(len(d[0]) // 32))
    rows, open_rows = [], []
    for ids, wt in docs:
        n = len(ids) + len(ids) % 2
        for r in open_rows:
            if r[0] + n <= LENGTH:
                break
        else:
            r = [0, []]
            open_rows.append(r)
        r[1].append((ids, wt))
        r[0] += n
        if r[0] > LENGTH - 24:
            open_rows.remove(r)
            rows.append(r)
        if len(open_rows) > 60:
            rows.append(open_rows.pop(0))
    rows += open_rows
    tok, doc, w = (np.zeros((len(rows), LENGTH), t) for t in (np.uint16, np.uint8, np.uint8))
    tok[:] = 2
    for i, (_, ds) in enumerate(rows):
        at = 0
        for k, (ids, wt) in enumerate(ds):
            m = len(ids)
            tok[i, at:at + m], w[i, at:at + m] = ids, wt
            end = at + m + m % 2
            doc[i, at:end] = k
            at = end
        doc[i, at:] = len(ds)
    return tok, doc, w


def main():
    ap = argparse.ArgumentParser()
    for a in ("tldr", "packages", "model", "out"):
        ap.add_argument("--" + a, required=True)
    ap.add_argument("--chats", type=int, default=300000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--keep-tokenizer", action="store_true", help="use MODEL_DIR/tokenizer.json as it is")
    a = ap.parse_args()
    rng = random.Random(a.seed)
    w = world(a.tldr, a.packages, rng)
    print(f"{len(w.core)} commands by hand, {len(w.others)} from tldr, {len(w.zh)} in Chinese, {len(w.dictionary)} words, {len(w.acronyms)} acronyms", flush=True)
    manuals = sources.manuals([c["name"] for c in w.core], 16000)
    chats = []
    for _ in range(a.chats):
        msgs, tools, thinking, effort, schema = w.conversation()
        chats.append((recipe_text.render(msgs, tools, thinking, effort, schema), bool(tools)))
    print(f"{len(chats)} conversations, {len(manuals)} manuals", flush=True)
    os.makedirs(a.model, exist_ok=True)
    path = os.path.join(a.model, "tokenizer.json")
    if not a.keep_tokenizer:
        sample = ["".join(t for t, _ in p) for p, tools in chats[:60000] if not tools] + ["".join(t for t, _ in p) for p, tools in chats[:3000] if tools]
        sample = [s.replace(c, "\n") for s in sample for c in ["｜"]]
        tok = make_tokenizer.train(sample + [m for _, m in manuals])
        tok.save(path)
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(path)
    cfg = config.make_config(tok)
    with open(os.path.join(a.model, "config.json"), "w") as f:
        json.dump(cfg, f, indent=2)
        f.write("\n")
    enc = Encoder(tok)
    chat_docs = [enc.pieces(p) for p, _ in chats]
    long = sum(len(d[0]) > LENGTH for d in chat_docs)
    chat_docs = [d for d in chat_docs if len(d[0]) <= LENGTH]
    prose = []
    for name, text in manuals:
        ids = [0] + tok.encode(text, add_special_tokens=False).ids + [1]
        for k in range(0, len(ids), 400):
            part = ids[k:k + 400]
            prose.append((part, [10] * len(part)))
    rng.shuffle(chat_docs)
    rng.shuffle(prose)
    cut, pcut = len(chat_docs) // 100, len(prose) // 50
    valid = chat_docs[:min(cut, 1500)], prose[:pcut]
    parts = [pack(prose[pcut:], rng), pack(chat_docs[cut:], rng)]
    for k, (p, n) in enumerate(zip(parts, ("prose", "chat"))):
        print(n, p[0].shape[0], "rows,", int((p[0] != 2).sum()) / 1e6, "M tokens", flush=True)
    tm, _ = engram_map.token_map(tok)
    np.savez_compressed(a.out, tok=np.concatenate([p[0] for p in parts]), doc=np.concatenate([p[1] for p in parts]), wt=np.concatenate([p[2] for p in parts]),
                        group=np.concatenate([np.full(len(p[0]), k, np.uint8) for k, p in enumerate(parts)]), token_map=tm)
    vt = [pack(v, rng) for v in valid]
    np.savez_compressed(a.out.replace(".npz", ".valid.npz"), **{f"{n}_{k}": x for k, v in (("prose", vt[1]), ("chat", vt[0])) for n, x in zip(("tok", "doc", "wt"), v)})
    print(f"{long} conversations too long; mean length {np.mean([len(d[0]) for d in chat_docs]):.1f}; unused entries "
          f"{config.VOCAB - len(np.unique(np.concatenate([p[0] for p in parts])))}", flush=True)


if __name__ == "__main__":
    main()
