"""Answers through the engine, for evaluate.py: one `hadal run --raw` for each prompt, greedy."""
import concurrent.futures, subprocess


class Engine:
    def __init__(self, program, folder, at_once=2, most=96):
        self.program, self.folder, self.at_once, self.most = program, folder, at_once, most

    def one(self, pieces):
        r = subprocess.run([self.program, "run", "--model", self.folder, "--raw", "--temperature", "0", "--max-tokens", str(self.most)],
                           input="".join(t for t, _ in pieces), capture_output=True, text=True)
        if r.returncode:
            raise SystemExit(f"{self.program} ended with {r.returncode} on {pieces!r}: {r.stderr}")
        return r.stdout[:-1] if r.stdout.endswith("\n") else r.stdout

    def answers(self, prompts):
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(self.one, prompts))
