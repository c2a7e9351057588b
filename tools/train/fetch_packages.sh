#!/usr/bin/env bash
# Unpacks the small dictionaries that make_data.py reads into DIR: fetch_packages.sh DIR (Debian 12, nothing is installed)
set -euo pipefail
dir=${1:?usage: fetch_packages.sh DIR}
mkdir -p "$dir"
cd "$dir"
apt-get download wordnet-base dict-vera
for f in wordnet-base_*.deb dict-vera_*.deb; do dpkg -x "$f" .; done
