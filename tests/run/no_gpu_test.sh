#!/usr/bin/env bash
# What a person reads where the GPU cannot be used: no_gpu_test.sh BUILD_DIR. With libhadal_cuda.so there, on a machine without a
# GPU: asked for by name the program says what is missing; by default it answers on the CPU and says nothing.
set -euo pipefail
build=$1
fail() {
  echo "FAIL $1" >&2
  exit 1
}
if [ -e /proc/driver/nvidia/version ]; then
  echo "a GPU is here: nothing to test"
  exit 0
fi
text=$("$build/hadal" run --backend cuda hi 2>&1 >/dev/null) && fail "--backend cuda was accepted without a GPU"
[ "$(wc -l <<<"$text")" = 1 ] || fail "not one line: $text"
if [ -e "$build/libhadal_cuda.so" ]; then
  grep -Eq 'no NVIDIA driver is loaded|shows no GPU' <<<"$text" || fail "the driver is not named: $text"
else
  grep -q 'libhadal_cuda.so is not there' <<<"$text" || fail "the module is not named: $text"
fi
"$build/hadal" run --max-tokens 2 hi >/dev/null 2>"$build/no_gpu.err" || fail "no answer on the CPU"
[ -s "$build/no_gpu.err" ] && fail "words about a GPU that nobody asked for: $(cat "$build/no_gpu.err")"
text=$("$build/hadal" run --backend gpu hi 2>&1 >/dev/null) && fail "an unknown backend was accepted"
grep -q 'auto, cpu or cuda' <<<"$text" || fail "the choices are not named: $text"
echo "ok   without a GPU: named by name, silent by default"
