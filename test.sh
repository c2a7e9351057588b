#!/usr/bin/env bash
# Builds the release preset and passes the tests. With --ci also the fast tests under ASan+UBSan, lint, and the CUDA module is
# compiled where nvcc is found.
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
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    cmake --preset cuda
    cmake --build --preset cuda --target hadal hadal_cuda conformance_cuda
    tests/run/no_gpu_test.sh build/cuda
  fi
fi
