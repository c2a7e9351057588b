#!/usr/bin/env bash
# Format check of all sources; clang-tidy of the .cc files that differ from BASE (default: the last commit's parent).
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-HEAD~1}
mapfile -t sources < <(git ls-files 'src/*.h' 'src/*.cc' 'tests/*.cc' 'examples/*.cc')
clang-format-19 --dry-run --Werror "${sources[@]}"
git rev-parse -q --verify "$base" >/dev/null || exit 0
mapfile -t changed < <(git diff --name-only --diff-filter=AM "$base" -- 'src/*.cc' | grep -v '_test.cc$' | head -12)
[ ${#changed[@]} -eq 0 ] || clang-tidy-19 -p build/release --quiet --extra-arg=-Wno-unknown-warning-option "${changed[@]}"
