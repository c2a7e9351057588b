#!/usr/bin/env bash
# Installs the codec from a build tree and builds and runs the example program against it: example_test.sh BUILD_DIR
set -euo pipefail
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component recipe --prefix "$work/prefix" > "$work/install.log"
cmake -S "$root/examples/recipe" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug > "$work/configure.log"
cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
answer=$(echo '{"model":"m","messages":[{"role":"user","content":"2+5?"}],"thinking":{"type":"disabled"}}' |
  "$work/build/recipe_example" "$root/models/demo/tokenizer.json")
want='<｜begin▁of▁sentence｜><｜User｜>2+5?<｜Assistant｜></think>'
[ "$(head -1 <<< "$answer")" = "$want" ] || { echo "wrong prompt: $answer"; exit 1; }
if echo '{"model":"m","messages":[{"role":"user"}]}' | "$work/build/recipe_example" "$root/models/demo/tokenizer.json" > "$work/refused"; then
  echo "a wrong request was not refused"
  exit 1
fi
grep -q 'messages\[0\].content' "$work/refused"
echo "example: ok"
