#!/usr/bin/env bash
# Installs what is missing, builds the program alone, and answers: ./run.sh "QUESTION"; with no question, a chat in the terminal.
# All arguments go to `hadal run` (build/release/hadal run --help). Where NVIDIA's driver and nvcc are found, the CUDA backend is
# built too, and the program uses the GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/tools/install_packages.sh" run
preset=release
targets=(hadal)
if [ -e /proc/driver/nvidia/version ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
  preset=cuda
  targets+=(hadal_cuda)
fi
"$here/tools/build.sh" "$preset" "${targets[@]}"
exec "$here/build/$preset/hadal" run "$@"
