#!/usr/bin/env python3
"""Grammars against matchers that we did not write: Python's re, jsonschema with the JSON-Schema-Test-Suite of its sources, lark.

    grammar_test.py ORACLE [PART...]      parts: regex schema suite lark (default: all)

ORACLE is the program grammar_oracle. Whatever a mask lets through must match; texts are accepted if and only if the matcher
accepts them (regular expressions), or only if it does (schemas, where ours has fewer texts)."""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs

ORACLE = sys.argv[1]
SUITE = runs.ROOT / "build/recipe"


def ask(questions, *arguments):
    done = subprocess.run([ORACLE, *arguments], input="".join(json.dumps(q) + "\n" for q in questions), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(questions)
    return answers


# ---- regular expressions: ours and the same in Python's spelling ----

SPACE = "\\t-\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
LETTERS = "ab01_ -é雨😀.\t\n"


def atom(r, depth):
    kind = r.randrange(12)
    if kind < 5:
        c = r.choice(LETTERS)
        return (re.escape(c) if c not in "é雨😀_ab01" else c,) * 2
    if kind == 5:
        return ".", "[^\\n\\r\\u2028\\u2029]"
    if kind == 6:
        return r.choice([("\\d", "[0-9]"), ("\\w", "[0-9A-Za-z_]"), ("\\W", "[^0-9A-Za-z_]"), ("\\D", "[^0-9]"), ("\\s", "[%s]" % SPACE), ("\\S", "[^%s]" % SPACE)])
    if kind < 9 or depth > 3:
        items = [r.choice([("a", "a"), ("0-9", "0-9"), ("a-c", "a-c"), ("é", "é"), ("\\s", SPACE), ("\\w", "0-9A-Za-z_"), ("\\-", "\\-"), ("雨-龠", "雨-龠"), ("\\]", "\\]")])
                 for _ in range(r.randrange(1, 4))]
        negate = r.choice(["", "", "^"])
        return "[%s%s]" % (negate, "".join(i[0] for i in items)), "[%s%s]" % (negate, "".join(i[1] for i in items))
    inner = expression(r, depth + 1)
    return r.choice(["(%s)", "(?:%s)"]) % inner[0], "(?:%s)" % inner[1]


def expression(r, depth=0):
    branches = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        ours, theirs = "", ""
        for _ in range(r.randrange(0 if depth else 1, 5)):
            a, b = atom(r, depth)
            low = r.randrange(3)
            times = r.choice(["", "", "", "*", "+", "?", "{%d}" % low, "{%d,}" % low, "{%d,%d}" % (low, low + r.randrange(3))])
            if a.startswith("(") and re.search("[*+,]", b):  # re would take exponential time
                times = r.choice(["", "", "?"])
            ours += a + times + (r.choice(["", "?"]) if times else "")
            theirs += b + times
        branches.append((ours, theirs))
    return "|".join(b[0] for b in branches), "|".join(b[1] for b in branches)


def near(r, text):
    """A text that differs a little."""
    at = r.randrange(len(text) + 1)
    return r.choice([text[:at] + r.choice(LETTERS) + text[at:], text[:at] + text[at + 1:], text[:at] + r.choice(LETTERS) + text[at + 1:]])


def test_regex(n=1200):
    r = random.Random(5)
    cases = [expression(r) for _ in range(n)]
    questions = [{"kind": "regex", "text": ours, "walks": 4, "tokens": 12, "seed": i} for i, (ours, _) in enumerate(cases)]
    first = ask(questions)
    n_texts = n_yes = n_refused = 0
    for question, answer, (_, theirs) in zip(questions, first, cases):
        if "error" in answer:
            assert "no text matches" in answer["error"] or "states" in answer["error"], (question, answer)
            n_refused += 1
        for text in answer.get("walks", []):
            assert re.fullmatch(theirs, text), (question["text"], theirs, text)
        question["inputs"] = answer.get("walks", []) + [near(r, t) for t in answer.get("walks", []) for _ in range(4)]
        question["inputs"] += ["".join(r.choice(LETTERS) for _ in range(r.randrange(6))) for _ in range(8)]
        question["walks"] = 0
    for question, answer, (_, theirs) in zip(questions, ask(questions), cases):
        for text, accepted in zip(question["inputs"], answer.get("accepts", [])):
            n_texts += 1
            n_yes += accepted
            assert accepted == bool(re.fullmatch(theirs, text)), (question["text"], theirs, text, accepted)
    assert n_refused < n / 20 and n_yes > n_texts / 20
    print("regex: %d expressions (%d without a text), %d texts judged as by re, %d of them match; %d walks match"
          % (n, n_refused, n_texts, n_yes, 4 * (n - n_refused)))


# ---- schemas ----

def validator(schema):
    import jsonschema  # not before the environment is there
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


STRINGS = [{"type": "string", "pattern": p} for p in ("^a+$", "b", "^[^\"\\\\]*$", "\"", "\\\\", "^\\n\\t$", "^\\u00e9|[\\x00-\\x1f]$")]
STRINGS += [{"type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 5}, {"type": "string", "maxLength": 3}]
STRINGS += [{"type": "string", "format": f} for f in ("date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uuid")]


def random_schema(r, depth=0):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"] + (["object", "array", "anyOf", "any"] * 2 if depth < 3 else [])
    kind = r.choice(kinds)
    if kind == "string":
        return r.choice([{"type": "string"}] + STRINGS)
    if kind == "integer":
        low = r.randrange(-200, 200)
        return r.choice([{"type": "integer"}, {"type": "integer", "minimum": low, "maximum": low + r.randrange(300)}, {"type": "integer", "exclusiveMinimum": low}])
    if kind == "number":
        return r.choice([{"type": "number"}, {"type": "number", "minimum": r.randrange(-5, 5)}])
    if kind == "enum":
        return {"enum": r.sample(["a", "b\n", 1, -2.5, None, True, {"x": [1]}, []], r.randrange(1, 4))}
    if kind == "const":
        return {"const": r.choice(["k", 7, None, {"a": "\""}])}
    if kind == "object":
        names = r.sample(["a", "b c", "d\"e", "é", "f"], r.randrange(0, 4))
        out = {"type": "object", "properties": {n: random_schema(r, depth + 1) for n in names}, "required": [n for n in names if r.random() < 0.5]}
        if r.random() < 0.5:
            out["additionalProperties"] = r.choice([False, random_schema(r, depth + 1)])
        return out
    if kind == "array":
        out = {"type": "array", "items": random_schema(r, depth + 1)}
        if r.random() < 0.5:
            out["minItems"] = r.randrange(3)
            out["maxItems"] = out["minItems"] + r.randrange(3)
        return out
    if kind == "anyOf":
        return {"anyOf": [random_schema(r, depth + 1) for _ in range(r.randrange(1, 4))]}
    return r.choice([True, {}, {"type": ["string", "null"]}, {"type": ["integer", "array"]}])


def test_schema(n=600):
    r = random.Random(7)
    schemas = [random_schema(r) for _ in range(n)]
    answers = ask([{"kind": "schema", "text": json.dumps(s, ensure_ascii=False), "walks": 4, "tokens": 60, "seed": i} for i, s in enumerate(schemas)])
    n_refused = n_walks = 0
    for schema, answer in zip(schemas, answers):
        n_refused += "error" in answer
        judge = validator(schema)
        for text in answer.get("walks", []):
            n_walks += 1
            problem = next(judge.iter_errors(json.loads(text)), None)
            assert problem is None, (schema, text, problem)
    assert n_refused < n / 10 and n_walks > 3 * (n - n_refused)
    print("schema: %d schemas (%d refused), %d walks are valid by jsonschema" % (n, n_refused, n_walks))


# What our order of members and our spelling leave out is no fault; what is invalid and accepted is.
def test_suite():
    import jsonschema
    found = sorted(SUITE.glob("jsonschema-*.tar.gz"))
    if not found:
        runs.pip("download", "--no-deps", "--no-binary", "jsonschema", "-d", str(SUITE), "jsonschema==4.23.0")
        found = sorted(SUITE.glob("jsonschema-*.tar.gz"))
    questions, wanted = [], []
    with tarfile.open(found[0]) as archive:
        for member in archive.getmembers():
            if not re.search(r"/json/tests/draft2020-12/[^/]*\.json$", member.name):
                continue
            for group in json.load(archive.extractfile(member)):
                text = json.dumps(group["schema"], ensure_ascii=False)
                questions.append({"kind": "schema", "text": text, "walks": 3, "tokens": 40,
                                  "inputs": [json.dumps(t["data"], ensure_ascii=False) for t in group["tests"]]})
                wanted.append((member.name.rsplit("/", 1)[1], group))
    compiled = invalid_accepted = valid_accepted = valid = walks = passed = total = 0
    for (name, group), answer in zip(wanted, ask(questions)):
        total += len(group["tests"])
        if "error" in answer:
            continue
        compiled += 1
        for test, accepted in zip(group["tests"], answer["accepts"]):
            passed += accepted == test["valid"]
            valid += test["valid"]
            valid_accepted += test["valid"] and accepted
            if accepted and not test["valid"]:
                invalid_accepted += 1
                print("invalid accepted:", name, group["description"], "/", test["description"], json.dumps(group["schema"])[:300], json.dumps(test["data"])[:100])
        for text in answer["walks"]:
            walks += 1
            try:
                good = jsonschema.Draft202012Validator(group["schema"]).is_valid(json.loads(text))
            except Exception as problem:  # a reference that the validator would have to fetch
                print("not judged:", name, repr(problem)[:100])
                continue
            if not good:
                invalid_accepted += 1
                print("invalid walk:", name, group["description"], json.dumps(group["schema"])[:300], text[:200])
    print("suite: %d of %d schemas compile; of their %d valid instances %d are in reach; %d of %d tests as the suite says; %d walks; %d invalid texts accepted"
          % (compiled, len(questions), valid, valid_accepted, passed, total, walks, invalid_accepted))
    assert compiled > 160 and invalid_accepted == 0


# ---- Lark ----

GRAMMARS = [
    '?start: sum\n?sum: product | sum "+" product -> add | sum "-" product -> sub\n?product: atom | product "*" atom\n?atom: NUMBER | "-" atom | "(" sum ")"\n'
    '%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n',
    'start: value\n?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"\narray: "[" [value ("," value)*] "]"\n'
    'object: "{" [pair ("," pair)*] "}"\npair: ESCAPED_STRING ":" value\n%import common.ESCAPED_STRING\n%import common.SIGNED_NUMBER\n%import common.WS\n%ignore WS\n',
    'start: "SELECT"i cols "FROM"i CNAME [where] ";"\ncols: "*" | CNAME ("," CNAME)*\nwhere: "WHERE"i cond (("and"|"or") cond)~0..2\ncond: CNAME OP (INT | STRING)\n'
    'OP: "=" | "<" | ">=" \nSTRING: /\'[a-z ]*\'/\n%import common (CNAME, INT, WS)\n%ignore WS\n',
]


def test_lark(n=40):
    judge = ("import sys, json, lark\nfor line in sys.stdin:\n  q = json.loads(line)\n  p = lark.Lark(q['text'], parser='earley', lexer='dynamic_complete')\n"
             "  out = []\n  for t in q['inputs']:\n    try:\n      p.parse(t); out.append(True)\n    except lark.exceptions.LarkError:\n      out.append(False)\n  print(json.dumps(out), flush=True)\n")
    r = random.Random(3)
    questions = [{"kind": "lark", "text": g, "walks": n, "tokens": 14, "seed": i} for i, g in enumerate(GRAMMARS)]
    n_texts = n_yes = 0
    walks = [a["walks"] for a in ask(questions)]
    for question, texts in zip(questions, walks):
        question.update(walks=0, inputs=texts + [near(r, t) for t in texts for _ in range(2)])
    done = subprocess.run([str(runs.PYTHON), "-c", judge], input="".join(json.dumps(q) + "\n" for q in questions), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    for question, answer, line in zip(questions, ask(questions), done.stdout.splitlines()):
        for text, ours, theirs in zip(question["inputs"], answer["accepts"], json.loads(line)):
            n_texts += 1
            n_yes += ours
            assert ours == theirs, (question["text"], text, ours, theirs)
    print("lark: %d texts of %d grammars judged as by lark, %d of them parse" % (n_texts, len(GRAMMARS), n_yes))
    assert n_yes >= sum(map(len, walks)) > 2 * n


if __name__ == "__main__":
    # The judges live in the repository's own environment.
    if pathlib.Path(sys.prefix) != runs.VENV:
        runs.pip("install", "jsonschema==4.23.0", "lark==1.2.2")
        os.execv(runs.PYTHON, [str(runs.PYTHON), *sys.argv])
    for part in sys.argv[2:] or ["regex", "schema", "suite", "lark"]:
        globals()["test_" + part]()
