#!/usr/bin/env bash
# Measures `retouch serve` over HTTP: `serve.sh STEP...`, one of two_gpus, two_gpus_pconv_512 (alone on the machine), pconv_512, pconv_256, fake.
# W512="16 12": the numbers of front ends; CUDA_VISIBLE_DEVICES; PIN="taskset -c 0-15": as many cores as a host with one GPU has. Needs site
# unpacked, and prepare.sh done. FAKE=1 rehearses it without a GPU.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  SECONDS=0
  local task="--task translate" heavy=20 most=26 w512=${W512:-16} w256=${W256:-16} wfake=10
  if [ -n "${FAKE:-}" ]; then
    task="" heavy=1 most=2 w512=1 w256=1 wfake=1
  fi
  { nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used --format=csv; nproc; uptime; df -h $TMPDIR; lscpu | head -25; } > $OUT/host.txt 2>&1
  served() {  # NAME
    if [ -z "${FAKE:-}" ]; then echo "--engine inductor --models-dir $MODELS/$1 --model $1"; else echo "--engine fake --fake-batch-ms 40"; fi
  }
  front_ends() {  # NAME LIMIT_S ARGUMENT...
    local name=$1 limit=$2; shift 2
    timeout -k 8 $limit ${PIN:-} python3 -m benchmarks.load.front_ends --cache $CACHE --no-save --json $OUT/$name.json "$@" > $OUT/$name.log 2>&1
    echo "$name: exit $? at $SECONDS s" >> $OUT/steps.txt
  }
  pconv() {  # SIDE CONNECTIONS WORKERS...
    local side=$1 connections=$2; shift 2
    front_ends pconv_$side 170 $(served pconv_$side) --side $side --batch 32 --workers "$@" --engine-processes 1 \
      --connections $connections --clients 2 --load 0.7 --seconds 4 --rounds 2
  }
  fake() {  # SIDE WORKERS: the same without a GPU; engine processes that only copy
    front_ends fake_$1 30 --engine fake --fake-batch-ms 0 --side $1 --batch 32 --workers $2 --engine-processes 4 --connections 256 \
      --clients 2 --seconds 4 --rounds 1
  }
  for step in "${@:-two_gpus}"; do
    case $step in
      two_gpus) # a generator so heavy that the host is not the bottleneck
        PIN="" front_ends two_gpus 95 $(served resnet_heavy) $task --side 768 --batch 4 --workers $heavy --engine-processes 1 2 \
          --connections 128 --clients 2 --seconds 4 --rounds 3 ;;
      two_gpus_pconv_512) # the throughput of all cores for both
        PIN="" front_ends two_gpus_pconv_512 95 $(served pconv_512) --side 512 --batch 32 --no-engine-alone --workers $most \
          --engine-processes 1 2 --connections 512 --clients 3 --seconds 4 --rounds 2 ;;
      pconv_512) pconv 512 256 $w512 ;;
      pconv_256) pconv 256 384 $w256 ;;
      fake) fake 256 $wfake ;;
    esac
  done
  uptime >> $OUT/host.txt; ls -la $OUT; cat $OUT/steps.txt
}
main "$@"; exit
