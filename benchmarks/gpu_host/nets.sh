#!/usr/bin/env bash
# Compares public inpainting nets, FP16, with their original code in torch (../gpu_engines/compare.py): `nets.sh prepare`, which may run beside other
# work (`nets.sh publish` is its first part), then `nets.sh measure`, alone on the GPU. One GPU (CUDA_VISIBLE_DEVICES). Needs site unpacked, and
# TensorRT 8.6.0 in /tmp/trt86 (trt86.txt; without it no plans are built). Three plans are built at once; `nets.sh pause` and `nets.sh resume` stop and
# continue their builders for timed parts.
# NETS, ENGINES: only some of them; PLANS: the nets for which plans are built. AT_ONCE=4 in a lane (lanes.sh): four jobs open their engines concurrently
# and time their parts one after another. `nets.sh attention`, some minutes alone on the GPU, checks whether DeepFillv2's fused scores run under inductor, where
# an earlier form caused an illegal address (ADR 38); STEPS=prepare: only compile, beside other work; STEPS=measure: only measure.
set -x
steps=${STEPS:-prepare measure} at_once="--measure-at-once ${AT_ONCE:-1}"
LAMA="big_lama_512 big_lama_256 big_lama_1024" MIGAN="mi_gan_256 mi_gan_512" DEEPFILL="deepfillv2_256 deepfillv2_512"
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/nets; mkdir -p $OUT
  work=${WORK_NETS:-/tmp/nets}; mkdir -p $work
  trap keep EXIT; trap 'exit 143' TERM
  case $1 in
    publish) publish ;;
    prepare) prepare ;;
    measure) measure ;;
    attention) attention ;;
    pause) plans STOP ;;
    resume) plans CONT ;;
  esac
}
publish() {
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-5}
  chosen | xargs -P 4 -I NAME bash -c \
    "[ -e $work/NAME/1/manifest.json ] || timeout 300 python3 -m benchmarks.gpu_engines.engine_models NAME $work"
}
prepare() {
  publish
  local building=
  if [ -e /tmp/trt86/env.sh ] && has trt; then (NETS=${PLANS:-$(chosen)} groups trt --steps prepare) & building=$!; fi
  ! has inductor || groups inductor --steps prepare
  echo "compiled after $SECONDS s" >> $OUT/steps.txt
  [ -z "$building" ] || wait $building
  echo "prepared after $SECONDS s" >> $OUT/steps.txt
}
measure() { # nets that are not compiled yet are skipped and can be measured later; nothing is compiled between measurements
  local name engine
  grep -l 'was not compiled' $work/*.jsonl 2>/dev/null | xargs -r rm
  for name in $(chosen); do
    for engine in inductor trt; do
      has $engine || continue
      [ -e $work/$name-$engine.prepared ] || [ -e $work/$name-$engine.jsonl ] ||
        echo "{\"model\": \"$name\", \"engine\": \"$engine\", \"error\": \"was not compiled in time\"}" > $work/$name-$engine.jsonl
    done
  done
  groups "${ENGINES:-public inductor trt}" --steps measure $at_once
  echo "measured after $SECONDS s" >> $OUT/steps.txt
}
attention() { # first the scores alone, in both sizes that failed; then the nets, also at batch 2, at which they failed
  timeout 200 python3 - > $OUT/attention.txt 2>&1 << 'PYTHON'
import torch
from export.generators.deepfillv2.attention import fused_scores
for batch, side in ((2, 64), (4, 32), (4, 64)):
    scores = torch.randn(batch, side * side, side * side, device="cuda")
    fused = torch.compile(lambda x: fused_scores(x, side, side), dynamic=False)
    print(batch, side, (fused(scores) - fused_scores(scores, side, side)).abs().max().item(), flush=True)
PYTHON
  cat $OUT/attention.txt
  apart attention $DEEPFILL
  timeout 1200 python3 -m benchmarks.gpu_engines.compare --work $work/attention --json $OUT/attention.json --rows $DEEPFILL \
    --batches 1 2 4 --engines public inductor --run-s 0.1 --at-once 2 --steps $steps --seconds ${LIMIT:-500} $at_once
  echo "attention after $SECONDS s" >> $OUT/steps.txt
}
apart() { # FOLDER NAME...: publish models in another folder, in which nothing has been measured yet
  local folder=$1 name; shift; mkdir -p $work/$folder
  for name; do
    [ -e $work/$name/1/manifest.json ] || timeout 300 python3 -m benchmarks.gpu_engines.engine_models $name $work
    ln -sfn $work/$name $work/$folder/$name
  done
}
has() { [[ " ${ENGINES:-public inductor trt} " == *" $1 "* ]]; }
chosen() { printf '%s\n' ${NETS:-$LAMA $MIGAN $DEEPFILL}; }
groups() { # ENGINES ARGUMENT...: each group of nets has its own batch sizes; all share the folder
  local engines=$1 rows name begun=; shift
  for group in "$LAMA:1 8" "$MIGAN:1 8" "$DEEPFILL:1 4"; do
    rows=; for name in ${group%%:*}; do if chosen | grep -qx $name; then rows+=" $name"; fi; done
    [ -n "$rows" ] || continue
    timeout 1500 python3 -m benchmarks.gpu_engines.compare --work $work --json $OUT/nets${rows// /-}.json \
      --rows $rows --batches ${group##*:} --engines $engines --run-s 0.1 --trt-env /tmp/trt86/env.sh --trt-level 2 --at-once 2 --trt-at-once 1 \
      --seconds ${LIMIT:-900} "$@" &
    begun+=" $!"
    [[ "$*" == *prepare* ]] || wait $!
  done
  wait $begun
}
plans() { # STOP|CONT: the signal for the builders of plans
  local process words IFS=$'\n'
  for process in /proc/[0-9]*; do
    { mapfile -d '' -t words < $process/cmdline; } 2> /dev/null || continue
    if [[ "${words[*]}" == *benchmarks.gpu_engines.engine_jobs$'\n'*$'\ntrt\nprepare\n'* ]]; then kill -$1 ${process#/proc/} 2> /dev/null; fi
  done
}
keep() { # keep the figures also at the time limit: each is written at once
  tail -n 3 $work/*.log $work/*/*.log 2>/dev/null; cp $work/*.jsonl $work/*.prepared $OUT/ 2>/dev/null
  (cd $work && tar -czf $OUT/logs.tar.gz *.log attention/*.log attention/*.jsonl 2>/dev/null)
}
main "$@"; exit
