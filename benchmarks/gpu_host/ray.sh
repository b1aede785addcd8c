#!/usr/bin/env bash
# Measures Ray's replicas behind HAProxy, one and two, with a GPU each, at 512². Needs site and ray (which has HAProxy) unpacked, and
# PREPARE=resnet_heavy_512:8:512 prepare.sh done. At most 180 s, alone on the machine. WORKERS: front ends of each replica.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/ray
  export PYTHONPATH=/tmp/retouch-ray:/tmp/retouch-site:$repo
  # Ray's own sockets: their path must be short
  export RAY_TMPDIR=/tmp/r RAY_DEDUP_LOGS=1; mkdir -p $RAY_TMPDIR
  export TMPDIR=/tmp/r
  if [ -z "${FAKE:-}" ]; then
    how="--engine inductor --models-dir $MODELS/resnet_heavy_512 --model resnet_heavy_512 --task translate --side 512 --batch 8 --cache $CACHE"
  else
    how="--engine fake --fake-batch-ms 300 --side 64 --gpus 0"; WORKERS=${WORKERS:-0}
  fi
  timeout -k 5 175 python3 -m benchmarks.load.ray_scaling $how --no-save --workers "${WORKERS:-8}" --replicas 1 2 1 --connections 128 --clients 2 --seconds 4 --rounds 3 \
    --json $OUT/ray.json > $OUT/ray.log 2>&1
  echo "ray: exit $? after $SECONDS s" | tee $OUT/steps.txt
  mkdir -p $OUT/ray_logs; cp -L $RAY_TMPDIR/ray/session_latest/logs/*.{err,log} $OUT/ray_logs/ 2>/dev/null; find $OUT/ray_logs -size 0 -delete
  tar -C $OUT -czf $OUT/ray_logs.tar.gz ray_logs && rm -rf $OUT/ray_logs
}
main "$@"; exit
