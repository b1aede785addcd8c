#!/bin/sh
# export.sh CHECKPOINT... --name NAME [flags of `retouch export`]: the model into /models, then its engines into /cache.
# With --program-only or --help it only runs `retouch export`.
set -eu
name=
models=$RETOUCH_MODELS_DIR
alone=
previous=
for argument in "$@"; do
    case $previous in
        --name) name=$argument ;;
        --output) models=$argument ;;
    esac
    case $argument in
        --name=*) name=${argument#--name=} ;;
        --output=*) models=${argument#--output=} ;;
        --help | --program-only | --program-only=*) alone=yes ;;
    esac
    previous=$argument
done
if [ -z "$name$alone" ]; then
    echo "say --name NAME: where the model goes, $models/NAME" >&2
    exit 2
fi
# These flags come before the caller's, because the last one wins.
retouch export --images /source/tests/data --output "$RETOUCH_MODELS_DIR" "$@"
[ -n "$alone" ] || retouch build "$name" --models-dir "$models"
