#!/usr/bin/env bash
# What training and one plan still want of two GPUs (docs/measurements/gpu.md, "Open on a GPU"), as jobs of lanes (lanes.sh). In this order, in commands
# of one host; a command's folders, with the tree of 11 MiB, are at most 64 MiB:
#   site (pack.sh site), data (what gpu_host.sh stage takes), unpacked: training_window.sh stage DATA
#   photo shards in $WORK/photos:                                        training_window.sh begin
#   all parts of trt86 unpacked, whenever they are there:                training_window.sh plan
#   a diverse run of house fronts goes on from $WORK/fronts.pth:         training_window.sh fronts SECONDS
#   lanes.sh wait S by=T; training_window.sh collect                     again and again: what there is comes back to $OUT
# Each lane has all CORES. FAKE=1: every job sleeps for a second, to rehearse the order.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export REPO=${REPO:-/tmp/tw/repo} WORK=${WORK:-/tmp/tw/training} RESULTS=${RESULTS:-/tmp/tw/results} LANES=${LANES:-/tmp/lanes} CORES=${CORES:-0-31}
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton PYTHONPATH=/tmp/retouch-site:$REPO PYTHONUNBUFFERED=1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OMP_NUM_THREADS=2 COMPILE_THREADS=3
QUICK="pgn pix2pixhd pconv pix2pix dcgan" # PD-GAN compiles for more than four minutes
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
  CARRIED=$1 OUT=$RESULTS/stage bash "$REPO/training/gpu_host.sh" stage
  [ -e "$WORK/val" ] || ln -s "$WORK/eval/bsds500_val" "$WORK/val"
}
begin() {
  local study="bash training/study_host.sh" scaling="bash training/gpu_host.sh scaling" cell lane
  cd "$REPO" || return # where lanes begin their jobs
  for lane in warm_1 warm_2 warm_s both; do lanes begin $lane "$CORES" 0,1; done
  for lane in gpu0 plans; do lanes begin $lane "$CORES" 0; done
  lanes begin gpu1 "$CORES" 1
  job plans published 300 OMP_NUM_THREADS=8 python3 -m benchmarks.gpu_engines.engine_models big_lama_1024 "$WORK/level0"
  for cell in bf16-compiled-graphs bf16-compiled-graphs-2gpu; do
    lane=warm_1; [ $cell = bf16-compiled-graphs ] || lane=warm_2
    job $lane $lane 180 "STUDIES=$QUICK" ROUNDS=$cell FOLDER=$cell AT_ONCE=5 WARM_S=165 $study warm_all
  done
  job warm_s warm_s 180 BATCHES=384 PAIRS=512 $scaling --steps 12 --seconds 90 --limit 165
  job both scaling 190 needs=warm_1,warm_2,warm_s BATCHES=384 PAIRS=512 $scaling --seconds 70 --limit 175
  job both studies 190 needs=scaling "STUDIES=$QUICK" LIMIT_S=60 "ROUNDS=bf16-compiled-graphs bf16-compiled-graphs-2gpu" $study run 170
  job gpu0 pdgan 300 needs=studies CELLS=fp32,bf16-compiled-graphs $study one pdgan --no-apart
  job gpu1 replay_test 400 needs=studies python3 -m pytest -W default -p no:cacheprovider -n 8 -v --tb=short -m gpu tests/training/loop
  fill gpu0 plain
  fill gpu1 graphs --set cuda_graphs=true
}
fill() { # LANE NAME FLAGS...: FillNet's steps compiled, then timed on a GPU that nothing else has
  local lane=$1 name=$2; shift 2
  local settings=(CONFIG=training/configs/fill.toml SHAPES=256:32 "CARRIED=$REPO" "EXTRA=$*")
  job "$lane" "fill_${name}_warm" 400 needs=studies "${settings[@]}" "NAME=$name-warm" bash training/fill_host.sh prepare_all 0
  job "$lane" "fill_$name" 200 "needs=fill_${name}_warm" alone "${settings[@]}" "NAME=$name" bash training/fill_host.sh prepare_all 0
}
plan() { # big-lama 1024² by TensorRT 8.6.0
  local compare="python3 -m benchmarks.gpu_engines.compare --work $WORK/level0 --rows big_lama_1024 --batches 1 8 --engines public trt"
  compare+=" --trt-env /tmp/trt86/env.sh --trt-level 0 --trt-at-once 5 --seconds 900"
  job plans plan_built 900 needs=published,studies $compare --json "$RESULTS/plan_built/plan.json" --steps prepare
  job plans plan_measured 200 needs=plan_built $compare --json "$RESULTS/plan_measured/plan.json" --steps measure
}
fronts() { # SECONDS
  local part='phase=[{part="diverse",steps=9000,batch=16,learning_rate=2e-4,hold=0.5,warm_up=500,l1=1.0,perceptual=10.0,diversity=0.3}]'
  local data=("data.path=$WORK/photos" "data.validation=$WORK/fronts/test" "features=$WORK/features/vgg16_pool3.safetensors")
  local words=("initial=$WORK/fronts.pth" "output=$WORK/runs/fronts" "seconds=$1" "${data[@]}" compile=true discriminator_rate=1.0 "$part")
  job gpu1 fronts $(($1 + 150)) needs=studies python3 -m training fit training/configs/fronts-diverse.toml "${words[@]/#/--set=}"
}
collect() {
  cp "$WORK"/level0/*.jsonl "$WORK"/level0/*.log "$RESULTS/" 2> /dev/null
  tail -n 5 "$WORK"/{plain,graphs}*/prepare-0.log 2> /dev/null
  if [ -e "$WORK/runs/fronts/generator.pth" ]; then split -b 15M -d "$WORK/runs/fronts/generator.pth" "$OUT/fronts.pth."; fi
  find "$WORK/runs" -name '*.png' 2> /dev/null | sort | tail -n 2 | xargs -r -I{} cp {} "$OUT/"
  PACK="$RESULTS $WORK/logs $WORK/studies $LANES" lanes pack
  lanes status
}
case ${1-} in
  stage | begin | plan | fronts | collect) "$@"; exit ;;
  *) echo "training_window.sh stage | begin | plan | fronts | collect; its head says what each needs" >&2; exit 2 ;;
esac
