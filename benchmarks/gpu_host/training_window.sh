#!/usr/bin/env bash
# Queues the open measurements of training on two GPUs (docs/measurements/gpu.md, "Open on a GPU") as jobs of lanes (lanes.sh). Run these commands on one
# host, in this order; the folders of a command, with the tree of 11 MiB, are at most 64 MiB:
#   training_window.sh stage DATA          when site (pack.sh site) and DATA (the data for gpu_host.sh stage) are unpacked
#   training_window.sh begin START END_S   START has initial.pth, judge.pth (of an earlier run, if there is one) and val (photographs for monitoring);
#                                          photo shards are in $WORK/photos
#   lanes.sh wait S by=T; training_window.sh collect     repeatedly: copies the results so far to $OUT
#   NAME=fill CONFIG=training/configs/fill-continued.toml fill_host.sh collect    the fill's weights
# FillNet is trained from the weights in START, on both GPUs, while PD-GAN's code is compiled, until END_S seconds after the first lane began.
# Each lane has all CORES. FAKE=1: every job sleeps for a second, to rehearse the order.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export REPO=${REPO:-/tmp/tw/repo} WORK=${WORK:-/tmp/tw/training} RESULTS=${RESULTS:-/tmp/tw/results} LANES=${LANES:-/tmp/lanes} CORES=${CORES:-0-31}
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton PYTHONPATH=$WORK/site:/tmp/retouch-site:$REPO PYTHONUNBUFFERED=1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OMP_NUM_THREADS=2 COMPILE_THREADS=3
CONFIG=training/configs/fill-continued.toml
lanes() { bash "$REPO/benchmarks/gpu_host/lanes.sh" "$@"; }
job() { # LANE JOB LIMIT_S [needs=...] [alone] [NAME=VALUE...] COMMAND..., in the repository; its files go to $RESULTS/JOB
  local lane=$1 name=$2 limit=$3 words=(); shift 3
  while :; do
    case ${1-} in needs=* | alone | [A-Za-z]*=*) words+=("$1"); shift ;; *) break ;; esac
  done
  if [ -n "${FAKE:-}" ]; then set -- sleep 1; fi
  mkdir -p "$RESULTS/$name"
  lanes queue "$lane" "$name" "$limit" "${words[@]}" "OUT=$RESULTS/$name" "$@"
}
stage() { # DATA
  (. "$here/env.sh") # copies the repository, once
  mkdir -p "$WORK/logs"
  CARRIED=$(realpath "$1") OUT=$RESULTS/stage bash "$REPO/training/gpu_host.sh" stage
}
begin() { # START END_S
  local scaling="bash training/gpu_host.sh scaling" lane extra="--set initial=$WORK/initial.pth"
  cp -r "$1/initial.pth" "$1/val" "$WORK/"
  if [ -e "$1/judge.pth" ]; then cp "$1/judge.pth" "$WORK/"; extra+=" --set judge.initial=$WORK/judge.pth"; fi
  export FILL="CONFIG=$CONFIG CARRIED=$REPO NAME=fill"
  cd "$REPO" || return # where lanes begin their jobs
  for lane in warm_s warm_1 warm_2 both; do lanes begin $lane "$CORES" 0,1; done
  lanes begin gpu0 "$CORES" 0
  lanes begin gpu1 "$CORES" 1
  job warm_s warm_s 410 BATCHES=512 PAIRS= $scaling --steps 12 --seconds 200 --limit 400
  warm 1 bf16-compiled-graphs
  warm 2 bf16-compiled-graphs-2gpu
  # shellcheck disable=SC2086 # settings are words
  job gpu0 fill_256 420 $FILL SHAPES=256:32 "EXTRA=$extra" bash training/fill_host.sh prepare_all 0
  # shellcheck disable=SC2086
  job gpu1 fill_384 420 $FILL SHAPES=384:16 "EXTRA=$extra" bash training/fill_host.sh prepare_all 0
  job both scaling 150 needs=warm_s,fill_256,fill_384 alone BATCHES=512 PAIRS= $scaling --seconds 70 --limit 140
  # shellcheck disable=SC2086
  job both fill 1700 needs=scaling,fill_256 $FILL "EXTRA=$extra" bash benchmarks/gpu_host/training_window.sh fit_fill "$2"
  job both pdgan 100 needs=fill,warm_1,warm_2 CELLS=bf16-compiled-graphs,bf16-compiled-graphs-2gpu \
    bash training/study_host.sh one pdgan --no-profile
}
warm() { # LANE CELL: PD-GAN's compiled code, which takes more than five minutes
  job "warm_$1" "warm_$1" 800 STUDIES=pdgan ROUNDS=$2 FOLDER=$2 WARM_S=790 LIMIT_S=780 bash training/study_host.sh warm_all
}
fit_fill() { # END_S after the first lane began
  exec bash training/fill_host.sh train $(($(<"$LANES/zero") + $1 - $(date +%s)))
}
collect() {
  cp "$WORK/fill/log.jsonl" "$RESULTS/fill/" 2> /dev/null
  find "$WORK/fill/sheets" -name '*.png' 2> /dev/null | sort | tail -n 1 | xargs -r -I{} cp {} "$OUT/fill.png"
  tail -n 1 "$WORK/fill/log.jsonl" "$WORK"/fill/prepare-0.log "$LANES"/jobs/fill*/log 2> /dev/null
  PACK="$RESULTS $WORK/logs $WORK/studies $LANES" lanes pack
  lanes status
}
case ${1-} in
  stage | begin | fit_fill | collect) "$@"; exit ;;
  *) echo "training_window.sh stage | begin | collect; its head says what each needs" >&2; exit 2 ;;
esac
