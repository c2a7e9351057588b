#!/usr/bin/env python3
"""Compares this model code with a numpy oracle on an exported checkpoint.

usage: check_oracle.py ORACLE_DIR MASTER_DIR MODEL_DIR [--prompts FILE.json]   (ORACLE_DIR holds spec_ref.py)
Prints the largest logit difference and the arg-max agreement for each prompt, and one draft pass.
"""
import argparse, json, os, sys
import numpy as np
import torch
import engram_map, model, storage


def torch_logits(net, W, bias, ids, t):
    n, w = len(ids), t["sliding_window"]
    T = -(-n // w) * w
    tok = torch.zeros(1, T, dtype=torch.long)
    tok[0, :n] = torch.as_tensor(ids)
    doc = (torch.arange(T) >= n).long()[None]
    pos = torch.arange(T)[None]
    pos = torch.where(doc > 0, pos - n, pos)
    h, taps, _ = net.backbone(W, bias, tok, doc, pos)
    return model.lin32(h, W["head"])[:n].numpy(), taps, pos


def main():
    ap = argparse.ArgumentParser()
    for a in ("oracle", "master", "folder"):
        ap.add_argument(a)
    ap.add_argument("--prompts")
    a = ap.parse_args()
    sys.path.insert(0, a.oracle)
    from spec_ref import Ref
    from tokenizers import Tokenizer
    model.EXACT = True
    torch.set_grad_enabled(False)
    t = (config := json.load(open(os.path.join(a.folder, "config.json"))))["text_config"]
    tm, n = engram_map.token_map(Tokenizer.from_file(os.path.join(a.folder, "tokenizer.json")))
    assert n == t["engram_compressed_vocab_size"], n
    ref = Ref(a.folder)
    net = model.Model(config, tm)
    P, bias = storage.load_master(a.master)
    W = net.prepare(P)
    rng = np.random.default_rng(5)
    prompts = json.load(open(a.prompts)) if a.prompts else [rng.integers(3, t["vocab_size"], k).tolist() for k in (1, 7, 60, 300)]
    for ids in prompts:
        want, info = ref.forward(ids)
        got, taps, pos = torch_logits(net, W, bias, ids, t)
        d = np.abs(want - got)
        first = int(np.argmax(d.max(1) > 1e-3)) if (d.max(1) > 1e-3).any() else len(ids)
        print(f"{len(ids)} tokens: first row that differs {first}, deviation of logits {want.std():.3f}, difference mean {d.mean():.5f} max {d.max():.4f} median row max "
              f"{np.median(d.max(1)):.5f}, other arg-max {(want.argmax(1) != got.argmax(1)).sum()}", flush=True)
    Pn = len(ids) - 2
    want = ref.draft(info["taps"], ids[Pn + 1], Pn)
    full = torch.zeros(taps.shape[0], taps.shape[1], dtype=torch.bfloat16)
    full[:len(ids)] = torch.as_tensor(info["taps"]).to(torch.bfloat16)
    at = torch.arange(pos.shape[1])
    allowed = ((at <= Pn) & (at > Pn - t["sliding_window"]))[None, None]
    x, _ = net.draft_hidden(W, bias, full, torch.tensor([[ids[Pn + 1]]]), pos, torch.tensor([[Pn + 1]]), allowed)
    tok, out = ids[Pn + 1], []
    base = []
    for i in range(t["dspark_block_size"]):
        e = W["markov_embed"][tok][None]
        logits, z = model.draft_head(x[i:i + 1], W["draft_norm"], W["head"], e, W["markov_head"], W["confidence"], t["rms_norm_eps"])
        base.append(logits[0].numpy())
        out.append(float(z[0]))
        tok = int(logits.argmax())
    d = np.abs(np.stack(base) - want["logits"])
    print(f"draft after {Pn}: difference mean {d.mean():.5f} max {d.max():.4f}, confidence {np.abs(np.array(out) - want['confidence']).max():.5f}")


if __name__ == "__main__":
    main()
