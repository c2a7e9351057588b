"""Master weights in parts (bf16), and the released layout of a checkpoint."""
import glob, json, os
import torch
import numerics as q
import params

PARTS, SHARD_BYTES = 4, 14_000_000


def save_master(folder, P, bias):
    parts, sizes = [{} for _ in range(PARTS)], [0] * PARTS
    for n, p in sorted(P.items(), key=lambda kv: -kv[1].numel()):
        rows = [p.detach()]
        if p.numel() > 2_000_000:
            rows = p.detach().chunk(4, 0)
        for i, r in enumerate(rows):
            k = sizes.index(min(sizes))
            parts[k][f"{n}#{i}"] = r.to(torch.bfloat16).cpu().clone()
            sizes[k] += r.numel()
    parts[0] |= {n: b.cpu() for n, b in bias.items()}
    for k, part in enumerate(parts):
        torch.save(part, os.path.join(folder, f"weights.{k}.pt"))


def load_master(folder, device="cpu"):
    raw = {}
    for f in glob.glob(os.path.join(folder, "weights.*.pt")):
        raw |= torch.load(f, map_location=device)
    bias = {n: raw.pop(n) for n in ("bias", "draft_bias")}
    names = {n.split("#")[0] for n in raw}
    P = {n: torch.cat([raw[k].float() for k in sorted((k for k in raw if k.split("#")[0] == n), key=lambda k: int(k.split("#")[1]))])
         for n in names}
    return P, bias


def tensors(t, P, bias):
    """released name -> (dtype, shape, bytes as a uint8 tensor)"""
    out = {}

    def put(name, dtype, shape, raw):
        out[name] = (dtype, list(shape), raw.contiguous().view(torch.uint8).flatten())

    def fp8(name, w, rows=32):
        b, s = q.encode_fp8(w, rows)
        put(name + ".weight", "F8_E4M3", b.shape, b)
        put(name + ".scale", "F8_E8M0", s.shape, s)

    def fp4(name, w):
        b, s = q.encode_fp4(w)
        put(name + ".weight", "I8", b.shape, b)
        put(name + ".scale", "F8_E8M0", s.shape, s)

    bf16 = lambda name, w: put(name, "BF16", w.shape, w.to(torch.bfloat16))
    f32 = lambda name, w: put(name, "F32", w.shape, w.float())
    L, S, G = t["num_hidden_layers"], t["num_nextn_predict_layers"], t["o_groups"]
    for n in ("embed", "norm", "head"):
        bf16(n + ".weight", P[n])
    for i in range(L + S):
        p, d, k = (f"layers.{i}.", "", i) if i < L else (f"mtp.{i - L}.", "draft_", i - L)
        for n in ("wq_a", "wq_b", "wkv", "wo_b"):
            fp8(p + "attn." + n, P[n][i])
        fp8(p + "attn.wo_a", P["wo_a"][i * G:(i + 1) * G].flatten(0, 1))
        for n in ("q_norm", "kv_norm"):
            bf16(p + f"attn.{n}.weight", P[n][i])
        f32(p + "attn.attn_sink", P["attn_sink"][i])
        for n in ("attn_norm", "ffn_norm"):
            bf16(p + n + ".weight", P[n][i])
        for s in ("attn", "ffn"):
            f32(p + f"hc_{s}_fn", P[f"hc_{s}_fn"][i].to(torch.bfloat16))  # trained as bf16 values
            f32(p + f"hc_{s}_base", P[f"hc_{s}_base"][i])
            f32(p + f"hc_{s}_scale", P[f"hc_{s}_scale"][i])
        bf16(p + "ffn.gate.weight", P[d + "gate"][k])
        for n in ("bias", "bias_vl"):
            f32(p + "ffn.gate." + n, bias[d + "bias"][k])
        for n in ("w1", "w3", "w2"):
            fp8(p + "ffn.shared_experts." + n, P["shared_" + n][i])
            for e in range(P[d + n].shape[1]):
                fp4(p + f"ffn.experts.{e}.{n}", P[d + n][k, e])
    gated = [l for l in t["kv_source_layer_ids"] if t["compress_ratios"][l] > 1]
    for i, l in enumerate(t["kv_source_layer_ids"]):
        p = f"layers.{l}.attn."
        bf16(p + "compressor.wkv.weight", P["comp_wkv"][i])
        bf16(p + "compressor.norm.weight", P["comp_norm"][i])
        if l in gated:
            bf16(p + "compressor.wgate.weight", P["comp_wgate"][gated.index(l)])
        bf16(p + "indexer.wk.weight", P["idx_wk"][i])
        bf16(p + "indexer.k_norm.weight", P["idx_k_norm"][i])
    for i, l in enumerate(t["index_source_layer_ids"]):
        fp8(f"layers.{l}.attn.indexer.wq_b", P["idx_wq_b"][i])
        bf16(f"layers.{l}.attn.indexer.weights_proj.weight", P["idx_w"][i])
    for i, l in enumerate(t["engram_layer_ids"]):
        p = f"layers.{l}.engram."
        fp8(p + "embed", P[f"engram_table_{i}"], rows=1)
        fp8(p + "wkv", P["engram_wkv"][i])
        bf16(p + "q_weight", P["engram_q"][i])
        bf16(p + "k_weight", P["engram_k"][i])
    last = f"mtp.{S - 1}."
    fp8("mtp.0.main_proj", P["main_proj"][0])
    bf16("mtp.0.main_norm.weight", P["main_norm"])
    bf16(last + "norm.weight", P["draft_norm"])
    bf16(last + "markov_head.embed.weight", P["markov_embed"])
    bf16(last + "markov_head.head.weight", P["markov_head"])
    bf16(last + "confidence_head.proj.weight", P["confidence"])
    return out


def write_checkpoint(folder, t, P, bias):
    """model-0000i-of-0000n.safetensors and their index"""
    os.makedirs(folder, exist_ok=True)
    for f in glob.glob(os.path.join(folder, "model*.safetensors*")):
        os.remove(f)
    shards, size = [{}], 0
    for n, v in tensors(t, P, bias).items():
        if size + v[2].numel() > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][n] = v
        size += v[2].numel()
    weight_map, total = {}, 0
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        head, at = {}, 0
        for n, (dtype, shape, raw) in shard.items():
            head[n] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + raw.numel()]}
            at += raw.numel()
            weight_map[n] = name
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for _, _, raw in shard.values():
                f.write(raw.numpy().tobytes())
        total += at
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, separators=(",", ":"))
    return total
