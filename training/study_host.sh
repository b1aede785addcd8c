#!/usr/bin/env bash
# The studies of all six generators on a borrowed GPU host, in commands of under ten minutes; docs/training.md says in which order.
#   study_host.sh stage          take over what was carried: wheels, pictures, features
#   study_host.sh warm           fill the compiler's caches in the background, beside other work: returns at once
#   study_host.sh peek           what the background and the studies have said, and which cells there are
#   study_host.sh run SECONDS    all studies at once, their steps timed one at a time; the device must be theirs alone.
#                                The same command goes on with the cells that are missing
#   study_host.sh pack           $OUT/studies.tar.gz: reports, cells, logs
# What is carried lies in $CARRIED, what is made in $WORK. STUDIES and CELLS choose; EXTRA holds further flags of every
# study, EXTRA_pgn and the like those of one; FOLDER: results of other flags, `large`.
set -euo pipefail
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
CARRIED=${CARRIED:-.carry/study} WORK=${WORK:-/tmp/retouch-study} OUT=${OUT:-/tmp/retouch-study/out}
STUDIES=${STUDIES:-pgn pdgan pix2pixhd pconv pix2pix dcgan} EXTRA=${EXTRA:-} AT_ONCE=${AT_ONCE:-3} LIMIT_S=${LIMIT_S:-240}
CELLS=${CELLS:-fp32,fp16-compiled,bf16-compiled,bf16,tf32}
cd "$(dirname "$SELF")/.."
mkdir -p "$WORK/site" "$WORK/logs" "$OUT"
export CARRIED WORK OUT STUDIES EXTRA LIMIT_S CELLS PYTHONPATH="$WORK/site:$PWD" PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$WORK/inductor} TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$WORK/triton}
export TORCHINDUCTOR_FX_GRAPH_CACHE=1 TORCHINDUCTOR_AUTOGRAD_CACHE=1 TORCHINDUCTOR_COMPILE_THREADS=${COMPILE_THREADS:-4}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

stage() {
    if compgen -G "$CARRIED/whl/*.whl" >/dev/null; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$WORK/site" "$CARRIED"/whl/*.whl
    fi
    for folder in pictures facades features masks eval; do cp -r "$CARRIED/$folder" "$WORK/"; done
    du -sm "$WORK"/* | tr '\n' ' '
    python3 -c 'import torch, training.config; print("torch", torch.__version__, torch.cuda.device_count(), "GPUs")'
}

flags() { # NAME: where `stage` put the study's data, and how many steps are timed
    local set=(--set data.threads=4 --set data.validation_limit=32) steps own=EXTRA_$1
    case $1 in
        pix2pix | pix2pixhd) set+=(--set "data.path=$WORK/facades/train" --set "data.validation=$WORK/facades/test") ;;
        dcgan) set+=(--set "data.path=$WORK/facades/train") ;;
        *)
            set+=(--set "data.path=$WORK/pictures" --set data.layout=folder)
            set+=(--set "data.validation=$WORK/eval/bsds500_val")
            ;;
    esac
    if [[ $1 != pix2pix && $1 != dcgan && $1 != pgn ]]; then
        set+=(--set "features=$WORK/features/vgg16_pool3.safetensors")
    fi
    if [ "$1" = pconv ]; then set+=(--set "masks.folder=$WORK/masks"); fi
    case $1 in pgn) steps=60 ;; pdgan) steps=25 ;; dcgan) steps=150 ;; *) steps=40 ;; esac
    echo "--steps ${STEPS:-$steps} --warm-up ${WARM_UP:-12} --pictures 300 --limit-s $LIMIT_S ${set[*]} $EXTRA ${!own:-}"
}

extra_cells() { # NAME: those that the source's experiment needs beside the others
    python3 -c "from training.study.sources import STUDIES as s; print(*('', *(c for c in s['$1'].cells if '2gpu' not in c)), sep=',')"
}

study() { # FOLDER NAME CELLS FLAGS…; what it says goes to a log
    local folder=$1 name=$2 cells=$3
    shift 3
    # shellcheck disable=SC2046 # flags are words
    python3 -m training study "$name" -o "$WORK/$folder/$name" --cells "$cells" $(flags "$name") "$@" \
        >>"$WORK/logs/$folder-$name.log" 2>&1 || echo "$folder $name ended with $?" >>"$WORK/logs/failed.log"
}

warm() {
    rm -f "$WORK/warmed"
    setsid nohup bash "$SELF" warm_all >>"$WORK/logs/warm.log" 2>&1 </dev/null &
    echo "compiling in the background"
}

warm_all() {
    echo "$STUDIES" | tr ' ' '\n' | xargs -P "$AT_ONCE" -I{} nice -n 5 timeout -k 5 "${WARM_S:-900}" bash "$SELF" warm_one {} || true
    touch "$WORK/warmed"
}

warm_one() { # NAME: a few steps of each compiled cell, and none of the others
    local cells
    cells=$(echo "$CELLS$(extra_cells "$1")" | tr ',' '\n' | grep compiled | paste -sd,)
    STEPS=1 WARM_UP=5 study "warm${FOLDER:+-$FOLDER}" "$1" "$cells"
}

run() { # SECONDS
    local seconds=$1 name cells
    for name in $STUDIES; do
        cells=$CELLS$(extra_cells "$name")
        timeout -k 5 "$seconds" bash "$SELF" study "${FOLDER:-studies}" "$name" "$cells" --turn "$WORK/turn" &
    done
    wait
    pack
    peek
}

peek() {
    if [ -e "$WORK/warmed" ]; then echo WARMED; fi
    tail -n 2 "$WORK"/logs/*.log 2>/dev/null | cut -c1-200 || true
    python3 - "$WORK" <<'PY'
import json, sys
from pathlib import Path

for path in sorted(Path(sys.argv[1]).glob("*/*/cells/*.json")):
    if path.name.endswith(".request.json"):
        continue
    row = json.loads(path.read_text())
    figures = row.get("figures", {})
    said = [row.get("reason", ""), *(figures.get(key) for key in ("step_ms", "images_per_s", "power_w", "loss", "validation_psnr_db"))]
    print(path.parts[-4], path.parts[-3], path.stem, row["status"], *said)
PY
}

pack() {
    tar -C "$WORK" -czf "$OUT/studies.tar.gz.partial" --exclude '*.request.json' $(cd "$WORK" && ls -d studies ${FOLDER:-} logs 2>/dev/null)
    mv "$OUT/studies.tar.gz.partial" "$OUT/studies.tar.gz"
    ls -la "$OUT"
}

"$@"
