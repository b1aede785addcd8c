#!/usr/bin/env bash
# What training still wants of two GPUs (docs/measurements/gpu.md, "Open on a GPU"), as jobs of lanes (lanes.sh). In this order, in commands of one
# host; a command's folders, with the tree of 11 MiB, are at most 64 MiB:
#   site (pack.sh site), data (what gpu_host.sh stage takes), unpacked: training_window.sh stage DATA
#   START/initial.pth, START/judge.pth (of an earlier run, if there is one) and START/val (photographs to watch runs by), photo shards in
#   $WORK/photos:                                                        training_window.sh begin START END_S
#   lanes.sh wait S by=T; training_window.sh collect                     again and again: what there is comes back to $OUT
#   NAME=strong CONFIG=... fill_host.sh collect                          a fill's weights; stronger is the other
# FillNet goes on from these weights, a run on each GPU, while PD-GAN's code is compiled, until END_S after the first lane began.
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
  local scaling="bash training/gpu_host.sh scaling" lane judge=()
  cp -r "$1/initial.pth" "$1/val" "$WORK/"
  if [ -e "$1/judge.pth" ]; then cp "$1/judge.pth" "$WORK/"; judge=(--set "judge.initial=$WORK/judge.pth"); fi
  cd "$REPO" || return # where lanes begin their jobs
  for lane in warm_s warm_1 warm_2 both; do lanes begin $lane "$CORES" 0,1; done
  lanes begin gpu0 "$CORES" 0
  lanes begin gpu1 "$CORES" 1
  job warm_s warm_s 330 BATCHES=512 PAIRS= $scaling --steps 12 --seconds 200 --limit 320
  warm 1 bf16-compiled-graphs
  warm 2 bf16-compiled-graphs-2gpu
  fill gpu0 strong "$2" "${judge[@]}"
  fill gpu1 stronger "$2" --set shares.adversarial=1.5 --set shares.patches=0.1 --set patches.rate=0.33 "${judge[@]}"
  job both scaling 150 needs=warm_s,fill_strong_warm,fill_stronger_warm BATCHES=512 PAIRS= $scaling --seconds 70 --limit 140
  job both pdgan 100 needs=fill_strong,fill_stronger,warm_1,warm_2 CELLS=bf16-compiled-graphs,bf16-compiled-graphs-2gpu \
    bash training/study_host.sh one pdgan --no-apart
}
warm() { # LANE CELL: PD-GAN's compiled code, which takes more than five minutes
  job "warm_$1" "warm_$1" 800 STUDIES=pdgan ROUNDS=$2 FOLDER=$2 WARM_S=790 LIMIT_S=780 bash training/study_host.sh warm_all
}
fill() { # LANE NAME END_S FLAGS...: FillNet's steps compiled, then trained
  local lane=$1 name=$2 end=$3; shift 3
  local settings=("CONFIG=$CONFIG" "SHAPES=256:32 384:16" "CARRIED=$REPO" "NAME=$name" "EXTRA=--set initial=$WORK/initial.pth $*")
  job "$lane" "fill_${name}_warm" 360 "${settings[@]}" bash training/fill_host.sh prepare_all 0
  job "$lane" "fill_$name" 1700 "needs=scaling,fill_${name}_warm" "${settings[@]}" bash benchmarks/gpu_host/training_window.sh fit_fill "$end"
}
fit_fill() { # END_S after the first lane began
  local seconds=$(($(<"$LANES/zero") + $1 - $(date +%s))) set="output=$WORK/$NAME data.path=$WORK/photos data.validation=$WORK/val data.threads=12"
  # shellcheck disable=SC2086 # flags are words
  exec python3 -m training fit "$CONFIG" $(printf -- '--set %s ' $set "features=$WORK/features/vgg16_pool3.safetensors" capacity_gb=24 seconds=$seconds) $EXTRA
}
collect() {
  local name
  for name in strong stronger; do
    cp "$WORK/$name/log.jsonl" "$RESULTS/fill_$name/" 2> /dev/null
    find "$WORK/$name/sheets" -name '*.png' 2> /dev/null | sort | tail -n 1 | xargs -r -I{} cp {} "$OUT/$name.png"
    tail -n 1 "$WORK/$name/log.jsonl" "$WORK/$name"/prepare-0.log 2> /dev/null
  done
  PACK="$RESULTS $WORK/logs $WORK/studies $LANES" lanes pack
  lanes status
}
case ${1-} in
  stage | begin | fit_fill | collect) "$@"; exit ;;
  *) echo "training_window.sh stage | begin | collect; its head says what each needs" >&2; exit 2 ;;
esac
