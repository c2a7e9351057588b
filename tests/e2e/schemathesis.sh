#!/usr/bin/env bash
# schemathesis.sh HADAL VENV [SEED] [MORE...]: the server, its store in a file, against its own OpenAPI document, in every phase (coverage, fuzzing,
# stateful). VENV has `pip install schemathesis`. Without SEED a random one; it is printed first. /admin/drain would end the server. A script file plays
# for every request; --any-model takes the names that are made up.
set -euo pipefail
hadal=$(realpath "$1") venv=$(realpath "$2") seed=${3:-$RANDOM}
shift $(($# < 3 ? $# : 3))
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
echo '{"text": "A short answer.", "step": 4}' >"$scratch/script.jsonl"
"$hadal" serve --model "$here/../../models/demo" --backend script --script "$scratch/script.jsonl" --any-model true --store.path "$scratch/store.db" --port 0 \
  2>"$scratch/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$scratch"' EXIT
for _ in $(seq 100); do
  port=$(sed -n 's|.*ready on http://[^:]*:\([0-9]*\).*|\1|p' "$scratch/log")
  [ -n "$port" ] && break
  sleep 0.1
done
echo '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "q"}]}}' >"$scratch/lines.jsonl"
HADAL_BATCH_FILE=$(curl -sS -F purpose=batch -F "file=@$scratch/lines.jsonl" "http://127.0.0.1:$port/v1/files" | sed 's/.*"id":"\([^"]*\)".*/\1/')
export HADAL_BATCH_FILE SCHEMATHESIS_HOOKS=schemathesis_hooks PYTHONPATH="$here"
echo "seed $seed"
cd "$scratch"
"$venv/bin/st" run "http://127.0.0.1:$port/openapi.json" --exclude-path-regex '^/admin/drain' -n 50 --seed "$seed" "$@"
kill -0 $server  # it lives
