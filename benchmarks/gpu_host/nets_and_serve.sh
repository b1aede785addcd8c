#!/usr/bin/env bash
# Queues nets, requests, plans and the race of engines as jobs of lanes (lanes.sh) on one GPU: `nets_and_serve.sh begin` when site and gpu are unpacked;
# `assets`, `plans` (TensorRT 8.6.0) and `raced` (ort) when their files are. Lanes compile concurrently on $CORES; lane m measures on $TIMED: nets while
# the compilers are paused, servers alone. The defaults of GPU, CORES and TIMED are for one GPU of two. FAKE=1 rehearses the servers on a CPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
GPU=${GPU:-1} CORES=${CORES:-10-31} TIMED=${TIMED:-16-31}
LAMA=${LAMA-big_lama_512 big_lama_1024 big_lama_256} OTHERS=${OTHERS-mi_gan_512 mi_gan_256 deepfillv2_512 deepfillv2_256}
PLANS=${PLANS-big_lama_512 big_lama_256 mi_gan_512 mi_gan_256 deepfillv2_256}
export REPO=${REPO:-/tmp/gw/repo} ASSETS=${ASSETS:-/tmp/gw/assets} RESULTS=${RESULTS:-/tmp/gw/results} LOGS=${LOGS:-/tmp/gw/logs}
export WORK_NETS=${WORK_NETS:-/tmp/gw/nets} PATH=/tmp/retouch-gpu/bin:$PATH
lanes() { bash "$REPO/benchmarks/gpu_host/lanes.sh" "$@"; }
nets() { # LANE JOB LIMIT_S STEP [needs=...] [NAME=VALUE...]
  local lane=$1 job=$2 limit=$3 step=$4; shift 4
  lanes queue "$lane" "$job" "$limit" "$@" LIMIT=900 AT_ONCE=4 bash "$REPO/benchmarks/gpu_host/nets.sh" "$step"
}
window() { # LANE JOB LIMIT_S STEPS [needs=...] [alone] [NAME=VALUE...]
  local lane=$1 job=$2 limit=$3 steps=$4 step; shift 4
  # shellcheck disable=SC2086 # one word for each step
  lanes queue "$lane" "$job" "$limit" "$@" SERVE_S=300 bash "$REPO/benchmarks/gpu_host/gpu_window.sh" $steps
}
begin() {
  (. "$here/env.sh") # copies the repository, once
  local lane; for lane in publish lama nets served plans; do lanes begin $lane "$CORES" "$GPU"; done
  lanes begin m "$TIMED" "$GPU"
  nets publish others_published 300 publish NETS="$OTHERS"
  nets publish lama_published 300 publish NETS="$LAMA"
  nets nets others_compiled 1000 prepare needs=others_published NETS="$OTHERS" ENGINES=inductor
  nets lama lama_compiled 1000 prepare needs=lama_published NETS="$LAMA" ENGINES=inductor
  window served served_published 300 publish_random
  window served served_compiled 600 compile_served
  window m saving 130 saving needs=served_published alone
  window m serve_512 330 serve needs=served_compiled,saving alone SIDES=512 ROUNDS=3
  nets m others_measured 500 measure needs=others_compiled NETS="$OTHERS" ENGINES="public inductor"
  nets m lama_measured 500 measure needs=lama_compiled NETS="$LAMA" ENGINES="public inductor"
  window m profile 500 profile needs=served_compiled alone
  window m serve_256 330 serve needs=served_compiled alone SIDES=256 ROUNDS=3 MINUTE=0
}
assets() {
  window m pipeline 180 pipeline needs=served_compiled,serve_256 alone
  window publish photos_published 600 publish_photos
}
plans() {
  nets plans plans_built 1200 prepare needs=lama_published NETS="$PLANS" ENGINES=trt
  nets m plans_measured 300 measure needs=plans_built NETS="$PLANS" ENGINES=trt
}
raced() {
  # generous limits, because the job is stopped while others are timed; a separate cache, because a stopped job may hold its lock
  window served raced_compiled 900 compile_raced needs=photos_published BUILD_S=800 LIMIT=500 TORCHINDUCTOR_CACHE_DIR=/tmp/gw/inductor-raced
  window m race 250 race needs=raced_compiled,pipeline alone
  window m int8 300 int8 needs=raced_compiled,race alone TORCHINDUCTOR_CACHE_DIR=/tmp/gw/inductor-raced
}
case ${1-} in
  begin | assets | plans | raced) "$1"; exit ;;
  *) echo "nets_and_serve.sh begin | assets | plans | raced; its head says what each needs" >&2; exit 2 ;;
esac
