#!/usr/bin/env bash
# Installs each peer (by default all but iopaint) in a separate virtual environment, .venv-peers/NAME, with pinned versions.
#
#   benchmarks/peers/install.sh [NAME…]
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=$(command -v uv || true)
if [ -z "$uv" ]; then .venv/bin/python -m pip install --quiet uv; uv=.venv/bin/uv; fi
names=("$@")
if [ $# -eq 0 ]; then names=(litserve mosec bentoml ray pytriton); fi
for name in "${names[@]}"; do
  venv=.venv-peers/$name pins=benchmarks/peers/requirements/$name.txt
  if [ "$venv/.installed" -nt "$pins" ]; then continue; fi
  "$uv" venv --quiet --clear --python 3.11 "$venv"
  "$uv" pip install --quiet --python "$venv/bin/python" --requirement "$pins"
  touch "$venv/.installed"
done
