#!/usr/bin/env bash
# Trains on a GPU host that allows only commands of under ten minutes; docs/training_hosts.md has the order of these commands:
#   gpu_host.sh stage                      install the copied wheels, photo shards, features and pictures
#   gpu_host.sh fit NAME TOTAL_S STOP_S    plan training/configs/NAME.toml for TOTAL_S seconds of steps (once; a config with
#                                          `seconds` gets TOTAL_S without a plan), then train for STOP_S seconds, or continue
#                                          where the last call stopped
#   gpu_host.sh begin NAME RUN S [FLAGS]   train configs/NAME.toml in the background for S seconds, as run RUN; returns after 20 s
#   gpu_host.sh follow RUN                 print the end of the run's log, and copy its newest sheet to $OUT
#   gpu_host.sh profile NAME [FLAGS]       profile steps of training/configs/NAME.toml into $OUT/profile-NAME
#   gpu_host.sh scaling [FLAGS]            run benchmarks.training.scaling on one GPU and two, into $OUT/scaling.json; first with
#                                          --steps 12, beside other work, to fill the compiler's cache. BATCHES, PAIRS: global
#                                          batches of photos and facades (512,256 and 512); PAIRS= leaves facades out
#   gpu_host.sh take NAME FILE             copy FILE of the run (generator, generator-phase0) to $OUT, in parts
# Studies: study_host.sh. EXTRA: further flags of fit. CARRIED (.carry): folder of the files that were copied to the host.
# WORK: folder for everything else. OUT: folder for logs, sheets and results.
set -euo pipefail
cd "$(dirname "$0")/.."
CARRIED=${CARRIED:-.carry} WORK=${WORK:-/tmp/retouch} OUT=${OUT:-$WORK/out}
export PYTHONPATH="$WORK/site:/tmp/retouch-site:$PWD" PYTHONUNBUFFERED=1 # also the packages of benchmarks/gpu_host/pack.sh
mkdir -p "$WORK/photos" "$WORK/site" "$OUT"

stage() {
    if compgen -G "$CARRIED/whl*/*.whl" >/dev/null; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$WORK/site" "$CARRIED"/whl*/*.whl
    fi
    cp -v "$CARRIED"/photos/*.tar "$WORK/photos/" 2>/dev/null || true
    for folder in features masks eval facades fronts pictures; do
        if [ -d "$CARRIED/$folder" ]; then cp -r "$CARRIED/$folder" "$WORK/"; fi
    done
    ls -la "$WORK" "$WORK/photos"
}

paths() { # NAME: overrides for the output folder, and for the paths of the data that `stage` copied
    local config=training/configs/$1.toml data=photos truth=eval/bsds500_val option file set=(--set "output=$WORK/runs/$1")
    case $1 in
        facades* | housefronts) data=facades/train truth=facades/test ;;
        fronts-diverse) truth=fronts/test ;;
    esac
    if [[ $1 = photos* ]] && ! compgen -G "$WORK/photos/*.tar" >/dev/null; then # a folder of pictures instead of shards
        data=pictures set+=(--set data.layout=folder)
    fi
    set+=(--set "data.path=$WORK/$data")
    if ! grep -q '^model = "dcgan"' "$config"; then set+=(--set "data.validation=$WORK/$truth"); fi
    if grep -q '^\[masks\]' "$config"; then set+=(--set "masks.folder=$WORK/masks"); fi
    for option in features lpips_features initial; do
        file=$(sed -n "s|^$option = \"\(.*/\)\?\([^\"/]*\)\".*|\2|p" "$config")
        if [ -n "$file" ]; then set+=(--set "$option=$WORK/features/$file"); fi
    done
    if [ "$1" = photos-features ]; then set+=(--set "initial=$WORK/runs/photos/generator.pth"); fi # the last --set of an option counts
    echo "${set[@]}"
}

fit() {
    local name=$1 total=$2 stop=$3 config=training/configs/$1.toml run=$WORK/runs/$1 set
    set="$(paths "$name") ${EXTRA:-}"
    mkdir -p "$run/sheets"
    if grep -q "^seconds" "$config"; then echo "--set seconds=$total" >"$run/plan"; fi
    # shellcheck disable=SC2086 # flags are words
    [ -s "$run/plan" ] || python3 -m training plan "$config" --seconds "$total" $set | tee "$run/plan"
    # shellcheck disable=SC2046,SC2086
    python3 -m training fit "$config" $set $(cat "$run/plan") --stop-after-seconds "$stop"
    cp "$run/plan" "$run/log.jsonl" "$OUT/"
    find "$run/sheets" -name '*.png' | sort | tail -n 2 | xargs -r -I{} cp {} "$OUT/"
    ls -la "$run"
}

begin() {
    local name=$1 run=$2 seconds=$3
    shift 3
    # shellcheck disable=SC2046 # flags are words
    setsid nohup python3 -m training fit "training/configs/$name.toml" $(paths "$name") --set "output=$WORK/runs/$run" \
        --set "seconds=$seconds" "$@" >"$WORK/$run.log" 2>&1 </dev/null &
    sleep "${FIRST_S:-20}"
    follow "$run"
}

follow() {
    tail -c 600 "$WORK/$1.log"
    tail -n 3 "$WORK/runs/$1/log.jsonl" 2>/dev/null || true
    cp "$WORK/runs/$1/log.jsonl" "$OUT/$1.jsonl" 2>/dev/null || true
    find "$WORK/runs/$1/sheets" -name '*.png' 2>/dev/null | sort | tail -n 1 | xargs -r -I{} cp {} "$OUT/$1.png"
}

profile() {
    local name=$1 set
    shift
    set=$(paths "$name")
    # shellcheck disable=SC2086 # flags are words
    python3 -m training profile "training/configs/$name.toml" -o "$OUT/profile-$name" $set "$@"
}

scaling() {
    local set=(--set data.limit=300 --set data.threads=8) runs=() option
    for option in $(paths photos | sed 's/--set//g'); do set+=(--set "photos:$option"); done
    for option in $(paths facades | sed 's/--set//g'); do set+=(--set "facades:$option"); done
    export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$WORK/inductor} TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$WORK/triton}
    if [ -n "${PAIRS-512}" ]; then runs+=(training/configs/facades.toml:"${PAIRS-512}"); fi
    NCCL_NVLS_ENABLE=0 python3 -m benchmarks.training.scaling "${runs[@]}" training/configs/photos.toml:"${BATCHES:-512,256}" --steps 100 --json "$OUT/scaling.json" "${set[@]}" "$@"
}

take() {
    sha256sum "$WORK/runs/$1/$2.pth"
    split -b 15M -d "$WORK/runs/$1/$2.pth" "$OUT/$1-$2.pth."
}

"$@"
