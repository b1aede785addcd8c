#!/usr/bin/env bash
# Unpacks one of the parts that pack.sh packed as @NAME@; the last part creates /tmp/retouch-@NAME@, a folder for PYTHONPATH.
set -euo pipefail
to=/tmp/retouch-@NAME@ parts=/tmp/retouch-@NAME@.parts
mkdir -p $parts; cp "$(dirname "$0")"/part.* $parts/
have=$(ls $parts | wc -l); echo "@NAME@: $have of @TOTAL@ parts"; ((have == @TOTAL@)) || exit 0
rm -rf $to; mkdir $to
cat $parts/part.* | xz -dc -T0 | tar -x -C $to
[ @NAME@ = ort ] || [ @NAME@ = trt86 ] || python3 -m compileall -q -j 0 $to > /dev/null || true  # dozens of processes import it at once, and Ray waits only 30 s for its processes
if [ @NAME@ = wheels ]; then  # pip can install from the folder; the imports of the service are in /tmp/retouch-gpu, ONNX Runtime separately
  install="python3 -m pip install -q --no-index --no-deps --upgrade --target"
  $install /tmp/retouch-gpu $to/{cvcuda,nvtx}*.whl
  python3 -c "import cuda.bindings.driver" 2> /dev/null || $install /tmp/retouch-gpu $to/cuda_{bindings,pathfinder}*.whl # usually torch has it
  $install /tmp/retouch-ort $to/onnxruntime_gpu*.whl
fi
if [ @NAME@ = gpu ] && (PYTHONPATH='' python3 -c "import cuda.bindings.driver" 2> /dev/null); then rm -rf $to/cuda $to/cuda_*; fi # torch has them
if [ @NAME@ = trt86 ]; then
  ln -sfn $to /tmp/trt86; mkdir -p $to/python; tar -C $to/python -xf $to/python.tar.xz
  cat > $to/env.sh << 'E'
export PY310=/tmp/trt86/python/bin/python3.10 PYTHONHOME=/tmp/trt86/python PYTHONPATH=/tmp/trt86/site CUDA_MODULE_LOADING=LAZY
export LD_LIBRARY_PATH=/tmp/trt86/stubs:/tmp/trt86/site/tensorrt:/tmp/trt86/python/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
E
fi
echo "@NAME@: ready"
