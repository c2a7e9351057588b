#!/usr/bin/env python3
"""Share of a decode step that is no kernel: gaps.py NCU.csv STEP.jsonl GAP.jsonl

NCU.csv: `ncu --graph-profiling node --metrics gpu__time_duration.sum --csv --page raw` of `hadal bench step ... --decode 2`, every
kernel alone and in order. The last decode step begins at the last kernel that embeds tokens, or the angles just before it.
STEP.jsonl: the same workload without the profiler. Kernels run alone have their own starts and ends in their time, and overlapping ones are counted twice, so that the
share is a lower bound. GAP.jsonl, of gap_time: what kernels that do nothing take in a recording; as many of them are the upper bound."""
import csv
import json
import re
import sys


def main():
    with open(sys.argv[1]) as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))
    head = rows[0]
    name, time = head.index("Kernel Name"), head.index("gpu__time_duration.sum")
    unit = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}[rows[1][time]]
    found = [(re.search(r"\w+_kernel", row[name]), float(row[time].replace(",", "")) * unit) for row in rows[2:]]
    kernels = [(kernel.group() if kernel else "other", us) for kernel, us in found]
    starts = [i for i, (kernel, _) in enumerate(kernels) if kernel == "embed_kernel"]
    if not starts:
        sys.exit("no step in the profile")
    start = starts[-1]
    while start > 0 and kernels[start - 1][0] == "rope_kernel":
        start -= 1
    step = kernels[start:]
    by_name = {}
    for kernel, us in step:
        count, sum_us = by_name.get(kernel, (0, 0.0))
        by_name[kernel] = (count + 1, sum_us + us)
    for kernel, (count, us) in sorted(by_name.items(), key=lambda item: -item[1][1]):
        print(f"{kernel:40} {count:4} x {us / count:8.2f} us = {us:9.2f} us")
    busy = sum(us for _, us in step)
    whole = next(json.loads(t)["median_ms"] for t in open(sys.argv[2]) if '"decode_1"' in t and "median_ms" in t) * 1e3
    empty = max(json.loads(text)["overlap_us"] for text in open(sys.argv[3]))
    most = 100 * len(step) * empty / whole
    print(f"{len(step)} kernels, {busy:.1f} us of the step's {whole:.1f}: gaps at least {100 * max(0.0, 1 - busy / whole):.1f} %, "
          f"at most {most:.1f} % ({empty:.2f} us a kernel that does nothing)")


if __name__ == "__main__":
    main()
