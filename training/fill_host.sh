#!/usr/bin/env bash
# Training FillNet on a borrowed host of one or two GPUs, in commands of under ten minutes; the run itself goes on
# between them. docs/training.md says in which order.
#   fill_host.sh stage          take over what was carried: wheels, features, validation pictures
#   fill_host.sh receive        take over photo shards, also while the run is under way
#   fill_host.sh warm           compile what is not yet compiled in the background: the run is then compiled from its start
#   fill_host.sh start SECONDS [STOP]  begin to train for so long, or go on, in the background, and stop after STOP seconds
#   fill_host.sh wait SECONDS   wait so long, or until the run has ended; then the end of its log
#   fill_host.sh peek           the newest sheet and the log: $OUT
#   fill_host.sh save           the newest sheets, the log and the averaged weights of the last checkpoint (FP16, in parts of
#                               15 MiB), while the run goes on: what is left of it if the host is lost
#   fill_host.sh collect        generator and judges (FP16) in parts of 15 MiB, sheets, log: $OUT
# NAME: the run, where several are tried one after another, each with its own CONFIG and EXTRA.
# SHAPES: the steps that are compiled, each CROP:PICTURES of one process, one after another on each GPU. Where there are as
# many as phases, a phase goes over to its own as soon as that is compiled; otherwise all do when all are.
# CUDA_VISIBLE_DEVICES: the GPUs that are used; left out: all; empty: none. `taskset -c CORES` before a command holds it to some cores.
# What is carried lies in $CARRIED, what is made in $WORK, and what is a run's own in $WORK/$NAME. On a host without GPUs
# PROCESSES processes train on its CPU.
set -euo pipefail
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
CARRIED=$(realpath "${CARRIED:-.carry}") WORK=${WORK:-/tmp/retouch} OUT=${OUT:-/tmp/retouch/out}
CONFIG=${CONFIG:-training/configs/fill.toml} EXTRA=${EXTRA:-} SHAPES=${SHAPES:-256:32 384:16} NAME=${NAME:-run}
cd "$(dirname "$SELF")/.."
mkdir -p "$WORK/photos" "$WORK/site" "$WORK/$NAME" "$OUT"
export CARRIED WORK OUT CONFIG EXTRA SHAPES NAME PYTHONPATH="$WORK/site:/tmp/retouch-site:$PWD" PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR="$WORK/inductor" TRITON_CACHE_DIR="$WORK/triton"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
GPUS=$(nvidia-smi -L 2>/dev/null | wc -l || true)
IFS=, read -r -a DEVICES <<<"${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((GPUS - 1)))}"
if ((GPUS)); then GPUS=${#DEVICES[@]}; fi
PROCESSES=${PROCESSES:-$((GPUS > 0 ? GPUS : 1))}
PHASES=$(grep -c '^\[\[phase' "$CONFIG")
RUN=$WORK/$NAME
READY=$RUN/compiled # all shapes are compiled

stage() {
    if compgen -G "$CARRIED/whl/*.whl" >/dev/null; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$WORK/site" "$CARRIED"/whl/*.whl
    fi
    for folder in features val; do
        if [ -d "$CARRIED/$folder" ]; then cp -r "$CARRIED/$folder" "$WORK/"; fi
    done
    nvidia-smi --query-gpu=index,name,memory.total --format=csv 2>/dev/null || true
    nvidia-smi topo -m 2>/dev/null | head -n 4 || true
    python3 -c 'import torch; print("torch", torch.__version__, torch.cuda.device_count(), "GPUs")'
}

receive() { # by a rename: the run must not see half a shard
    local shard name
    find "$CARRIED" -name '*.tar' | sort | while read -r shard; do
        name=$(basename "$shard")
        cp "$shard" "$WORK/photos/$name.partial"
        mv "$WORK/photos/$name.partial" "$WORK/photos/$name"
    done
    ls "$WORK/photos" | wc -l
    if [ -s "$WORK/train.log" ]; then tail -n 2 "$WORK/train.log"; fi
}

paths() { # overrides that put the config's data where `stage` and `receive` put it
    echo "--set output=$1 --set data.path=$WORK/photos --set data.validation=$WORK/val" \
        "--set features=$WORK/features/$(sed -n 's/^features = ".*\/\(.*\)".*/\1/p' "$CONFIG")"
}

start() {
    local seconds=$1 stop=${2:-}
    if ! flock -n "$WORK/trains" true; then # two would write the same checkpoint
        echo "a run is under way: fill_host.sh wait SECONDS, or end it first" >&2
        return 1
    fi
    rm -f "$WORK/ended"
    date +%s >"$WORK/began"
    setsid nohup bash "$SELF" train "$seconds" "$stop" >"$WORK/train.log" 2>&1 </dev/null &
    warm
    wait_for 40
}

warm() { # on each GPU where nobody does it already
    local gpu
    for ((gpu = 0; gpu < GPUS; gpu++)); do
        if [ ! -e "$RUN/prepares-$gpu" ]; then
            touch "$RUN/prepares-$gpu"
            setsid nohup bash "$SELF" prepare_all "$gpu" >>"$RUN/prepare-$gpu.log" 2>&1 </dev/null &
        fi
    done
}

prepare_all() { # GPU: its part of the shapes, the first before the next: two at once would only both come late
    local shape number=0
    # shellcheck disable=SC2064 # of this GPU
    trap "rm -f '$RUN/prepares-$1'" EXIT
    for shape in $SHAPES; do
        if ((number % GPUS == $1)) && [ ! -e "$RUN/shape-$shape" ]; then
            (prepare "$1" "${shape%:*}" "${shape#*:}") || return 1
        fi
        number=$((number + 1))
    done
}

prepare() { # GPU CROP BATCH: a few steps as one process takes them, of both nets, fill the cache of compiled code
    local shape
    export CUDA_VISIBLE_DEVICES=${DEVICES[$1]:-}
    # shellcheck disable=SC2046,SC2086 # flags are words
    python3 -m training plan "$CONFIG" --seconds 60 $(paths "$RUN/prepared-$2-$3") --set capacity_gb=8 \
        --set data.limit=600 --set data.threads=4 \
        --set "phase=[{steps=50, batch=$3, crop=$2, learning_rate=1e-3}]" $EXTRA || return 1 # the next `start` tries again
    touch "$RUN/shape-$2:$3"
    for shape in $SHAPES; do
        if [ ! -e "$RUN/shape-$shape" ]; then return; fi
    done
    touch "$READY"
}

train() { # SECONDS STOP; a run that fails is taken up again where its checkpoint stands: without CUDA graphs, then not compiled
    local seconds=$1 stop=${2:+--stop-after-seconds $2} attempt set own graphs=""
    read -r -a own <<<"$SHAPES"
    exec 9>"$WORK/trains"
    flock 9
    set=$(paths "$RUN")
    set+=" --set data.threads=12 --set capacity_gb=${CAPACITY_GB:-48}"
    if ((PROCESSES == 1 && PHASES == 2)); then set+=" --set phase.0.batch=32 --set phase.1.batch=16"; fi
    for attempt in 0 1 2; do
        local after="" phase ready eager=$attempt
        if ((attempt)) && [[ $EXTRA == *cuda_graphs=true* ]]; then
            graphs="--set cuda_graphs=false" eager=$((attempt - 1))
        fi
        for ((phase = 0; phase < PHASES; phase++)); do
            ready=$READY
            if ((${#own[@]} == PHASES)); then ready=$RUN/shape-${own[phase]}; fi
            if ((eager)); then ready=$WORK/never; fi
            after+=" --set phase.$phase.compile_after=$ready"
        done
        # shellcheck disable=SC2086 # flags are words
        if python3 -m torch.distributed.run --standalone --nproc-per-node "$PROCESSES" --no-python \
            bash "$SELF" rank $set --set "seconds=$((seconds - attempt * 40))" $after $EXTRA $graphs $stop 9>&-; then
            break
        fi
        echo "attempt $attempt failed"
    done
    touch "$WORK/ended"
}

rank() { # each process sees its GPU as the first: then what one compiled serves them all
    if ((GPUS)); then export CUDA_VISIBLE_DEVICES=${DEVICES[$LOCAL_RANK]} LOCAL_RANK=0; fi
    exec python3 -m training fit "$CONFIG" "$@"
}

wait_for() {
    local until=$((SECONDS + $1))
    while ((SECONDS < until)) && [ ! -e "$WORK/ended" ]; do sleep 1; done
    echo "$(($(date +%s) - $(cat "$WORK/began"))) s since start; shapes compiled: $(compgen -G "$WORK/*/shape-*" | wc -l || true)"
    for log in "$WORK"/*/prepare-*.log; do tail -n 2 "$log" 2>/dev/null || true; done
    nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2>/dev/null || true
    tail -n "${LINES_SHOWN:-12}" "$WORK/train.log"
    if [ -e "$WORK/ended" ]; then echo ENDED; fi
}

peek() {
    shown 1
    wait_for 0
}

save() {
    shown 3
    if [ -e "$RUN/generator.pth" ]; then in_parts; fi
    wait_for 0
}

in_parts() {
    local taken=$RUN/taken.pth # a run that goes on puts another in its place
    rm -f "$OUT"/generator.pth.*
    cp "$RUN/generator.pth" "$taken"
    sha256sum "$taken"
    split -b 15M -d "$taken" "$OUT/generator.pth."
}

shown() { # N: the log, and the newest N sheets, as far as they are there
    for file in "$RUN/log.jsonl" "$WORK/train.log"; do
        if [ -e "$file" ]; then cp "$file" "$OUT/"; fi
    done
    find "$RUN/sheets" -name '*.png' 2>/dev/null | sort | tail -n "$1" | xargs -r -I{} cp {} "$OUT/" || true
}

collect() {
    python3 - "$RUN" <<'END'
import sys
from pathlib import Path
import torch

run = Path(sys.argv[1])
state = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
for name in ("judge", "patches"):
    if name in state["trainee"]:
        net = state["trainee"][name]["net"]
        torch.save({key: tensor.half() for key, tensor in net.items()}, run / f"{name}.pth")
print("step", state["step"], "after", round(state["spent_s"]), "s")
END
    sha256sum "$RUN/judge.pth"
    in_parts
    cp "$RUN/judge.pth" "$OUT/"
    cp "$RUN/patches.pth" "$OUT/" 2>/dev/null || true
    cat "$RUN"/prepare-*.log >"$OUT/prepare.log" 2>/dev/null || true
    shown 1
    ls -la "$OUT" "$RUN"
}

case $1 in
    wait) wait_for "$2" ;;
    *) "$@" ;;
esac
