#!/usr/bin/env bash
# Installs what is missing, builds the program alone, and answers: ./run.sh "QUESTION"; with no question, a chat in the terminal.
# All arguments go to `hadal run` (build/release/hadal run --help).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/tools/install_packages.sh" run
"$here/tools/build.sh" release hadal
exec "$here/build/release/hadal" run "$@"
