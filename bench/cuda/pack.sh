#!/usr/bin/env bash
# Collects what session.sh needs of a build in one folder, stripped, to be carried to a machine with a GPU: pack.sh BUILD_DIR TO
set -euo pipefail
[ $# = 2 ] || {
  echo "usage: pack.sh BUILD_DIR TO" >&2
  exit 2
}
build=$1
to=$2
mkdir -p "$to"
for name in hadal libhadal_cuda.so conformance_cuda bench/cuda/dense_check bench/cuda/fp8_check bench/cuda/attention_check bench/cuda/gap_time; do
  [ -e "$build/$name" ] || {
    echo "pack.sh: $build/$name is not there: tools/build.sh cuda hadal hadal_cuda conformance_cuda dense_check fp8_check attention_check gap_time" >&2
    exit 1
  }
  strip -o "$to/$(basename "$name")" "$build/$name"
done
# nvcc turns code that it finds undefined into a trap, without a word: the address of a namespace's constant on the device, say.
if command -v cuobjdump >/dev/null; then
  traps=$(cuobjdump --dump-sass "$build/libhadal_cuda.so" | awk '/Function :/ { name = $3 } /BPT.TRAP/ { print name }' | sort -u)
  [ -z "$traps" ] || {
    echo "pack.sh: kernels of libhadal_cuda.so end in a trap: $traps" >&2
    exit 1
  }
fi
# The one library that the program does not carry inside.
simdjson=$(ldd "$build/hadal" | sed -n 's/.*=> \(.*libsimdjson[^ ]*\) .*/\1/p')
cp "$simdjson" "$to/"
du -sh "$to"
