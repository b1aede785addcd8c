#!/usr/bin/env bash
# Runs all measurements on two H200 of one host, in an order in which no two timed parts share a GPU or cores: about 25 minutes.
#   SKIP="speed_pconv ray" setsid nohup bash /tmp/serve-repo/benchmarks/gpu_host/window.sh > /tmp/window.log 2>&1 &
# It can start before all files are copied: each part waits for a file in /tmp/have with its name, which the copying side creates: first (training's packages,
# facades, features, eval, masks, in /tmp/training, facades in /tmp/carried too), photos (in /tmp/training; pix2pix_facades.pth in /tmp/carried), site, ray,
# wheels (pack.sh, unpack.sh), trt86. Sourcing env.sh copies the repository to /tmp/serve-repo. A host that is released when it is idle needs one command that
# waits (sleep 500) instead of many short ones. Results, with times in steps.txt: /tmp/results.
set -u
export RESULTS=${RESULTS:-/tmp/results} CARRIED=${CARRIED:-/tmp/carried} WORK=${WORK:-/tmp/training} have=${HAVE:-/tmp/have}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p $RESULTS $RESULTS/training $have $WORK
training="env OUT=$RESULTS/training WORK=$WORK bash $here/../../training/gpu_host.sh"
speed="env OUT=$RESULTS/training WORK=$WORK bash $here/../../training/study_host.sh one"
low="nice -n 10 env CUDA_VISIBLE_DEVICES=1"

need() { local part; for part in "$@"; do while [ ! -e $have/$part ]; do sleep 0.3; done; done; }
done_with() { touch $have/done_$1; }
after() { local step; for step in "$@"; do need done_$step; done; }
step() { # NAME LIMIT_S COMMAND...
  local name=$1 limit=$2 began=$SECONDS code=0; shift 2
  if [[ " ${SKIP:-} " == *" $name "* ]]; then done_with $name; return; fi
  echo "$name: begins at $SECONDS s" >> $RESULTS/steps.txt
  timeout -k 10 $limit "$@" > $RESULTS/$name.log 2>&1 || code=$?
  echo "$name: exit $code, $((SECONDS - began)) s, at $SECONDS s" >> $RESULTS/steps.txt
  done_with $name
}
trt() { # STOP|CONT: the signal for the builders of plans; starts no process, because it is called beside measurements
  local process words IFS=$'\n'
  for process in /proc/[0-9]*; do
    { mapfile -d '' -t words < $process/cmdline; } 2> /dev/null || continue
    if [[ "${words[*]}" == *benchmarks.gpu_engines.engine_jobs$'\n'*$'\ntrt\nprepare\n'* ]]; then kill -$1 ${process#/proc/} 2> /dev/null; fi
  done
}

lane_0() { # GPU 0, cores 0-15
  export CUDA_VISIBLE_DEVICES=0
  need first photos
  step speed_pconv 420 taskset -c 0-15 $speed pconv
  need site wheels trt86
  after publish_unet_256 publish_resnet_9blocks publish_pconv_256 publish_pconv_512
  while [ -e $have/both ]; do sleep 0.3; done
  step plans 1400 taskset -c 0-15 bash $here/engines.sh plans
  after two_gpus_pconv_512 compile
  step engines 400 taskset -c 0-15 bash $here/engines.sh measure
  step tests_310 500 taskset -c 0-15 bash $here/tests.sh 310
}
lane_1() { # GPU 1, cores 16-31; preparations run on all cores
  need first
  CUDA_VISIBLE_DEVICES=1 step speed_pix2pix 300 taskset -c 16-31 $speed pix2pix
  need site wheels photos
  local row
  for row in unet_256 resnet_9blocks pconv_256 pconv_512; do step publish_$row 200 $low bash $here/engines.sh publish $row & done
  for row in 128 256; do step warm_$row 200 $low $training scaling --gpus 1 --batch $row --steps 20 --set data.limit=300 --json $RESULTS/training/warm.json; done &
  (need wheels; after publish_unet_256 publish_resnet_9blocks publish_pconv_256 publish_pconv_512
   step compile 400 $low bash $here/engines.sh compile) &
  step prepare 400 $low bash $here/prepare.sh
  after warm_256 speed_pconv compile
  need ray
  both
  export CUDA_VISIBLE_DEVICES=1 PIN="taskset -c 16-31"
  step serve_one_gpu 320 bash $here/serve.sh pconv_512 pconv_256 fake
  step pipeline 480 bash $here/pipeline.sh
  step tests_312 400 $PIN bash $here/tests.sh 312
  need trt86
  step sanitizer 620 $PIN bash $here/tests.sh sanitizer
}
both() { # both GPUs and all cores; plans are built beside other work, but not meanwhile
  unset CUDA_VISIBLE_DEVICES
  touch $have/both
  while [ -e $have/both ]; do trt STOP; sleep 1; done & # repeatedly, because lane 0 may just start them
  local stopping=$!
  step scaling 260 $training scaling
  step two_gpus 110 bash $here/serve.sh two_gpus
  step ray 185 bash $here/ray.sh
  step two_gpus_pconv_512 110 bash $here/serve.sh two_gpus_pconv_512
  rm $have/both; wait $stopping
  trt CONT
}
SECONDS=0
lane_0 &
lane_1 &
wait
echo "all: at $SECONDS s" >> $RESULTS/steps.txt
