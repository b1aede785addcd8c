#!/usr/bin/env bash
# Compares the engines, FP16 (../gpu_engines/compare.py): `engines.sh publish|compile|plans|measure`, in this order; one GPU
# (CUDA_VISIBLE_DEVICES). Needs site and wheels unpacked, and TensorRT 8.6.0 in /tmp/trt86 (trt86.txt) for the steps that use it.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/engines; mkdir -p $OUT
  work=${ENGINES:-/tmp/engines}
  trap keep EXIT; trap 'exit 143' TERM
  local words=(--run-s 0.15 --trt-env /tmp/trt86/env.sh --trt-level 2 --trt-at-once 3 --seconds 1500)
  local fast="onnxrt-cuda inductor" all="eager inductor onnxrt-cuda trt" rows="pconv_256 unet_256 pconv_512 resnet_9blocks"
  words+=(--work $work --json $OUT/engines.json)
  use_onnxruntime_cuda
  case $1 in
    publish) python3 -m benchmarks.gpu_engines.engine_models $2 $work ;;
    compile) python3 -m benchmarks.gpu_engines.compare "${words[@]}" --rows $rows --engines $fast --steps prepare ;;
    plans) python3 -m benchmarks.gpu_engines.compare "${words[@]}" --rows $rows --engines trt --steps prepare ;;
    measure) python3 -m benchmarks.gpu_engines.compare "${words[@]}" --rows $rows --engines $all --steps measure ;;
  esac
}
keep() { # keep figures also at the time limit: compare.py writes engines.json at its end, but a line for each figure at once
  tail -n 5 $work/*.log; cp $work/*.jsonl $work/*.prepared $OUT/ 2>/dev/null
}
main "$@"; exit
