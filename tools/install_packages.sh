#!/usr/bin/env bash
# Installs the Debian packages that Hadal needs and that are missing: "run" to build the program, "test" for tests and lint too.
set -euo pipefail
wanted=(g++ cmake ninja-build ccache mold libboost1.81-dev libssl-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev
  libtomlplusplus-dev libfmt-dev libspdlog-dev libsqlite3-dev liblmdb-dev liburing-dev libzstd-dev libxxhash-dev libutf8proc-dev libjemalloc-dev
  libturbojpeg0-dev libpng-dev libwebp-dev zlib1g-dev
  libjs-dygraphs libjs-marked node-dompurify)
if [ "${1:-run}" = test ]; then
  wanted+=(libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libpcre2-dev clang-format-19 clang-tidy-19 git
    python3 python3-venv python3-numpy)
fi
missing=$(comm -13 \
  <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p' | sort -u) \
  <(printf '%s\n' "${wanted[@]}" | sort -u))
[ -z "$missing" ] && exit 0
command -v apt-get >/dev/null || { echo "hadal: these Debian packages are missing and there is no apt-get here:" $missing >&2; exit 1; }
echo "hadal: installing" $missing >&2
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "hadal: apt-get could not install the packages above; install them by hand and run again" >&2
  exit 1
fi
