#!/usr/bin/env bash
# Trains FillNet on a GPU host that allows only commands of under ten minutes; the run continues between the commands.
# docs/training_hosts.md has the order of these commands:
#   fill_host.sh stage          install the copied wheels, features and validation pictures, and copy this code to $WORK: later commands
#                               run the copy, because each upload replaces the files of the repository, also under a run
#   fill_host.sh receive        add copied shards of photographs, also while the run is in progress
#   fill_host.sh warm           compile missing code in the background, so that the run uses compiled code from its start
#   fill_host.sh start SECONDS [STOP]  start or continue the run in the background: it trains for SECONDS in total, and stops
#                               STOP seconds after this call
#   fill_host.sh wait SECONDS   wait until the run has ended, but at most SECONDS; then print the end of its log
#   fill_host.sh peek           copy the newest sheet and the log to $OUT
#   fill_host.sh save           copy the newest sheets, the log and the averaged weights of the last checkpoint (FP16, in parts
#                               of 15 MiB) to $OUT while the run continues, in case the host is lost
#   fill_host.sh collect        copy the generator (in parts of 15 MiB) and the judges (FP16), sheets and log to $OUT
# CARRIED: folder of the files that were copied to the host. WORK: folder for everything else; $WORK/NAME is that of a run.
# NAME: name of the run; several runs, one after another, each have their own NAME, CONFIG and EXTRA (flags of `fit`).
# SHAPES: the shapes to compile, as CROP:PICTURES of one process; each GPU compiles its part of them, one after another. If
# there are as many shapes as phases, a phase is compiled once its own shape is; otherwise all phases wait for all shapes.
# CUDA_VISIBLE_DEVICES: the GPUs to use; unset: all; empty: none. `taskset -c CORES` before a command limits it to some cores.
# PROCESSES: number of processes that train on the CPU of a host without GPUs.
set -euo pipefail
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
CARRIED=$(realpath "${CARRIED:-.carry}") WORK=${WORK:-/tmp/retouch} OUT=${OUT:-/tmp/retouch/out}
CONFIG=${CONFIG:-training/configs/fill.toml} EXTRA=${EXTRA:-} SHAPES=${SHAPES:-256:32 384:16} NAME=${NAME:-run}
if [ "$1" != stage ] && [ -d "$WORK/repo" ]; then SELF=$WORK/repo/training/fill_host.sh; fi
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
READY=$RUN/compiled # exists when all shapes are compiled

stage() {
    if ! flock -n "$WORK/trains" true; then
        echo "a run uses the copy of the code: fill_host.sh wait SECONDS, or end it first" >&2
        return 1
    fi
    rm -rf "$WORK/repo" "$WORK/repo.partial"
    mkdir -p "$WORK/repo.partial"
    cp -r training export engines "$WORK/repo.partial/"
    mv "$WORK/repo.partial" "$WORK/repo"
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

receive() { # by renaming, so that the run never sees an incomplete shard
    local shard name
    find "$CARRIED" -name '*.tar' | sort | while read -r shard; do
        name=$(basename "$shard")
        cp "$shard" "$WORK/photos/$name.partial"
        mv "$WORK/photos/$name.partial" "$WORK/photos/$name"
    done
    ls "$WORK/photos" | wc -l
    if [ -s "$WORK/train.log" ]; then tail -n 2 "$WORK/train.log"; fi
}

paths() { # FOLDER: overrides for the output folder, and for the paths of the data that `stage` and `receive` copied
    echo "--set output=$1 --set data.path=$WORK/photos --set data.validation=$WORK/val" \
        "--set features=$WORK/features/$(sed -n 's/^features = ".*\/\(.*\)".*/\1/p' "$CONFIG")"
}

start() {
    local seconds=$1 stop=${2:-}
    if ! flock -n "$WORK/trains" true; then # two runs would write the same checkpoint
        echo "a run is in progress: fill_host.sh wait SECONDS, or end it first" >&2
        return 1
    fi
    rm -f "$WORK/ended"
    date +%s >"$WORK/began"
    setsid nohup bash "$SELF" train "$seconds" "$stop" >"$WORK/train.log" 2>&1 </dev/null &
    warm
    wait_for 40
}

warm() { # on each GPU that is not compiling already
    local gpu
    for ((gpu = 0; gpu < GPUS; gpu++)); do
        if [ ! -e "$RUN/prepares-$gpu" ]; then
            touch "$RUN/prepares-$gpu"
            setsid nohup bash "$SELF" prepare_all "$gpu" >>"$RUN/prepare-$gpu.log" 2>&1 </dev/null &
        fi
    done
}

prepare_all() { # GPU: compile its part of the shapes, one after another, because two at once would both be late
    local shape number=0
    # shellcheck disable=SC2064 # expanded now: the file of this GPU
    trap "rm -f '$RUN/prepares-$1'" EXIT
    for shape in $SHAPES; do
        if ((number % GPUS == $1)) && [ ! -e "$RUN/shape-$shape" ]; then
            (prepare "$1" "${shape%:*}" "${shape#*:}") || return 1
        fi
        number=$((number + 1))
    done
}

prepare() { # GPU CROP BATCH: run a few steps of one process, which fills the cache of compiled code
    local shape extra
    extra=$(sed -E 's/--set phase\.[^ ]+//g' <<<"$EXTRA") # it has a phase of its own
    export CUDA_VISIBLE_DEVICES=${DEVICES[$1]:-}
    # shellcheck disable=SC2046,SC2086 # flags are words
    python3 -m training plan "$CONFIG" --seconds 60 $(paths "$RUN/prepared-$2-$3") --set capacity_gb=8 \
        --set data.limit=600 --set data.threads=4 \
        --set "phase=[{steps=50, batch=$3, crop=$2, learning_rate=1e-3}]" $extra || return 1 # the next `start` repeats it
    touch "$RUN/shape-$2:$3"
    for shape in $SHAPES; do
        if [ ! -e "$RUN/shape-$shape" ]; then return; fi
    done
    touch "$READY"
}

train() { # SECONDS STOP; a failed run continues from its checkpoint, first without CUDA graphs, then without compilation
    local seconds=$1 stop=${2:+--stop-after-seconds $2} attempt phase set own graphs=""
    read -r -a own <<<"$SHAPES"
    exec 9>"$WORK/trains"
    flock 9
    set=$(paths "$RUN")
    set+=" --set data.threads=12 --set capacity_gb=${CAPACITY_GB:-48}"
    if ((${#own[@]} == PHASES)); then # the global batch is that of one process times the number of processes
        for ((phase = 0; phase < PHASES; phase++)); do
            set+=" --set phase.$phase.batch=$((${own[phase]#*:} * PROCESSES))"
        done
    fi
    for attempt in 0 1 2; do
        local after="" ready eager=$attempt
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

rank() { # each process sees only its own GPU, as number 0, so that all share the compiled code
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
    local taken=$RUN/taken.pth # a copy, because the run may replace the file meanwhile
    rm -f "$OUT"/generator.pth.*
    cp "$RUN/generator.pth" "$taken"
    sha256sum "$taken"
    split -b 15M -d "$taken" "$OUT/generator.pth."
}

shown() { # N: copy the log and the newest N sheets, if there are any
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
for name in ("judge", "patches", "projected"):
    if name in state["trainee"]:
        net = state["trainee"][name]["net"]
        torch.save({key: tensor.half() for key, tensor in net.items()}, run / f"{name}.pth")
print("step", state["step"], "after", round(state["spent_s"]), "s")
END
    sha256sum "$RUN/judge.pth"
    in_parts
    cp "$RUN/judge.pth" "$OUT/"
    cp "$RUN/patches.pth" "$RUN/projected.pth" "$OUT/" 2>/dev/null || true
    cat "$RUN"/prepare-*.log >"$OUT/prepare.log" 2>/dev/null || true
    shown 1
    ls -la "$OUT" "$RUN"
}

case $1 in
    wait) wait_for "$2" ;;
    *) "$@" ;;
esac
