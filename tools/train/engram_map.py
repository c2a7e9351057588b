"""Engram addressing from config and tokenizer: the compressed token map, multipliers, primes and offsets."""
import math
import numpy as np


def token_map(tokenizer):
    """ids -> compressed ids (np.int64) and their number; tokenizer: tokenizers.Tokenizer"""
    from tokenizers import Regex, normalizers as N
    mark = "\ue000"
    norm = N.Sequence([N.NFKC(), N.NFD(), N.StripAccents(), N.Lowercase(), N.Replace(Regex("[ \t\r\n]+"), " "),
                       N.Replace(Regex("^ $"), mark), N.Strip(), N.Replace(mark, " ")])
    seen, out = {}, []
    for i in range(tokenizer.get_vocab_size(with_added_tokens=True)):
        text = tokenizer.decode([i], skip_special_tokens=False)
        key = tokenizer.id_to_token(i) if "\ufffd" in text else (norm.normalize_str(text) or text)
        out.append(seen.setdefault(key, len(seen)))
    return np.array(out, np.int64), len(seen)


def _next_prime(n, used):
    n += 1
    while n < 2 or n in used or any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n += 1
    used.add(n)
    return n


def primes(t):
    """layer -> its bucket sizes, column by column (n-gram size, then head)"""
    used, out = set(), {}
    for layer in t["engram_layer_ids"]:
        cols = []
        for _ in range(t["engram_max_ngram_size"] - 1):
            p = t["engram_vocab_size"] - 1
            for _ in range(t["engram_n_heads"]):
                p = _next_prime(p, used)
                cols.append(p)
        out[layer] = np.array(cols, np.int64)
    return out


def multipliers(t, layer):
    bound = max(1, ((2**63 - 1) // t["engram_compressed_vocab_size"]) // 2)
    draw = np.random.default_rng(10007 * layer).integers(0, bound, size=t["engram_max_ngram_size"], dtype=np.int64)
    return 2 * draw + 1
