#!/usr/bin/env bash
# Runs `make serve` on a GPU host without a package index: `retouch install-gpu`, `doctor` and `serve` with the real driver, in a new environment,
# $repo/.venv, without torch and without CUDA packages for Python except cuDNN, cuFFT, cuRAND, cuBLAS and NVRTC, which pip finds installed. pip
# takes the other packages from the wheels of wheels.txt. Needs site and wheels unpacked, and photos in $ASSETS. Other programs may use the GPU
# meanwhile, so its times are not measurements. FAKE=1 rehearses it on a host without a GPU.
set -x
main() {
  . "$(dirname "$0")/env.sh"
  OUT=${RESULTS:-/tmp/results}/make_serve; mkdir -p $OUT
  venv=$repo/.venv python=$repo/.venv/bin/python
  unset PYTHONPATH
  export RETOUCH_TRANSLATE_MODEL=housefronts PIP_NO_INDEX=1 PIP_FIND_LINKS=${WHEELS:-/tmp/retouch-wheels} PIP_DISABLE_PIP_VERSION_CHECK=1 RETOUCH_PORT=${PORT:-8123}
  nvidia-smi > $OUT/nvidia-smi.txt 2>&1; df -h /tmp /dev/shm > $OUT/df.txt
  [ -x $python ] || make_environment > $OUT/environment.log 2>&1
  mkdir -p $repo/models; cp -rn $ASSETS/photos $ASSETS/housefronts $repo/models/ 2>/dev/null
  step dry_run 60 $python -m retouch install-gpu --dry-run
  step doctor_before 60 $python -m retouch doctor
  if command -v make; then step make_serve 420 served make serve
  else
    step install 300 $python -m retouch install-gpu
    step serve 200 served $python -m retouch serve
  fi
  step installed_again 60 $python -m retouch install-gpu
  step doctor 60 $python -m retouch doctor
  step serve_again 150 served $python -m retouch serve
  step build 100 $python -m retouch build photos
  RETOUCH_DEVICE=cpu step serve_cpu 100 served $python -m retouch serve
  step compare 60 $python -m benchmarks.gpu_host.probe_serve compare $OUT
  $python -m pip list > $OUT/pip_list.txt 2>&1; cp $venv/retouch-gpu.json $OUT/
  cat $OUT/steps.txt
}
step() { # NAME LIMIT_S COMMAND...
  local name=$1 limit=$2 code=0 began; shift 2; began=$(date +%s.%N)
  NAME=$name LIMIT=$limit; "$@" > $OUT/$name.log 2>&1 & local process=$!
  ( sleep $limit; kill -TERM $process ) 2> /dev/null & local watch=$!
  wait $process || code=$?
  kill $watch 2> /dev/null
  echo "$name: exit $code after $(echo "$(date +%s.%N) - $began" | bc 2> /dev/null || python3 -c "import time; print(round(time.time() - $began, 1))") s" >> $OUT/steps.txt
}
served() { # COMMAND...: start a server, read /readyz until it is ready, request fills, and end it
  local code=0
  set -m; "$@" & local server=$!; set +m   # in a new process group
  timeout $((LIMIT - 15)) $python -m benchmarks.gpu_host.probe_serve probe $RETOUCH_PORT $OUT $NAME $server || code=$?
  kill -TERM -- -$server; sleep 0.5; for _ in $(seq 40); do kill -0 -- -$server 2> /dev/null || break; sleep 0.25; done
  kill -KILL -- -$server 2> /dev/null
  return $code
}
make_environment() {
  local host; host=$(python3 -c "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])")
  python3 -m venv $venv || python3 -m venv --without-pip $venv
  local site; site=$($python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
  local one name
  mkdir -p $site/nvidia; ln -s $host/nvidia/* $site/nvidia/
  for one in $host/* /tmp/retouch-site/*; do
    name=$(basename $one)
    case $name in
      nvidia_nvtx*|nvidia_ml*|nvtx*|pynvml*|cuda*|cvcuda*|torch*|functorch*|triton*|cupy*|jax*|*.pth|__pycache__|_distutils_hack*) ;;
      onnxruntime*) [ -e $site/$name ] || cp -r $one $site/ ;; # the installation overwrites its files
      *) [ -e $site/$name ] || ln -s $one $site/ ;;
    esac
  done
  for one in /tmp/retouch-site/*; do name=$(basename $one); [ -L $site/$name ] && ln -sfn $one $site/$name; done # these versions take precedence
  echo $repo > $site/retouch-source.pth
  printf '#!%s\nfrom retouch.__main__ import main\nmain()\n' $python > $venv/bin/retouch; chmod +x $venv/bin/retouch
  touch $venv/.serve # the packages that `make serve` would install from the index are there
  $python -m pip --version
}
main "$@"; exit
