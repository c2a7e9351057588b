#!/usr/bin/env python3
"""Two runs of `hadal bench step --json` side by side: compare_steps.py ONE.jsonl OTHER.jsonl. Exit 1 if their logits differ."""
import json
import sys


def read(path):
    lines = [json.loads(text) for text in open(path) if text.startswith("{")]
    return {line["workload"]: line for line in lines if "median_ms" in line}


def main():
    one, other = read(sys.argv[1]), read(sys.argv[2])
    same = bool(one)
    for name, line in one.items():
        if name not in other:
            sys.exit(f"{sys.argv[2]}: no line {name}")
        a, b = line["median_ms"], other[name]["median_ms"]
        equal = line["logits"] == other[name]["logits"]
        same = same and equal
        print(f"{name:10} {a:9.3f} ms {b:9.3f} ms  {100 * (b - a) / a:+6.1f} %  bits {'equal' if equal else 'DIFFER'}")
    print("the same bits in every workload" if same else "BITS DIFFER")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
