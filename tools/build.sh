#!/usr/bin/env bash
# Builds targets of a preset: tools/build.sh PRESET TARGET...; says nothing when nothing was to be done, all when it failed.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/$preset.log
mkdir -p build
run() {
  if [ -t 2 ]; then
    "$@" 2>&1 | tee -a "$log" | sed -u 's/^/  /' >&2
  else
    "$@" >>"$log" 2>&1
  fi
}
: >"$log"
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "hadal: configuring ($preset)" >&2
  run cmake --preset "$preset" || { cat "$log" >&2; exit 1; }
fi
if ! ninja -C "build/$preset" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
  echo "hadal: building ($preset; the first time takes some minutes)" >&2
  run ninja -C "build/$preset" "$@" || { [ -t 2 ] || tail -n 40 "$log" >&2; echo "hadal: the build failed; whole log: $log" >&2; exit 1; }
fi
