#!/usr/bin/env bash
# Measures from bytes to bytes without HTTP (../gpu/pipeline.py), `inductor`: pconv_512, and 50 facades with saving. CUDA_VISIBLE_DEVICES, PIN.
# Needs site unpacked, prepare.sh done, facades and pix2pix_facades.pth in $CARRIED.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/pipeline; mkdir -p $OUT
  local code=0 carried=${CARRIED:-/tmp/carried} run="$PIN python3 -m benchmarks.gpu.pipeline --engine inductor --cache $CACHE --max-batch 32"
  [ -e $MODELS/facades/facades/1 ] || timeout 150 python3 -m retouch export $carried/pix2pix_facades.pth --name facades --program --output $MODELS/facades || code=$?
  timeout 150 $run --model $MODELS/facades/facades/1 --images $carried/facades/test --count 50 --only engine latency variants variants variants \
    --out $OUT/facades.json || code=$?
  timeout 150 $run --model $MODELS/pconv_512/pconv_512/1 --images $carried/facades/test --side 512 --many 1024 \
    --only device latency throughput --out $OUT/pconv_512.json || code=$?
  return $code
}
main "$@"; exit
