#!/usr/bin/env bash
# Pack TensorRT 8.6.0 with its CPython 3.10 for engine_jobs.py in few parts: pack_trt86.sh RAW OUT. RAW has python.tar.xz (CPython 3.10 without what
# it does not need), stubs (of the cuBLAS and cuDNN that its plugins link, but no net here calls) and wheels (cp310: tensorrt 8.6.0 and, of trt86.txt,
# cuda-bindings msgspec numpy onnx onnxruntime psutil pydantic structlog with what they need). Nothing is blanked, unlike in pack.sh: the builder
# compares a digest of its kernels, those of other GPUs too; about 660 MiB. On the host: bash OUT/K/unpack.sh for every K; the last one lays out /tmp/trt86.
set -euo pipefail
raw=$(realpath "$1") out=$(realpath -m "$2") part_mib=${PART_MIB:-46} here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; mkdir "$work/all"
for wheel in "$raw"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/all/site"; done
find "$work/all/site" -type d -name tests -prune -exec rm -rf {} +
cp -r "$raw/stubs" "$raw/python.tar.xz" "$work/all/"
tar -C "$work/all" -c . | xz -T0 -${XZ:-2} --block-size=16MiB | split -b "${part_mib}M" -d -a 2 - "$work/part."
rm -rf "$out"; mkdir -p "$out"
total=$(find "$work" -maxdepth 1 -name 'part.*' | wc -l) k=0
for part in "$work"/part.*; do
  k=$((k + 1)); mkdir "$out/$k"; mv "$part" "$out/$k/"
  sed -e "s/@NAME@/trt86/g" -e "s/@TOTAL@/$total/g" "$here/unpack.sh" > "$out/$k/unpack.sh"
done
du -sm "$out"/*
