#!/usr/bin/env bash
# Installs the Debian packages that Hadal needs and that are missing: "run" to build the program, "test" for tests and lint too.
set -euo pipefail
wanted=(g++ cmake ninja-build ccache mold pkg-config libboost1.81-dev libssl-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev
  libtomlplusplus-dev libfmt-dev libspdlog-dev libsqlite3-dev liblmdb-dev liburing-dev libzstd-dev libxxhash-dev libutf8proc-dev
  libturbojpeg0-dev libpng-dev libwebp-dev zlib1g-dev)
if [ "${1:-run}" = test ]; then
  wanted+=(libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libpcre2-dev clang-format-19 clang-tidy-19 python3 python3-venv python3-numpy)
fi
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}" >&2
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -q >&2
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
