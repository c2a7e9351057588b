#!/usr/bin/env python3
"""Writes a mixed corpus as JSON lines {"text": ...}: English, Chinese, code, emoji, combining marks, digits, runs of white space,
controls and any other character. corpus.py SEED BYTES. The same lines for the same arguments."""
import json
import random
import sys

WORDS = ("the of and a to in is you that it he was for on are with as I his they be at one have this from or had by hot word but what some we can out other were "
         "all there when up use your how said an each she which do their time if will way about many then them write would like so these her long make thing see "
         "him two has look more day could go come did number sound no most people my over know water than call first who may down side been now find don't can't "
         "it's we'll tokenizer attention kernel latency Throughput GPU HTTP_Server camelCaseName snake_case_name CONSTANT naïve café Zürich Ελληνικά русский עברית العربية हिन्दी ไทย").split()
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想已通并提直题党程展五果料象员革位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海口东导器压志世金增争济阶油思术极交受联什认六共权收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张信马节话米整空元况今集温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青省列习响约支般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型眼王按格养易置派层片始却专状育厂京识适属圆包火住调满县局照参红细引听该铁价严"
KANA = "あいうえおかきくけこさしすせそカキクケコサシスセソーゝ゛゜・ヿ゠"
EMOJI = ["😀", "👨‍👩‍👧", "🇩🇪", "❤️", "✅", "👍🏽", "🚀", "☃", "©", "™", "№", "½", "Ⅷ", "²"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\x0b", "\x0c", " \t \r\n\r\n  ", "\u200b", "\ufeff", "\u180e"]
CODE = ["for (int i = 0; i < n; ++i) {", "    return x->y[0] != nullptr;\n", "def f(self, *args, **kwargs):\n", "\treturn {'a': 1, \"b\": [2, 3]}\n", "#include <vector>\n",
        "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';", "https://example.org/a/b?c=d&e=%20f#g", "/* --- */", "===>", "<div class=\"x\">&nbsp;</div>", "a\\tb\\n", "0xDEADBEEF", "3.14159e-10", "`code`", "```cpp\n"]


def piece(r):
    kind = r.randrange(20)
    if kind < 6:
        return " ".join(r.choice(WORDS) for _ in range(r.randrange(1, 12)))
    if kind < 9:
        return "".join(r.choice(HAN) for _ in range(r.randrange(1, 20))) + r.choice(["，", "。", "！", "", "、"])
    if kind < 11:
        return r.choice(CODE)
    if kind == 11:
        return r.choice(EMOJI) * r.randrange(1, 4)
    if kind < 14:
        return "".join(r.choice(SPACES) for _ in range(r.randrange(1, 5)))
    if kind == 14:
        return "".join(r.choice("0123456789٣५㊿⑦") for _ in range(r.randrange(1, 14)))
    if kind == 15:
        return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randrange(1, 8))) + r.choice(["", "abc", "X", " "])
    if kind == 16:
        return "".join(r.choice(KANA) for _ in range(r.randrange(1, 8)))
    if kind == 17:
        return "".join(chr(c) for c in (r.randrange(0x20) if r.random() < .5 else r.randrange(0x300, 0x370) for _ in range(r.randrange(1, 5))))
    if kind == 18:
        out = ""
        while len(out) < 4:
            c = r.randrange(0x110000) if r.random() < .3 else r.randrange(0x3000)
            if not 0xD800 <= c < 0xE000:
                out += chr(c)
        return out
    return r.choice("aeiou0 \n#é") * r.randrange(1, 200)


def main():
    seed, size = sys.argv[1], int(sys.argv[2])
    r = random.Random(seed)
    written = 0
    while written < size:
        text = "".join(piece(r) + r.choice(["", " ", " ", "\n"]) for _ in range(r.randrange(1, 200)))
        written += len(text.encode())
        print(json.dumps({"text": text}, ensure_ascii=False))


if __name__ == "__main__":
    main()
