#!/usr/bin/env bash
# Runs the steps that need one GPU: `gpu_window.sh STEP...`. In the background: publish compile (or compile_served, compile_raced) plans
# make_serve; with exclusive use of the GPU and all cores: saving serve profile pipeline race int8; if time is left: sanitizer.
# Needs site and wheels unpacked (pack_window.sh packs everything), $ASSETS with photos/5, photos8/1 (the same weights, INT8),
# facades/*.jpg, cases.npz; for plans and int8 TensorRT 8.6 in /tmp/trt86. Results, with times in steps.txt: $RESULTS. A step that
# fails does not prevent the next one. FAKE=1 rehearses on a CPU.
set -u
scripts=$(cd "$(dirname "$0")" && pwd)
export RESULTS=${RESULTS:-/tmp/gw/results} REPO=${REPO:-/tmp/gw/repo} MODELS=${MODELS:-/tmp/gw/models} CACHE=${CACHE:-/tmp/gw/cache} LOGS=${LOGS:-/tmp/gw/logs}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/gw/inductor}
. $scripts/env.sh
OUT=$RESULTS/window; mkdir -p $OUT /tmp/gw/spool
SERVED=${SERVED:-pconv_512 pconv_256 unet_256} # models for the requests and the pipeline
fake=${FAKE:-} inductor=inductor batch=32
if [ -n "$fake" ]; then inductor=fake batch=8; fi

run() { # NAME LIMIT_S COMMAND...: its output in $OUT/NAME.log
  local name=$1 limit=$2 began=$SECONDS code=0; shift 2
  timeout -k 8 $limit "$@" > $OUT/$name.log 2>&1 || code=$?
  echo "$(date +%T) $name: exit $code after $((SECONDS - began)) s" | tee -a $RESULTS/steps.txt
}
publish() { publish_random & publish_photos & wait; }
publish_random() {
  local name
  for name in $SERVED; do
    [ -e $MODELS/$name/$name/1/manifest.json ] || run publish_$name 200 python3 -m benchmarks.gpu_engines.engine_models $name $MODELS/$name --no-reference &
  done
  wait
}
publish_photos() { # photos/5 with the program that `inductor` compiles, from the weights in its graph
  [ -e $ASSETS/photos5.safetensors ] || run weights 60 python3 -m benchmarks.gpu_engines.weights_of_graph $ASSETS/photos/5/model.onnx $ASSETS/photos5.safetensors
  [ -e $MODELS/photos/photos/1 ] || run publish_photos 200 python3 -m retouch export $ASSETS/photos5.safetensors --name photos --program --output $MODELS/photos
  truth
}
truth() { # the FP32 fills with which int8 compares
  [ -e $ASSETS/cases.truth.npz ] || run truth 100 python3 -m benchmarks.gpu_engines.int8_on_gpu truth $ASSETS/photos/5 $ASSETS/cases.npz
}
compile() { compile_served; compile_raced; } # everything that the measurements need
compile_served() { # concurrently: the models of serve and pipeline
  [ -z "$fake" ] || return 0
  local name shapes=()
  for name in $SERVED; do shapes+=("$name:32:${name#*_}"); done
  PREPARE="${shapes[*]}" CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} run prepare 500 bash $scripts/prepare.sh
}
compile_raced() { # the models of race and int8; the race itself is in `race`
  [ -z "$fake" ] || return 0
  built photos inductor & built unet_256 inductor &
  (use_onnxruntime_cuda; built photos onnxrt-cuda; built unet_256 onnxrt-cuda) & wait
  measured photos5 inductor --prepare
}
built() { run build_$1_$2 ${BUILD_S:-300} python3 -m retouch build $1 --engine $2 --models-dir $MODELS/$1 --engine-cache-dir $CACHE; }
measured() { # MODEL ENGINE [--prepare]
  local folder=$ASSETS/$1; case $1 in photos5) folder=$ASSETS/photos/5 ;; photos8) folder=$ASSETS/photos8/1 ;; esac
  [ "$1-$2" = photos5-inductor ] && folder=$MODELS/photos/photos/1
  local words="-m benchmarks.gpu_engines.int8_on_gpu measure $folder $ASSETS/cases.truth.npz $2 --work $OUT ${3:-}"
  case $2 in
    trt*) (use_tensorrt86; run int8_$1_$2${3:-} ${LIMIT:-90} $PY310 $words) ;;
    *) (use_onnxruntime_cuda; run int8_$1_$2${3:-} ${LIMIT:-90} python3 $words) ;;
  esac
}
plans() { # TensorRT 8.6, a few minutes each
  [ -e /tmp/trt86/env.sh ] || return 0
  LIMIT=550 measured photos5 trt --prepare
}
make_serve() { run make_serve 580 bash $scripts/make_serve.sh; }
serve() { # one server, all kinds of requests in each round; then a minute of saved requests. BRIEF=1: three kinds
  local side connections minute model kinds=(jpeg "jpeg, saved" png "lone jpeg" "lone png")
  [ -z "${BRIEF:-}" ] || kinds=(jpeg png "lone jpeg")
  for side in ${SIDES:-512 256}; do
    connections=${CONNECTIONS:-256} minute=${MINUTE:-20} model=pconv_$side
    if [ -n "$fake" ]; then model=photos; fi
    if [ $side = 256 ]; then connections=${CONNECTIONS:-384} minute=${MINUTE:-60}; fi
    run serve_$side${SUFFIX:-} ${SERVE_S:-200} python3 -m benchmarks.requests.request_kinds --engine $inductor --cache $CACHE --models-dir $MODELS/pconv_$side --model $model \
      --side $side --batch $batch --workers ${WORKERS:-16} --connections $connections --clients ${CLIENTS:-2} --seconds ${SECONDS_OF_ROUND:-3} --rounds ${ROUNDS:-2} \
      --kinds "${kinds[@]}" --minute $minute --folder /tmp/gw/spool --json $OUT/serve_$side${SUFFIX:-}.json \
      ${PROFILE:+--profile $OUT/profile_$side${SUFFIX:-}}
  done
}
profile() { # time of a front end and of the engine process at 512²; needs py-spy on PATH
  SIDES=512 MINUTE=0 ROUNDS=${ROUNDS:-1} BRIEF=1 PROFILE=1 SUFFIX=_profile serve
}
saving() { # how much processes slow each other by saving into one folder; run it before any step that deletes results on that disk
  run saving 120 python3 -m benchmarks.disk.durable --processes 1 4 16 --groups 64 --results 4096 --folder /tmp/gw/spool --json $OUT/saving.json
}
pipeline() { # 50 facades with saving, from bytes to bytes, three times; `unet_256` of the reference figures
  [ -z "$fake" ] || return 0
  run pipeline 100 env TMPDIR=/tmp/gw/spool python3 -m benchmarks.gpu.pipeline --engine inductor --cache $CACHE --max-batch 32 --model $MODELS/unet_256/unet_256/1 \
    --images $ASSETS/facades --count 50 --only engine latency variants variants --out $OUT/facades.json
  run pipeline_512 60 env TMPDIR=/tmp/gw/spool python3 -m benchmarks.gpu.pipeline --engine inductor --cache $CACHE --max-batch 32 --model $MODELS/pconv_512/pconv_512/1 \
    --images $ASSETS/facades --side 512 --count 50 --only latency --out $OUT/pconv_512.json
}
race() { # each race starts without the results of the last one
  local one round=0
  for one in ${RACES:-photos unet_256 photos}; do
    rm -rf $CACHE/races; round=$((round + 1))
    (use_onnxruntime_cuda; run race_${round}_$one 60 python3 -m retouch build $one --models-dir $MODELS/$one --engine-cache-dir $CACHE)
  done
  (use_onnxruntime_cuda; run doctor 60 env RETOUCH_MODELS_DIR=$MODELS/photos RETOUCH_ENGINE_CACHE_DIR=$CACHE python3 -m retouch doctor)
}
int8() { # INT8S: models and engines
  rm -f $OUT/int8_on_gpu.jsonl
  local one
  for one in ${INT8S:-photos5:inductor photos5:onnxrt-cuda photos8:onnxrt-cuda photos8:inductor photos5:trt}; do
    LIMIT=50 measured ${one/:/ }
  done
}
sanitizer() {
  local one="-m benchmarks.gpu.pipeline --engine inductor --max-batch 4 --batches 20 --only arithmetic reference --cache /tmp/gw/sanitizer-cache --model /tmp/gw/sanitizer/small/1"
  [ -e /tmp/gw/sanitizer/small/1 ] || run publish_small 100 python3 -m benchmarks.gpu_engines.engine_models small /tmp/gw/sanitizer --no-reference
  run unsanitized 100 python3 $one --out $OUT/unsanitized.json
  run sanitized 180 compute-sanitizer --tool memcheck --error-exitcode 1 --target-processes application-only --launch-timeout 0 python3 $one --out $OUT/sanitized.json
}
collect() { tar -C $RESULTS/.. -czf ${1:-$OUT}/gw_results.tar.gz $(basename $RESULTS) $(cd $RESULTS/.. && ls -d logs 2> /dev/null); }
SECONDS=0
{ nvidia-smi --query-gpu=index,name,driver_version,utilization.gpu,memory.used --format=csv; nproc; uptime; findmnt -T /tmp/gw; df -h /tmp /dev/shm; lscpu | head -20; } > $OUT/host.txt 2>&1
for step in "$@"; do
  case $step in collect=*) collect ${step#collect=} ;; *) $step ;; esac
done
cat $RESULTS/steps.txt
