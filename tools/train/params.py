"""Every trained tensor: stacked over layers, with its storage format, optimiser group and first values."""
import math
import torch

# format: fp8 (32x32 tiles), fp4 (rows of 32), rows8 (Engram table rows), bf16, f32
# group: muon (matrices), adam (embedding, head, norms), slow (mixing, router, sinks, index), engram (tables)


def table(t):
    """name -> (shape, format, group, init); init: ("normal", std), ("fill", x) or ("zero",)"""
    H, D, NH, Q = t["hidden_size"], t["head_dim"], t["num_attention_heads"], t["q_lora_rank"]
    G, R, I, V, HC = t["o_groups"], t["o_lora_rank"], t["moe_intermediate_size"], t["vocab_size"], t["hc_mult"]
    L, S, E, DE = t["num_hidden_layers"], t["num_nextn_predict_layers"], t["n_routed_experts"], t["dspark_n_routed_experts"]
    IH, ID, K = t["index_n_heads"], t["index_head_dim"], len(t["kv_source_layer_ids"])
    X, N, M = len(t["index_source_layer_ids"]), L + S, (2 + HC) * HC
    gates = sum(t["compress_ratios"][l] > 1 for l in t["kv_source_layer_ids"])
    cols, ed = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"], t["engram_head_dim"]
    rank = t["dspark_markov_rank"]
    out = {}

    def put(name, shape, fmt, group, init=None):
        out[name] = (shape, fmt, group, init or ("normal", 0.7 / math.sqrt(shape[-1])))

    put("embed", (V, H), "bf16", "adam", ("normal", 0.5))
    put("head", (V, H), "bf16", "adam", ("normal", 0.02))
    put("norm", (H,), "bf16", "adam", ("fill", 1.0))
    put("wq_a", (N, Q, H), "fp8", "muon")
    put("wq_b", (N, NH * D, Q), "fp8", "muon")
    put("wkv", (N, D, H), "fp8", "muon")
    put("wo_a", (N * G, R, NH * D // G), "fp8", "muon")
    put("wo_b", (N, H, G * R), "fp8", "muon", ("normal", 0.2 / math.sqrt(G * R)))
    put("q_norm", (N, Q), "bf16", "adam", ("fill", 1.0))
    put("kv_norm", (N, D), "bf16", "adam", ("fill", 1.0))
    put("attn_sink", (N, NH), "f32", "slow", ("fill", 0.0))
    put("attn_norm", (N, H), "bf16", "adam", ("fill", 1.0))
    put("ffn_norm", (N, H), "bf16", "adam", ("fill", 1.0))
    for k in ("attn", "ffn"):
        put(f"hc_{k}_fn", (N, M, HC * H), "f32", "slow", ("normal", 0.002))
        put(f"hc_{k}_base", (N, M), "f32", "slow", ("hc", HC))
        put(f"hc_{k}_scale", (N, 3), "f32", "slow", ("fill", 0.1))
    for p, n, e in (("", L, E), ("draft_", S, DE)):
        put(p + "gate", (n, e, H), "bf16", "slow", ("normal", 0.02))
        put(p + "w1", (n, e, I, H), "fp4", "muon")
        put(p + "w3", (n, e, I, H), "fp4", "muon")
        put(p + "w2", (n, e, H, I), "fp4", "muon", ("normal", 0.2 / math.sqrt(I)))
    put("shared_w1", (N, I, H), "fp8", "muon")
    put("shared_w3", (N, I, H), "fp8", "muon")
    put("shared_w2", (N, H, I), "fp8", "muon", ("normal", 0.2 / math.sqrt(I)))
    put("comp_wkv", (K, D, H), "bf16", "muon")
    put("comp_wgate", (gates, D, H), "bf16", "muon", ("normal", 0.01))
    put("comp_norm", (K, D), "bf16", "adam", ("fill", 1.0))
    put("idx_wk", (K, ID, D), "bf16", "slow")
    put("idx_k_norm", (K, ID), "bf16", "adam", ("fill", 1.0))
    put("idx_wq_b", (X, IH * ID, Q), "fp8", "slow")
    put("idx_w", (X, IH, H), "bf16", "slow")
    for i, rows in enumerate(t["engram_num_embeddings"]):
        put(f"engram_table_{i}", (rows, ed), "rows8", "engram", ("normal", 0.02))
    n = len(t["engram_layer_ids"])
    put("engram_wkv", (n, H * (HC + 1), cols * ed), "fp8", "muon")
    put("engram_q", (n, HC, H), "bf16", "adam", ("fill", 1.0))
    put("engram_k", (n, HC, H), "bf16", "adam", ("fill", 1.0))
    put("main_proj", (1, H, len(t["dspark_target_layer_ids"]) * H), "fp8", "muon")
    put("main_norm", (H,), "bf16", "adam", ("fill", 1.0))
    put("draft_norm", (H,), "bf16", "adam", ("fill", 1.0))
    put("markov_embed", (V, rank), "bf16", "adam", ("normal", 0.1))
    put("markov_head", (V, rank), "bf16", "adam", ("normal", 0.001))
    put("confidence", (1, H + rank), "bf16", "adam", ("normal", 0.01))
    return out


DRAFT_ONLY = ("draft_", "main_", "markov_", "confidence")


def create(t, seed=0, device="cpu"):
    gen = torch.Generator().manual_seed(seed)
    out = {}
    for name, (shape, _, _, init) in table(t).items():
        if init[0] == "normal":
            w = torch.randn(shape, generator=gen) * init[1]
        elif init[0] == "fill":
            w = torch.full(shape, init[1])
        else:  # mixing base: pre 1/n, post 1, comb near the identity
            hc = init[1]
            row = torch.cat([torch.full((hc,), -math.log(hc - 1.0)), torch.zeros(hc), 4.0 * torch.eye(hc).flatten()])
            w = row.expand(shape).clone()
        out[name] = w.to(device).requires_grad_()
    return out


def router_biases(t, device="cpu"):
    return {"bias": torch.zeros(t["num_hidden_layers"], t["n_routed_experts"], device=device),
            "draft_bias": torch.zeros(t["num_nextn_predict_layers"], t["dspark_n_routed_experts"], device=device)}
