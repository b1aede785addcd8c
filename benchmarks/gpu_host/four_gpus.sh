#!/usr/bin/env bash
# Queues the open measurements (docs/measurements/gpu.md, "Open on a GPU") as jobs of lanes (lanes.sh) on a host with four GPUs and 64 cores. Run these
# commands on one host, in this order; the folders copied for a command are at most 64 MiB, including the repository's 11 MiB:
#   four_gpus.sh stage DATA        when site (pack.sh site) and DATA are unpacked (the data for gpu_host.sh stage, and features/vgg16.safetensors with
#                                  all five blocks, for FillNet)
#   four_gpus.sh serve             when gpu (pack.sh gpu) is unpacked and facades/*.jpg are in $ASSETS: requests by kind, 50 facades
#   four_gpus.sh train START END_S   START has initial.pth, judge.pth and projected.pth of an earlier run, if available, and val (photographs for monitoring);
#                                  photo shards are in $WORK/photos
#   four_gpus.sh int8              when ort (pack.sh ort) is unpacked and photos/5, photos8 and cases.npz are in $ASSETS
#   lanes.sh wait S by=T; four_gpus.sh collect     repeatedly: copies the results so far to $OUT
#   NAME=fill CONFIG=training/configs/fill-continued.toml fill_host.sh collect    the fill's weights
# FillNet is trained from the weights in START on GPUs 2 and 3 and half of the cores, until END_S seconds after the first lane began. All other jobs
# use GPUs 0 and 1 and the other cores, and are stopped while one of them is timed. FAKE=1: every job sleeps for a second, to rehearse the order.
# FILL_EXTRA: more flags of `fit` for FillNet.
# ONE=1: for a host with one GPU and 16 cores: the requests at 512², int8, and FillNet, which is stopped while the others are timed.
# TWO=1: for a host with two GPUs and 32 cores: the requests at 512² on 16 cores, partial convolution on both GPUs at a global batch
#        of 1,024, and FillNet on both, which is stopped while the others are timed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export REPO=${REPO:-/tmp/gw/repo} ASSETS=${ASSETS:-/tmp/gw/assets} RESULTS=${RESULTS:-/tmp/gw/results} LOGS=${LOGS:-/tmp/gw/logs}
export WORK=${WORK:-/tmp/gw/training} LANES=${LANES:-/tmp/lanes} PATH=/tmp/retouch-gpu/bin:$PATH
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
SERVE_CORES=${SERVE_CORES:-0-15} RACE_CORES=${RACE_CORES:-16-31} PAIR_CORES=${PAIR_CORES:-0-31} FILL_CORES=${FILL_CORES:-32-63}
FILL_GPUS=2,3 FILL_LOCK=fill RACE_GPU=1 WARM_GPUS=1,2 SERVED="pconv_512 pconv_256 unet_256" LAST_SERVED=serve_256
SHAPES="256:32 384:16" # of one process: half of the batches of $CONFIG, as two GPUs train
if [ -n "${ONE:-}" ]; then
  FILL_CORES=$SERVE_CORES RACE_CORES=$SERVE_CORES FILL_GPUS=0 FILL_LOCK=timed RACE_GPU=0 SERVED=pconv_512
  LAST_SERVED=serve_512 SHAPES="256:64 384:32"
fi
if [ -n "${TWO:-}" ]; then
  FILL_CORES=$PAIR_CORES FILL_GPUS=0,1 FILL_LOCK=timed WARM_GPUS=0,1 SERVED=pconv_512 LAST_SERVED=serve_512
fi
CONFIG=training/configs/fill-continued.toml
lanes() { bash "$REPO/benchmarks/gpu_host/lanes.sh" "$@"; }
job() { # LANE JOB LIMIT_S [needs=...] [alone] [NAME=VALUE...] COMMAND..., in the repository; its files go to $RESULTS/JOB
  local lane=$1 name=$2 limit=$3 words=(); shift 3
  while :; do
    case ${1-} in
      needs=* | alone | [A-Za-z]*=*) words+=("$1"); shift ;;
      *) break ;;
    esac
  done
  if [ -n "${FAKE:-}" ]; then set -- sleep 1; fi
  mkdir -p "$RESULTS/$name"
  lanes queue "$lane" "$name" "$limit" "${words[@]}" "OUT=$RESULTS/$name" "$@"
}
window() { # LANE JOB LIMIT_S STEPS [needs=...] [alone] [NAME=VALUE...]: steps of gpu_window.sh
  local lane=$1 name=$2 limit=$3 steps=$4; shift 4
  # shellcheck disable=SC2086 # one word for each step
  job "$lane" "$name" "$limit" "$@" SERVE_S=300 bash "$REPO/benchmarks/gpu_host/gpu_window.sh" $steps
}
stage() { # DATA
  (. "$here/env.sh") # copies the repository, once
  mkdir -p "$WORK/logs"
  CARRIED=$(realpath "$1") OUT=$RESULTS/stage bash "$REPO/training/gpu_host.sh" stage
}
serve() {
  cd "$REPO" || return # the folder in which lanes start their jobs
  lanes begin served "$SERVE_CORES" timed 0
  lanes begin m "$SERVE_CORES" timed 0
  window served served_published 300 publish_random "SERVED=$SERVED"
  window served served_compiled 600 compile_served "SERVED=$SERVED"
  window m serve_512 330 serve needs=served_compiled alone SIDES=512 ROUNDS=3
  if [ -n "${ONE:-}${TWO:-}" ]; then return; fi
  window m saving 130 saving needs=served_published alone
  window m serve_256 330 serve needs=served_compiled alone SIDES=256 ROUNDS=3
  window m pipeline 180 pipeline needs=served_compiled,serve_256 alone
  window m profile 330 profile needs=served_compiled,serve_512 alone
}
train() { # START END_S
  local scaling="bash training/gpu_host.sh scaling" lane extra="--set initial=$WORK/initial.pth ${FILL_EXTRA:-}"
  local compiled="OMP_NUM_THREADS=2 COMPILE_THREADS=3 TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton"
  compiled+=" PYTHONPATH=$WORK/site:/tmp/retouch-site:$REPO PYTHONUNBUFFERED=1"
  compiled+=" TORCH_NCCL_ENABLE_MONITORING=0" # NCCL's monitor would end a process that lanes stop for minutes
  cp -r "$1/initial.pth" "$1/val" "$WORK/"
  local judge
  for judge in judge projected; do
    if [ -e "$1/$judge.pth" ]; then cp "$1/$judge.pth" "$WORK/"; extra+=" --set $judge.initial=$WORK/$judge.pth"; fi
  done
  local fill="CONFIG=$CONFIG CARRIED=$REPO NAME=fill"
  cd "$REPO" || return
  lanes begin fill_256 "$FILL_CORES" $FILL_LOCK ${FILL_GPUS%,*}
  lanes begin fill_384 "$FILL_CORES" $FILL_LOCK ${FILL_GPUS#*,}
  lanes begin fill "$FILL_CORES" $FILL_LOCK $FILL_GPUS
  # shellcheck disable=SC2086 # settings are words
  {
    job fill_256 fill_256 720 $compiled $fill SHAPES=${SHAPES% *} "EXTRA=$extra" bash training/fill_host.sh prepare_all 0
    job fill_384 fill_384 600 needs=fill_256,$LAST_SERVED $compiled $fill SHAPES=${SHAPES#* } "EXTRA=$extra" bash training/fill_host.sh prepare_all 0
    job fill fill 1700 $compiled $fill "SHAPES=$SHAPES" "EXTRA=$extra" bash benchmarks/gpu_host/four_gpus.sh fit_fill "$2"
  }
  if [ -n "${TWO:-}" ]; then
    scale_on_two $LAST_SERVED
  elif [ -z "${ONE:-}" ]; then
    scale_on_two pipeline
    diverse_on_two
  fi
}
scale_on_two() { # JOB to wait for; uses the variables of `train`
  lanes begin warm_s "$RACE_CORES" timed $WARM_GPUS
  lanes begin pair "$PAIR_CORES" timed 0,1
  # shellcheck disable=SC2086 # settings are words
  {
    job warm_s warm_s 1000 $compiled BATCHES=1024 PAIRS= $scaling --steps 12 --seconds 400 --limit 990
    job pair scaling 150 needs=warm_s,$1 alone $compiled BATCHES=1024 PAIRS= $scaling --seconds 70 --limit 140
  }
}
diverse_on_two() { # after `scale_on_two`
  for lane in warm_1 warm_2; do lanes begin $lane "$RACE_CORES" timed $WARM_GPUS; done
  warm 1 bf16-compiled-graphs
  warm 2 bf16-compiled-graphs-2gpu
  # shellcheck disable=SC2086
  job pair pdgan 120 needs=scaling,warm_1,warm_2 alone $compiled CELLS=bf16-compiled-graphs,bf16-compiled-graphs-2gpu \
    bash training/study_host.sh one pdgan --no-profile
}
warm() { # LANE CELL: PD-GAN's compiled code, which takes more than five minutes; uses the variables of `train`
  # shellcheck disable=SC2086
  job "warm_$1" "warm_$1" 1200 $compiled STUDIES=pdgan ROUNDS=$2 FOLDER=$2 WARM_S=1190 LIMIT_S=1180 bash training/study_host.sh warm_all
}
fit_fill() { # END_S after the first lane began
  exec bash training/fill_host.sh train $(($(<"$LANES/zero") + $1 - $(date +%s)))
}
int8() {
  lanes begin int8 "$RACE_CORES" timed $RACE_GPU
  window int8 int8 300 "truth int8" needs=$LAST_SERVED alone "INT8S=photos5:onnxrt-cuda photos8:onnxrt-cuda"
}
collect() {
  mkdir -p "$RESULTS/fill"
  cp "$WORK/fill/log.jsonl" "$RESULTS/fill/" 2> /dev/null
  find "$WORK/fill/sheets" -name '*.png' 2> /dev/null | sort | tail -n 1 | xargs -r -I{} cp {} "$OUT/fill.png"
  tail -n 1 "$WORK/fill/log.jsonl" "$WORK"/fill/prepare-0.log "$LANES"/jobs/fill*/log 2> /dev/null
  PACK="$RESULTS $LOGS $WORK/logs $WORK/studies $LANES" lanes pack
  lanes status
}
case ${1-} in
  stage | serve | train | fit_fill | int8 | collect) "$@"; exit ;;
  *) echo "four_gpus.sh stage | serve | train | int8 | collect; its head says what each needs" >&2; exit 2 ;;
esac
