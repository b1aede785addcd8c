#!/usr/bin/env bash
# `retouch serve` on one GPU with 16 cores and on two with 32. First: site unpacked, prepare.sh done (/tmp/results/serve/prepared). At most 240 s, alone on the machine.
# FAKE=1 rehearses it without a GPU.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  SECONDS=0
  export RETOUCH_SLOTS_MB=128  # page-locking touches all of it
  local gpus=2 first="taskset -c 0-15" second="taskset -c 16-31" task="--task translate" heavy=20 most=26 w512="8 11 14" w256="10 13" wfake=10
  if [ -n "${FAKE:-}" ]; then
    first="" second="" task="" heavy=1 most=2 w512="1 2" w256="1 2" wfake=1
  else
    gpus=$(nvidia-smi -L | grep -c '^GPU')
  fi
  { nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used --format=csv; nproc; uptime; df -h $TMPDIR; lscpu | head -25; } > $OUT/host.txt 2>&1
  served() {  # NAME
    if [ -z "${FAKE:-}" ]; then echo "--engine inductor --models-dir $MODELS/$1 --model $1"; else echo "--engine fake --fake-batch-ms 40"; fi
  }
  front_ends() {  # NAME LIMIT_S ARGUMENT...
    local name=$1 limit=$2; shift 2
    timeout -k 8 $limit $PIN python3 benchmarks/front_ends.py --cache $CACHE --no-save --json $OUT/$name.json "$@" > $OUT/$name.log 2>&1
    echo "$name: exit $? at $SECONDS s" >> $OUT/steps.txt
  }
  pconv() {  # SIDE CONNECTIONS WORKERS...
    local side=$1 connections=$2; shift 2
    front_ends pconv_$side 130 $(served pconv_$side) --side $side --batch 32 --workers "$@" --engine-processes 1 \
      --connections $connections --clients 2 --load 0.7 --seconds 4 --rounds 2
  }
  fake() {  # SIDE WORKERS: the same without a GPU; engine processes that only copy
    front_ends fake_$1 30 --engine fake --fake-batch-ms 0 --side $1 --batch 32 --workers $2 --engine-processes 4 --connections 256 \
      --clients 2 --seconds 4 --rounds 1
  }
  if ((gpus >= 2)); then
    PIN=""
    front_ends two_gpus 95 $(served resnet_heavy) $task --side 768 --batch 4 --workers $heavy --engine-processes 1 2 --connections 128 \
      --clients 2 --seconds 4 --rounds 3
    (export CUDA_VISIBLE_DEVICES=0; PIN=$first; pconv 512 256 $w512) &
    (export CUDA_VISIBLE_DEVICES=1; PIN=$second; pconv 256 384 $w256; fake 256 $wfake) &
    wait
    local left=$((232 - SECONDS))
    if ((left > 40)); then  # what 32 cores let through to two GPUs
      PIN=""
      front_ends two_gpus_pconv_512 $left $(served pconv_512) --side 512 --batch 32 --no-engine-alone --workers $most \
        --engine-processes 1 2 --connections 512 --clients 3 --seconds 4 --rounds 2
    fi
  else
    PIN=$first
    pconv 512 256 $w512
    pconv 256 384 $w256
    fake 256 $wfake
  fi
  uptime >> $OUT/host.txt; ls -la $OUT; cat $OUT/steps.txt
}
main "$@"; exit
