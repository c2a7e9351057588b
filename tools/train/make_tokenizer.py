"""The demo's byte-level BPE: the published pre-tokenizer, one token per digit, added tokens spelt as in V4.1."""
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers as pt, processors, trainers
import config

CJK = "[一-龥぀-ゟ゠-ヿ]+"
WORDS = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
         "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")


def pre_tokenizer(digits):
    return pt.Sequence([pt.Split(Regex(digits), "isolated"), pt.Split(Regex(CJK), "isolated"), pt.Split(Regex(WORDS), "isolated"),
                        pt.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(texts):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizer(r"\p{N}")  # no digit ever meets another: every digit stays one token
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    first = [AddedToken(s, special=True, normalized=False) for s in config.FIRST]
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=config.N_MERGED, special_tokens=first, show_progress=False,
                                                       initial_alphabet=pt.ByteLevel.alphabet()))
    tok.add_tokens([AddedToken(s, special=sp, normalized=False) for s, sp in config.ADDED])
    assert tok.get_vocab_size(with_added_tokens=True) == config.VOCAB, tok.get_vocab_size()
    tok.pre_tokenizer = pre_tokenizer(r"\p{N}{1,3}")  # as published
    return tok
