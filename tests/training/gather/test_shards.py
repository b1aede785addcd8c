import os
import tarfile

from training.gather.shards import ShardWriter


def _write(folder, files, max_bytes):
    with ShardWriter(folder, "photos", max_bytes) as writer:
        for name, data in files.items():
            writer.add(name, data)
    return writer.paths


def test_shards_stay_under_their_size_and_hold_every_file_once(tmp_path):
    files = {f"{i}.jpg": os.urandom(20_000 + i) for i in range(20)}
    paths = _write(tmp_path, files, 100_000)
    found: dict[str, bytes] = {}
    for path in paths:
        assert path.stat().st_size <= 100_000
        with tarfile.open(path) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}
    assert found == files
    assert [path.name for path in paths] == [f"photos-{i:03}.tar" for i in range(len(paths))]
    assert len(paths) < 8


def test_same_files_give_the_same_bytes(tmp_path):
    files = {"a.jpg": b"1" * 700, "b.jpg": b"2" * 900}
    (one,), (other,) = (_write(tmp_path / name, files, 10**6) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
