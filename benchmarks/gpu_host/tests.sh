#!/usr/bin/env bash
# Runs `make test-gpu` under the host's Python (`tests.sh 312`) or TensorRT 8.6.0's CPython 3.10 (`tests.sh 310`), or a short run under
# compute-sanitizer (`tests.sh sanitizer`). Needs site and wheels unpacked, and TensorRT in /tmp/trt86 (trt86.txt).
set -x
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/tests; mkdir -p $OUT
  case $1 in
    312) use_onnxruntime_cuda; gpu_tests python3 ;;
    310) use_tensorrt86; gpu_tests $PY310 ;;
    sanitizer) sanitizer ;;
  esac > $OUT/$1.log 2>&1
  local code=$?
  echo "exit $code" >> $OUT/$1.log
  tail -n 15 $OUT/$1.log
  return $code
}
gpu_tests() { # PYTHON: what `make test-gpu` does, for a host without make
  if command -v make; then make test-gpu GPU_PYTHONS=$1; else $1 -m pytest -m gpu tests/gpu tests/engines tests/training/loop; fi
}
sanitizer() { # overlapped batches against one at a time; every access to the GPU's memory is checked
  local check="compute-sanitizer --tool memcheck --error-exitcode 1 --target-processes application-only --launch-timeout 0"
  local run="-m benchmarks.gpu.pipeline --max-batch 4 --batches 20 --only arithmetic reference --cache /tmp/sanitizer-cache"
  local small=/tmp/sanitizer/small/1 tiny=/tmp/sanitizer/tiny/1
  compute-sanitizer --version
  [ -e $small ] || ENGINES=/tmp/sanitizer bash benchmarks/gpu_host/engines.sh publish small
  [ -e $tiny ] || PYTHONPATH=.:$PYTHONPATH python3 -c "from pathlib import Path
from tests.gpu.test_devices import graph_model
graph_model(Path('/tmp/sanitizer'))"
  local code=0
  timeout 100 python3 $run --engine inductor --model $small --out $OUT/unsanitized-inductor.json || code=1
  timeout 180 $check python3 $run --engine inductor --model $small --out $OUT/sanitized-inductor.json || code=1
  (
    use_tensorrt86
    timeout 100 $PY310 $run --engine trt --model $tiny --out $OUT/unsanitized-trt.json || code=1
    timeout 180 $check $PY310 $run --engine trt --model $tiny --out $OUT/sanitized-trt.json || code=1
    exit $code
  ) || code=1
  return $code
}
main "$@"; exit
