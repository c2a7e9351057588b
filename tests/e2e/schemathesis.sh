#!/usr/bin/env bash
# schemathesis.sh HADAL VENV [MORE...]: the server against its own OpenAPI document. VENV has `pip install schemathesis`.
# /admin/drain would end the server. A script file plays for every request; --any-model takes the names that are made up.
set -euo pipefail
hadal=$1 venv=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
echo '{"text": "A short answer.", "step": 4}' >"$scratch/script.jsonl"
"$hadal" serve --model "$here/../../models/demo" --backend script --script "$scratch/script.jsonl" --any-model true --port 0 2>"$scratch/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$scratch"' EXIT
for _ in $(seq 100); do
  port=$(sed -n 's|.*ready on http://[^:]*:\([0-9]*\).*|\1|p' "$scratch/log")
  [ -n "$port" ] && break
  sleep 0.1
done
cd "$scratch"
"$venv/bin/st" run "http://127.0.0.1:$port/openapi.json" --exclude-path-regex '^/admin/drain' -n 50 --seed 1 "$@"
