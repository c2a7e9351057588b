#!/usr/bin/env python3
"""Compares recipe_text.render with cases of the prompt format: check_recipe.py CASES.jsonl"""
import json, sys
import recipe_text as r


def convert(m):
    out = {"role": m["role"], "content": m.get("content") or ""}
    if m.get("tool_calls"):
        calls = []
        for c in m["tool_calls"]:
            f = c.get("function", c)
            args = f.get("arguments", "{}")
            calls.append((f["name"], json.loads(args) if isinstance(args, str) else args))
        out["calls"] = calls
    if m.get("reasoning") or m.get("reasoning_content"):
        out["reasoning"] = m.get("reasoning") or m["reasoning_content"]
    return out


def main():
    same, other, skipped = 0, [], 0
    for line in open(sys.argv[1]):
        c = json.loads(line)
        if c.get("kind") != "render" or c.get("version") != "v41" or c.get("profile") != "recipe":
            continue
        v = c["conversation"]
        try:
            tools = [{"name": f["name"], "description": f.get("description", ""), "parameters": f.get("parameters", {})}
                     for f in (t.get("function", t) for t in v.get("tools", []))]
            got = "".join(t for t, _ in r.render([convert(m) for m in v["messages"]], tools, v.get("thinking", True), v.get("effort"), prompt=True))
        except (KeyError, TypeError, ValueError, json.JSONDecodeError):
            skipped += 1
            continue
        if got == c["prompt"]:
            same += 1
        else:
            other.append(c["id"])
    print(f"{same} equal, {len(other)} different ({', '.join(other)}), {skipped} not expressible")


if __name__ == "__main__":
    main()
