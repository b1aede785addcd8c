#!/usr/bin/env bash
# A part of what pack.sh packed as @NAME@; the last one lays out /tmp/retouch-@NAME@, which is put on PYTHONPATH.
set -euo pipefail
to=/tmp/retouch-@NAME@ parts=/tmp/retouch-@NAME@.parts
mkdir -p $parts; cp "$(dirname "$0")"/part.* $parts/
have=$(ls $parts | wc -l); echo "@NAME@: $have of @TOTAL@ parts"; ((have == @TOTAL@)) || exit 0
rm -rf $to; mkdir $to
cat $parts/part.* | xz -dc -T0 | tar -x -C $to
python3 -m compileall -q -j 0 $to > /dev/null || true  # dozens of processes import it at once; Ray waits 30 s for its own
echo "@NAME@: ready"
