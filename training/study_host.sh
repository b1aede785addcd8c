#!/usr/bin/env bash
# Runs the studies of all six generators on a GPU host that allows only commands of under ten minutes; docs/training_internals.md has
# the order of these commands:
#   gpu_host.sh stage            first: install wheels, pictures, features
#   study_host.sh warm           fill the compiler's caches in the background, beside other work; returns at once
#   study_host.sh peek           print the last lines of the logs, and the cells so far
#   study_host.sh run SECONDS    run all studies at once; they time their steps one after another, and nothing else may use the GPU.
#                                Cells are measured in rounds, so that every study has FP32 and its first half precision
#                                before any study has more. The same command continues with the missing cells
#   study_host.sh one NAME       one study with 300 steps in each cell: FP32 and half precision
#   study_host.sh pack           write reports, cells and logs to $OUT/studies.tar.gz
# STUDIES, ROUNDS: the studies and cells to run. PROFILE_FLAG=--profile lists operators and counts FLOPs too. EXTRA: further flags of
# every study; EXTRA_NAME, such as EXTRA_pgn: of one study. FOLDER: another folder, for results of other flags. WORK: folder for all files.
set -euo pipefail
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
WORK=${WORK:-/tmp/retouch} OUT=${OUT:-/tmp/retouch/out} PROFILE_FLAG=${PROFILE_FLAG:---no-profile}
STUDIES=${STUDIES:-pgn pdgan pix2pixhd pconv pix2pix dcgan} EXTRA=${EXTRA:-} AT_ONCE=${AT_ONCE:-3} LIMIT_S=${LIMIT_S:-240}
ROUNDS=${ROUNDS:-fp32,bf16 fp16-compiled tf32 bf16-compiled own} # own: the cells of the source's experiment
cd "$(dirname "$SELF")/.."
mkdir -p "$WORK/logs" "$OUT"
export WORK OUT PROFILE_FLAG STUDIES EXTRA LIMIT_S ROUNDS PYTHONPATH="$WORK/site:/tmp/retouch-site:$PWD" PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$WORK/inductor} TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$WORK/triton}
export TORCHINDUCTOR_FX_GRAPH_CACHE=1 TORCHINDUCTOR_AUTOGRAD_CACHE=1 TORCHINDUCTOR_COMPILE_THREADS=${COMPILE_THREADS:-4}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

flags() { # NAME: the paths of the data that `stage` copied, and the number of timed steps
    local set=(--set data.threads=4 --set data.validation_limit=32) steps own=EXTRA_$1
    case $1 in
        pix2pix | pix2pixhd) set+=(--set "data.path=$WORK/facades/train" --set "data.validation=$WORK/facades/test") ;;
        dcgan) set+=(--set "data.path=$WORK/facades/train") ;;
        *)
            if compgen -G "$WORK/photos/*.tar" >/dev/null; then
                set+=(--set "data.path=$WORK/photos")
            else
                set+=(--set "data.path=$WORK/pictures" --set data.layout=folder)
            fi
            set+=(--set "data.validation=$WORK/eval/bsds500_val")
            ;;
    esac
    if [[ $1 != pix2pix && $1 != dcgan && $1 != pgn ]]; then
        set+=(--set "features=$WORK/features/vgg16_pool3.safetensors")
    fi
    if [ "$1" = pconv ]; then set+=(--set "masks.folder=$WORK/masks"); fi
    case $1 in pgn) steps=40 ;; pdgan) steps=20 ;; dcgan) steps=100 ;; *) steps=25 ;; esac
    echo "--steps ${STEPS:-$steps} --warm-up ${WARM_UP:-8} --pictures 300 --limit-s $LIMIT_S ${set[*]} $EXTRA ${!own:-}"
}

cells_up_to() { # NAME ROUND…: all cells of these rounds, so that the report has them all
    local name=$1 own
    shift
    own=$(python3 -c "from training.study.sources import STUDIES as s; print(*(c for c in s['$name'].cells if '2gpu' not in c), sep=',')")
    tr ' ' '\n' <<<"${*//own/$own}" | grep . | paste -sd,
}

study() { # FOLDER NAME CELLS FLAGS…; the output is in a log
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
    tr ' ' '\n' <<<"$STUDIES" | xargs -P "$AT_ONCE" -I{} nice -n 5 timeout -k 5 "${WARM_S:-900}" bash "$SELF" warm_one {} || true
    touch "$WORK/warmed"
}

warm_one() { # NAME: run a few steps of each compiled cell
    local cells
    # shellcheck disable=SC2086 # rounds are words
    cells=$(cells_up_to "$1" $ROUNDS | tr ',' '\n' | grep compiled | paste -sd,)
    STEPS=1 WARM_UP=5 study "warm${FOLDER:+-$FOLDER}" "$1" "$cells" --no-profile
}

run() { # SECONDS
    local until=$((SECONDS + $1)) name round done=()
    for round in $ROUNDS; do
        done+=("$round")
        for name in $STUDIES; do
            if ((until - SECONDS < 1)); then break; fi
            timeout -k 5 $((until - SECONDS)) bash "$SELF" study "${FOLDER:-studies}" "$name" "$(cells_up_to "$name" "${done[@]}")" \
                --lock-file "$WORK/lock" "$PROFILE_FLAG" &
        done
        wait
        echo "round $round ended, $((until - SECONDS)) s left"
    done
    pack
    peek
}

one() { # NAME FLAGS…: FP32 and compiled half precision of one study (or CELLS), 300 steps each: $OUT/study-NAME
    local name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    python3 -m training study "$name" -o "$OUT/study-$name" --cells "${CELLS:-fp32,bf16-compiled-graphs,fp16-compiled-graphs}" \
        $(STEPS=300 WARM_UP=20 LIMIT_S=600 flags "$name") "$@"
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
    # shellcheck disable=SC2046,SC2086 # names are words
    tar -C "$WORK" -czf "$OUT/studies.tar.gz.partial" --exclude '*.request.json' $(cd "$WORK" && ls -d studies ${FOLDER:-} logs 2>/dev/null)
    mv "$OUT/studies.tar.gz.partial" "$OUT/studies.tar.gz"
    ls -la "$OUT"
}

"$@"
