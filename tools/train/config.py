"""Shape of the demo model: the config.json that goes with it, and its vocabulary of added tokens."""
import copy
import engram_map

VOCAB = 4096
FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]  # ids 0, 1, 2
# Spelt as in DeepSeek-V4.1; they take the last ids. True: "special" in tokenizer.json, that is left out of decoded text.
ADDED = [("<｜System｜>", False), ("<｜fim▁hole｜>", False), ("<｜fim▁begin｜>", False), ("<｜fim▁end｜>", False),
         ("<｜User｜>", False), ("<｜Assistant｜>", False), ("<|EOT|>", False), ("<think>", False), ("</think>", False),
         ("｜DSML｜", False), ("<｜latest_reminder｜>", False), ("<｜action｜>", False), ("<｜query｜>", False),
         ("<｜authority｜>", False), ("<｜domain｜>", False), ("<｜title｜>", False), ("<｜read_url｜>", True),
         ("<｜deepseek_image｜>", False)]
N_MERGED = VOCAB - len(ADDED)  # ids below this are FIRST, bytes and merges


def added_id(text):
    return N_MERGED + [a for a, _ in ADDED].index(text)


TEXT = {
    "model_type": "deepseek_v41_text", "vocab_size": VOCAB, "hidden_size": 256, "moe_intermediate_size": 96,
    "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 64, "qk_rope_head_dim": 16,
    "q_lora_rank": 128, "o_lora_rank": 128, "o_groups": 2, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-20,
    "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
    "tie_word_embeddings": False, "max_position_embeddings": 4096, "rope_theta": 10000,
    "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 256},
    "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 2, "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.5, "sliding_window": 128,
    "compress_ratios": [0] + [2] * 5 + [1] * 6 + [0] * 3, "compress_rope_theta": 160000,
    "kv_source_layer_ids": [1, 3, 6], "index_source_layer_ids": [1, 3, 6, 9],
    "index_n_heads": 8, "index_head_dim": 32, "index_topk": 128,
    "candidate_source_layer_id": 6, "candidate_topk_blocks": 32, "candidate_block_size": 8,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06,
    "engram_layer_ids": [1, 4], "engram_num_embeddings": [], "engram_max_ngram_size": 4, "engram_vocab_size": 3500,
    "engram_n_heads": 2, "engram_head_dim": 32, "engram_pad_token_id": 2, "engram_compressed_vocab_size": 0,
    "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": added_id("<｜System｜>"),
    "dspark_target_layer_ids": [9, 10, 11], "dspark_markov_rank": 32, "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2,
}


def make_config(tokenizer):
    t = copy.deepcopy(TEXT)
    t["engram_compressed_vocab_size"] = engram_map.token_map(tokenizer)[1]
    t["engram_num_embeddings"] = [int(p.sum()) for p in engram_map.primes(t).values()]
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
        "transformers_version": "5.6.0", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        "image_token_id": added_id("<｜deepseek_image｜>"),
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                                "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
        "text_config": t,
    }
