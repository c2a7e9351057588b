#!/usr/bin/env python3
"""The real coding agents against `hadal serve --backend script`: agents.py HADAL VENV [claude|codex|dsh ...]

VENV is a virtual environment with
    pip install claude-agent-sdk openai-codex && pip install --pre deepseek-harness-sdk
Each agent gets one task in an empty folder with an empty home, has to make one shell call, and ends by itself; the script (agents_script.jsonl) is the
model's part. Checked: exit code, the file that the call wrote, the final answer, and that the server refused nothing. Exit 1 if an agent failed."""
import glob
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "run"))
from serve_process import Server

TASK = "Write the words 'high tide' into the file proof.txt."
ANSWER = "The file proof.txt holds: high tide."


def commands(venv, base, home):
    site = glob.glob(os.path.join(venv, "lib", "python3*", "site-packages"))[0]
    provider = f'model_providers.h={{name="h",base_url="{base}/v1",env_key="HADAL_KEY",wire_api="responses"}}'
    return {
        "claude": ({"ANTHROPIC_BASE_URL": base, "ANTHROPIC_AUTH_TOKEN": "x", "ANTHROPIC_MODEL": "deepseek-flash", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
                   [f"{site}/claude_agent_sdk/_bundled/claude", "-p", TASK, "--output-format", "json", "--allowedTools", "Bash"]),
        "codex": ({"HADAL_KEY": "x"},
                  [f"{site}/codex_cli_bin/bin/codex", "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access", "-c", "model=deepseek-flash", "-c", "model_provider=h", "-c", provider, TASK]),
        "dsh": ({"DSH_HOME": f"{home}/dsh", "DEEPSEEK_BASE_URL": base, "DEEPSEEK_API_KEY": "x", "DSH_PERMISSION_MODE": "danger-full-access"}, [f"{venv}/bin/dsh", "headless", TASK]),
    }


def run(name, hadal, venv):
    server = Server(hadal, "--backend", "script", "--script", os.path.join(HERE, "agents_script.jsonl"))
    problems = []
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        environment, command = commands(os.path.abspath(venv), f"http://127.0.0.1:{server.port}", home)[name]
        began = time.monotonic()
        try:
            done = subprocess.run(command, env={"PATH": os.environ["PATH"], "HOME": home, **environment}, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            code, out = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            code, out = "no end within 120 s", str(late.stdout) + str(late.stderr)
        took = time.monotonic() - began
        proof = os.path.join(work, "proof.txt")
        wrote = open(proof).read() if os.path.exists(proof) else None
    server.stop()
    if code != 0:
        problems.append(f"exit: {code}")
    if wrote != "high tide":
        problems.append(f"proof.txt: {wrote}")
    if ANSWER not in out:
        problems.append("the answer is not in the output")
    lines = [line for line in server.text.split("\n") if " POST " in line]
    problems += [f"refused: {line}" for line in lines if " 200 " not in line]
    print(f"{name}: {'ok' if not problems else 'FAILED'} in {took:.1f} s, {len(lines)} requests")
    if problems:
        print("\n".join(problems), out[-4000:], server.text[-4000:], sep="\n")
    return not problems


if __name__ == "__main__":
    results = [run(name, sys.argv[1], sys.argv[2]) for name in sys.argv[3:] or ["claude", "codex", "dsh"]]
    sys.exit(0 if all(results) else 1)
