#!/usr/bin/env bash
# Packs site.txt or ray.txt, at the versions of requirements/constraints.txt, for a host without a package index, in parts to be copied one at a time:
#   benchmarks/gpu_host/pack.sh site .carry/site    (or: ray)
# On the host: bash .carry/site/K/unpack.sh for every K; the last one creates /tmp/retouch-site (or -ray).
# `pack.sh gpu` and `pack.sh ort` pack gpu.txt and ort.txt for a host with a GPU, without the code for other GPUs than ARCH (90: H100, H200):
# CV-CUDA and nvtx for /tmp/retouch-gpu, ONNX Runtime for CUDA for /tmp/retouch-ort.
# `pack.sh wheels .carry/wheels` packs wheels.txt as wheels, for pip; they run on ARCH (90: H100, H200) only.
# `RAW=DIR pack.sh trt86 .carry/trt86` packs TensorRT 8.6.0 with its CPython 3.10 for engine_jobs.py, about 660 MiB. DIR has python.tar.xz (CPython 3.10
# without unneeded parts), stubs (of the cuBLAS and cuDNN that its plugins link, but no net here calls) and wheels (cp310: tensorrt 8.6.0 and, of trt86.txt,
# cuda-bindings msgspec numpy onnx onnxruntime psutil pydantic structlog with their dependencies). Nothing is blanked, because the builder compares a digest
# of its kernels, including those of other GPUs. The last part creates /tmp/trt86.
set -euo pipefail
name=$1 out=$2 part_mib=${PART_MIB:-48} python=${PY:-3.12}
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
platforms=(); for p in 2_39 2_35 2_34 2_31 2_28 2_27 2_24 2_17 2_5; do platforms+=(--platform "manylinux_${p}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
other=(--only-binary=:all: --python-version "$python" --implementation cp "${platforms[@]}" --no-deps --requirement "$here/$name.txt")
if [ "$name" = trt86 ]; then
  part_mib=${PART_MIB:-46}
  for wheel in "$RAW"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/site/site"; done
  find "$work/site/site" -type d -name tests -prune -exec rm -rf {} +
  cp -r "$RAW/stubs" "$RAW/python.tar.xz" "$work/site/"
elif [ "$name" = wheels ] || [ "$name" = gpu ] || [ "$name" = ort ]; then
  python3 -m pip download -q "${other[@]}" --dest "$work/wheels"
  python3 "$here/one_gpu_wheels.py" "$work/wheels" --arch "${ARCH:-90}" --python "$python"
  if [ "$name" = wheels ]; then mv "$work/wheels" "$work/site"
  else python3 -m pip install -q --no-index --find-links "$work/wheels" "${other[@]}" --no-compile --target "$work/site"; fi
else
  python3 -m pip install -q "${other[@]}" --no-compile --constraint "$root/requirements/constraints.txt" --target "$work/site"
fi
cd "$work/site"
rm -rf ray/jars ray/rllib ray/dashboard/client/build  # Ray's Java and its pages
find bin -type f ! -name py-spy -delete 2> /dev/null || true
[ "$name" = trt86 ] || find . -name '*.cpython-3*.so' ! -name "*-${python/./}-*" -delete
find ray -type d -name tests -prune -exec rm -rf {} + 2> /dev/null || true
if [ "$name" = site ]; then  # the service runs from its source, but reads the version of its package
  version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")
  mkdir "retouch-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: retouch\nVersion: %s\n' "$version" > "retouch-$version.dist-info/METADATA"
fi
tar -c . | xz -T0 -${XZ:-2} --block-size=16MiB > "$work/all.xz"
cd "$root" && rm -rf "$out" && mkdir -p "$out"
split -b "${part_mib}M" -d -a 2 "$work/all.xz" "$work/part."
total=$(find "$work" -name 'part.*' | wc -l) k=0
for part in "$work"/part.*; do
  k=$((k + 1)); mkdir "$out/$k"; mv "$part" "$out/$k/"
  sed -e "s/@NAME@/$name/g" -e "s/@TOTAL@/$total/g" "$here/unpack.sh" > "$out/$k/unpack.sh"
done
du -sm "$out"/*
