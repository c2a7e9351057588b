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
for name in hadal libhadal_cuda.so conformance_cuda bench/cuda/dense_check bench/cuda/attention_check; do
  [ -e "$build/$name" ] || {
    echo "pack.sh: $build/$name is not there: tools/build.sh cuda hadal hadal_cuda conformance_cuda dense_check attention_check" >&2
    exit 1
  }
  strip -o "$to/$(basename "$name")" "$build/$name"
done
# The one library that the program does not carry inside.
simdjson=$(ldd "$build/hadal" | sed -n 's/.*=> \(.*libsimdjson[^ ]*\) .*/\1/p')
cp "$simdjson" "$to/"
du -sh "$to"
