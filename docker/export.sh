#!/bin/sh
# export.sh CHECKPOINT... --name NAME [flags of `retouch export`]: the model into /models, then its engines into /cache.
set -eu
name=
previous=
for argument in "$@"; do
    [ "$previous" = --name ] && name=$argument
    previous=$argument
done
if [ -z "$name" ]; then
    echo "say --name NAME: where the model goes, /models/NAME" >&2
    exit 2
fi
retouch export "$@" --images /source/tests/data --output "$RETOUCH_MODELS_DIR"
retouch build "$name"
