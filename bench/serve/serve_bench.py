#!/usr/bin/env python3
"""The load figures of docs/serving.md, one JSON line each: serve_bench.py HADAL streams|requests [--seconds N] [--rounds N] [--pin]

streams   5,000 open streams with an event each 100 ms each, by `hadal bench serve`: events/s read, delay from the engine's event to the client's read,
          memory a stream
requests  short chat requests without a stream beside nginx that answers `return 200` with a body of the same size: wrk, 64 connections, turn and turn
          about. --pin: server on core 0 and wrk on core 1; without it everything shares all cores. Needs wrk and nginx-light
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "run"))
from serve_process import CHAT, Server, free_port

BODY = {**CHAT, "thinking": {"type": "disabled"}, "hadal": {"script": {"text": "A short answer.", "step": 8}}}
NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ default_type application/json; return 200 '{body}'; }} }} }}
"""


def wrk(arguments, url, folder, pin):
    script = os.path.join(folder, "post.lua")
    with open(script, "w") as lua:
        lua.write("wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = " + json.dumps(json.dumps(BODY)) + "\n")
    command = ["wrk", "-t1", "-c64", f"-d{arguments.seconds}s", "--latency", "-s", script, url]
    out = subprocess.run((["taskset", "-c", "1"] if pin else []) + command, capture_output=True, text=True, check=True).stdout
    if re.search(r"Non-2xx or 3xx responses: \d|Socket errors", out):
        raise RuntimeError(out)
    unit = {"us": 0.001, "ms": 1, "s": 1000}
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), float(p99.group(1)) * unit[p99.group(2)]


def requests(arguments):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(arguments.hadal, "--backend", "script", "--log-requests", "false", *arguments.flags)
        body = server.request("POST", "/v1/chat/completions", BODY)[1]
        port = free_port()
        with open(os.path.join(folder, "nginx.conf"), "w") as config:
            config.write(NGINX.format(folder=folder, port=port, body="x" * len(body)))
        nginx = subprocess.Popen(["nginx", "-c", os.path.join(folder, "nginx.conf")], stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        if arguments.pin:
            children = subprocess.run(["pgrep", "-P", str(nginx.pid)], capture_output=True, text=True).stdout.split()
            for pid in (server.process.pid, nginx.pid, *children):
                subprocess.run(["taskset", "-a", "-c", "-p", "0", str(pid)], check=True, capture_output=True)
        found = {"hadal": [], "nginx": []}
        for _ in range(arguments.rounds):
            for name, url in (("nginx", f"http://127.0.0.1:{port}/"), ("hadal", f"http://127.0.0.1:{server.port}/v1/chat/completions")):
                found[name].append(wrk(arguments, url, folder, arguments.pin))
        nginx.terminate()
        nginx.wait()
        server.stop()
    rate = {name: statistics.median(r for r, _ in runs) for name, runs in found.items()}
    print(json.dumps({"workload": "serve_requests", "pinned": arguments.pin, "body_bytes": len(body), "connections": 64, "rounds": arguments.rounds,
                      "seconds": arguments.seconds, "hadal_per_s": round(rate["hadal"]), "nginx_per_s": round(rate["nginx"]), "ratio": round(rate["hadal"] / rate["nginx"], 3),
                      "hadal_runs": [round(r) for r, _ in found["hadal"]], "nginx_runs": [round(r) for r, _ in found["nginx"]], "hadal_p99_ms": found["hadal"][-1][1]}))


def streams(arguments):
    server = Server(arguments.hadal, "--backend", "script", "--log-requests", "false", *arguments.flags)
    try:
        subprocess.run([arguments.hadal, "bench", "serve", "--port", str(server.port), "--server-pid", str(server.process.pid), "--seconds", str(arguments.seconds),
                        "--streams", str(arguments.streams), "--pace-ms", str(arguments.pace_ms)], check=True)
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hadal")
    parser.add_argument("workload", choices=["streams", "requests"])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--pace-ms", type=int, default=100)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--flags", nargs="*", default=[], help="more flags of hadal serve, without the dashes in front: http.threads=2")
    arguments = parser.parse_args()
    arguments.flags = [word for flag in arguments.flags for word in ("--" + flag.split("=")[0], flag.split("=")[1])]
    {"requests": requests, "streams": streams}[arguments.workload](arguments)
