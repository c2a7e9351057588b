#!/usr/bin/env python3
"""Golden logits of the text model.

usage: golden.py prepare OUT             unpacks the cases into OUT and writes their checkpoints from their seeds
       golden.py check HADAL OUT         judges `hadal score` on every prompt by the cases' bounds
       golden.py same HADAL OUT          the same bits for every chunk size, thread count and kernel level
Needs numpy. README.md says what the numbers are.
"""
import hashlib, os, subprocess, sys, tarfile, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
CASES = {"a-tiny": ["--seed", "101", "--coupling", "0.0003"],
         "b-shape": ["--seed", "102", "--coupling", "3e-7", "--embed-std", "0.001", "--shards", "3"],
         "c-engram": ["--seed", "103", "--coupling", "0.0003"],
         "p-chain": ["--seed", "104", "--coupling", "0.05"],
         "f-free": ["--seed", "105", "--coupling", "0"]}
SAME = ("a-tiny", "b-shape", "c-engram")      # 300 tokens each, in every way


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def prepare(out):
    os.makedirs(out, exist_ok=True)
    want = [line.split() for line in open(os.path.join(HERE, "SHA256SUMS"))]
    if all(os.path.exists(os.path.join(out, f)) and digest(os.path.join(out, f)) == s for s, f in want):
        return
    with tarfile.open(os.path.join(HERE, "cases.tar.xz")) as t:
        t.extractall(out)
    for case, args in CASES.items():
        folder = os.path.join(out, case)
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_checkpoint.py"), os.path.join(folder, "config.json"), folder,
                        "--tokenizer", os.path.join(folder, "tokenizer.json"), "--inventory", os.path.join(HERE, "inventory.py"),
                        *args], check=True)
    for s, f in want:
        if digest(os.path.join(out, f)) != s:
            sys.exit(f"{f}: not the recorded bytes; is this numpy's random generator another one?")


def levels():
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    out = ["base"]
    for level, flag in (("avx2", "avx2"), ("avx512", "avx512bw"), ("avx512bf16", "avx512_bf16")):
        if flag in flags:
            out.append(level)
    return out


def same(hadal, out):
    ways = [["--threads", t, "--prefill-chunk", c] for c, t in (("1", "1"), ("2", "1"), ("3", "1"), ("7", "2"), ("64", "2"))]
    ways += [["--threads", "2"], ["--replay", "bounded", "--threads", "1"]]
    ways += [["--cpu-level", level, "--threads", "2"] for level in levels()]
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        file = os.path.join(tmp, "logits.npy")
        for case in SAME:
            for prompt in ("p3",):
                first = None
                for way in [["--threads", "1"], *ways]:
                    ids = os.path.join(out, case, "expected", prompt + ".ids.json")
                    subprocess.run([hadal, "score", "--model", os.path.join(out, case), "--tokens", ids, "--logits", file, *way],
                                   check=True, stdout=subprocess.DEVNULL)
                    d = digest(file)
                    first = first or d
                    if d != first:
                        print(f"{case} {prompt}: other bits with {' '.join(way)}")
                        bad += 1
    print(f"{len(SAME)} prompts, {len(ways) + 1} ways each, {bad} differences")
    return bad


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "prepare":
        return prepare(sys.argv[2])
    if len(sys.argv) == 4 and sys.argv[1] == "check":
        import check
        check.HERE = sys.argv[3]
        sys.argv = [sys.argv[0], sys.argv[2]]
        return check.main()
    if len(sys.argv) == 4 and sys.argv[1] == "same":
        sys.exit(1 if same(sys.argv[2], sys.argv[3]) else 0)
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
