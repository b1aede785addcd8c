#!/usr/bin/env bash
# Publishes and compiles the models of serve.sh and ray.sh, and measures each engine alone (not for publication, because the host is busy).
# PREPARE: only some models. CUDA_VISIBLE_DEVICES: the GPU (1). The three models run concurrently: about 200 s, mostly on the CPU.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-1}
  for one in ${PREPARE:-pconv_512:32:512 resnet_heavy:4:768 pconv_256:32:256}; do
    IFS=: read -r name batch side <<< "$one"
    (
      SECONDS=0
      if [ ! -e $MODELS/$name/$name/1/manifest.json ]; then
        timeout 150 python3 -m benchmarks.gpu_engines.engine_models $name $MODELS/$name --no-reference || exit 1
      fi
      timeout 500 python3 -m benchmarks.load.front_ends --alone $MODELS/$name/$name/1 --engine inductor --cache $CACHE --batch $batch \
        --side $side > $OUT/prepare_$name.json
      echo "$name: exit $? after $SECONDS s" | tee $OUT/prepared_$name
    ) > $LOGS/serve_prepare_$name.log 2>&1 &
  done
  wait
  tail -n 3 $LOGS/serve_prepare_*.log
  echo done > $OUT/prepared
}
main "$@"; exit
