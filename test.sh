#!/usr/bin/env bash
# Builds the release preset and passes the tests. With --ci also the fast tests under ASan+UBSan, and lint.
set -euo pipefail
cd "$(dirname "$0")"
ci=false
[ "${1:-}" = "--ci" ] && ci=true

tools/install_packages.sh test
python3 tools/check_layers.py
cmake --preset release
cmake --build --preset release
ctest --test-dir build/release --output-on-failure -L fast -j "$(nproc)"

if $ci; then
  cmake --preset dev
  cmake --build --preset dev
  ctest --test-dir build/dev --output-on-failure -L fast -j "$(nproc)"
  tools/lint.sh
fi
