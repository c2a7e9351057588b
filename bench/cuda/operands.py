#!/usr/bin/env python3
"""Writes to registers that a running product still reads: cuobjdump --dump-sass libhadal_cuda.so | operands.py

A warpgroup product with weights in registers (wgmma) reads them while it runs, behind its issue. The compiler keeps other values out of
them only as far as it sees which wait ends the product: a loop that left one product running got its next weights' first steps into
the registers of that product, and wrong bits, without a warning. This goes twice through every loop that has products, instruction
after instruction as they lie there, and reports writes between a product and the wait that ends it. Jumps inside a loop are not followed."""
import re
import sys

LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
PRODUCT = re.compile(r"[HQ]GMMA\S*\s+R\d+,\s+R(\d+)")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
WRITE = re.compile(r"(?:@!?U?P\d+\s+)?([A-Z][\w.]*)\s+(?:P\w+,\s*)*R(\d+)")
WRITES_NONE = ("ST", "BRA", "BAR", "SYNCS", "WARP", "UT", "UB", "R2UR", "RED", "EXIT")
OPERAND = 4  # registers of a thread


def written(text):
    found = WRITE.match(text)
    if not found or found[1].startswith(WRITES_NONE):
        return set()
    op, first = found[1], int(found[2])
    wide = 4 if ".128" in op or op.startswith("LDSM") else 2 if ".64" in op or ".WIDE" in op or op.startswith("CS2R") else 1
    return set(range(first, first + wide))


def check(function, code):
    place = {address: i for i, (address, _) in enumerate(code)}
    n_loops, found = 0, set()
    for i, (address, text) in enumerate(code):
        jump = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)
        start = place.get(int(jump[1], 16)) if jump else None
        if start is None or start >= i or not any(PRODUCT.search(t) for _, t in code[start : i + 1]):
            continue
        n_loops += 1
        running, issued = [], set()  # operands of groups that run, oldest first; of the group that is being issued
        for at, t in code[start : i + 1] * 2:
            product, wait = PRODUCT.search(t), WAIT.search(t)
            if product:
                issued |= set(range(int(product[1]), int(product[1]) + OPERAND))
                if "gsb0" in t:
                    running.append(issued)
                    issued = set()
            elif wait:
                left = int(wait[1], 16)
                running = running[len(running) - left :] if left else []
            elif written(t) & issued.union(*running):
                found.add((at, t))
    for at, t in sorted(found):
        print(f"{function}: {at:x} {t}")
    return n_loops, len(found)


def main():
    functions, code = {}, None
    for line in sys.stdin:
        if "Function :" in line:
            code = functions.setdefault(line.split()[-1], [])
        elif code is not None and (found := LINE.match(line)):
            code.append((int(found[1], 16), found[2]))
    sums = [check(name, code) for name, code in functions.items()]
    n_loops, n_found = sum(a for a, _ in sums), sum(b for _, b in sums)
    print(f"{len(functions)} functions, {n_loops} loops with products, {n_found} writes to operands of running products")
    sys.exit(0 if n_loops > 0 and n_found == 0 else 1)


main()
