#!/usr/bin/env bash
# Packs the files for gpu_window.sh in folders to be copied one at a time: pack_window.sh ASSETS OUT. ASSETS has photos, housefronts, photos8, facades,
# cases.npz; OUT gets gw1 (this repository's commit, site, pictures, photos/5), gw2 and gw3 (wheels), gw4 (photos8, the INT8 graph).
# On the host: bash OUT/gwK/unpack.sh for every K.
set -euo pipefail
assets=$1 out=$2 here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$out"/gw?; mkdir -p "$out"/gw1 "$out"/gw4
[ -e "$out/site/1" ] || bash "$here/pack.sh" site "$out/site"
[ -e "$out/wheels/2" ] || XZ=6 PART_MIB=52 bash "$here/pack.sh" wheels "$out/wheels"
git -C "$root" archive HEAD -- . ':!models' ':!docs' | xz -2 > "$out/gw1/repo.tar.xz"
tar -C "$assets" -c photos housefronts facades cases.npz | xz -T0 -3 > "$out/gw1/assets.tar.xz"
tar -C "$assets" -c photos8 | xz -T0 -3 > "$out/gw4/assets.tar.xz"
cp -r "$out/site/1" "$out/gw1/site"
cp -r "$out/wheels/1" "$out/gw2"; cp -r "$out/wheels/2" "$out/gw3"
cat > "$out/gw1/unpack.sh" << 'U'
#!/usr/bin/env bash
set -eu
here=$(cd "$(dirname "$0")" && pwd); mkdir -p /tmp/gw/assets /tmp/gw/repo
if [ -e $here/repo.tar.xz ]; then tar -C /tmp/gw/repo -xf $here/repo.tar.xz; bash $here/site/unpack.sh; fi
tar -C /tmp/gw/assets -xf $here/assets.tar.xz
U
cp "$out/gw1/unpack.sh" "$out/gw4/unpack.sh"
du -sm "$out"/gw?
