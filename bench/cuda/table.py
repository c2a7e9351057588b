#!/usr/bin/env python3
"""Turns the JSON lines of `hadal bench ops --backend cuda --json` into a Markdown table with peers' figures: those that were
published (peers.json) and those of `peers.py`, if given. usage: table.py OPS.jsonl [PEERS.jsonl]"""
import json
import pathlib
import sys


def peer_text(peers, line):
    texts = []
    for peer in peers:
        if peer["op"] != line["op"] or peer["rows"] != line["rows"]:
            continue
        figure = f"{peer['us']} us" if "us" in peer else f"{peer['tflop_s']} TFLOP/s"
        texts.append(f"{figure}: {peer['who']}, {peer['on']} ({peer['source']})")
    return "; ".join(texts)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: table.py OPS.jsonl [PEERS.jsonl]")
    peers = json.loads((pathlib.Path(__file__).parent / "peers.json").read_text())
    for path in sys.argv[2:]:
        peers = [json.loads(text) for text in open(path) if text.startswith("{")] + peers
    lines = [json.loads(text) for text in open(sys.argv[1]) if text.startswith("{")]
    if not lines:
        sys.exit(f"{sys.argv[1]}: no line of `hadal bench ops --backend cuda --json`")
    first = lines[0]
    print(f"{first['device']}; reads {first['peak_read_gb_s'] / 1e3:.2f} TB/s, bf16 {first['peak_bf16_tflop_s']:.0f} TFLOP/s\n")
    print("| op | rows | us | GB/s | TFLOP/s | limit us | share | peer |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for line in sorted(lines, key=lambda l: (l["op"], l["rows"])):
        us = line["us"]
        print(
            f"| {line['op']} | {line['rows']} | {us:.1f} | {line['bytes'] / us / 1e3:.0f} | {line['flops'] / us / 1e6:.1f} "
            f"| {line['limit_us']:.1f} | {100 * line['share']:.0f} % | {peer_text(peers, line)} |"
        )


if __name__ == "__main__":
    main()
