# Settings, sourced by prepare.sh, serve.sh, ray.sh and others. Copies the repository, because later uploads change the original.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
repo=${REPO:-/tmp/serve-repo} ASSETS=${ASSETS:-/tmp/gw/assets}
if [ ! -d $repo ]; then
  mkdir -p $repo.partial
  tar -C "$here" --exclude=./.carry --exclude=./build --exclude=./.git --exclude=./models --exclude=./.venv --exclude=./cache -c . | tar -x -C $repo.partial
  mv $repo.partial $repo
fi
cd $repo || exit 1
for source in service/*/*.cpp service/imaging/*/*.cpp; do # pip compiles these; without them numpy pastes fills, and figures would differ
  library=${source%/*}/_$(basename ${source%.cpp}).abi3.so
  [ $library -nt $source ] || { g++ -O3 -ffp-contract=off -Wno-psabi -g0 -fPIC -shared -o $library.$$ $source && mv $library.$$ $library; } || echo "$library: not compiled"
done
MODELS=${MODELS:-/tmp/serve-models} CACHE=${CACHE:-/tmp/serve-cache}
OUT=${RESULTS:-/tmp/results}/serve LOGS=${LOGS:-/tmp/logs}
mkdir -p $MODELS $CACHE $OUT $LOGS ${RESULTS:-/tmp/results}/ray
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/serve-inductor} NCCL_NVLS_ENABLE=0 PYTHONPATH=/tmp/retouch-site:/tmp/retouch-gpu:$repo
if [ "$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null; then T=/dev/shm; else T=/tmp; fi
mkdir -p $T/s; export TMPDIR=$T/s   # a short path, because the paths of Unix sockets must be short
use_onnxruntime_cuda() { # ONNX Runtime for CUDA instead of the host's, with the CUDA libraries of torch
  export PYTHONPATH=/tmp/retouch-ort:$PYTHONPATH
  local libraries; libraries=$(python3 -c "import pathlib, nvidia
print(*sorted({str(so.parent) for root in nvidia.__path__ for so in pathlib.Path(root).glob('*/lib/*.so*')}), sep=':')")
  export LD_LIBRARY_PATH=$libraries:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
}
use_tensorrt86() { # TensorRT 8.6 and its Python
  . /tmp/trt86/env.sh
  export PYTHONPATH=$PYTHONPATH:$repo
}
