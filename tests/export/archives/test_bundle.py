from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
import torch

from export.checkpoint import read_checkpoint, sha256_of
from export.errors import CheckpointRefused
from tests.export.archives.script_files import zipped


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _bundle(tmp_path: Path, entries: dict[str, bytes]) -> Path:
    path = tmp_path / "net.zip"
    path.write_bytes(zipped(entries, zipfile.ZIP_DEFLATED))
    return path


def test_checkpoint_beside_its_configuration_is_read_and_its_digest_is_the_zips(tmp_path):
    weights = torch.rand(100)
    files = {"net/config.yaml": b"a: 1\n", "net/models/best.ckpt": _saved({"state_dict": {"weight": weights}})}
    path = _bundle(tmp_path, files)
    found = read_checkpoint(path)
    assert torch.equal(found.parts[0].state["weight"], weights)
    assert found.sha256 == sha256_of(path)


@pytest.mark.parametrize("name", ["../../best.ckpt", "/tmp/best.ckpt", "..\\best.ckpt"])
def test_an_entry_whose_name_leads_out_is_read_and_written_nowhere_else(name, tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    path = _bundle(inner, {name: _saved({"weight": torch.ones(4)})})
    assert read_checkpoint(path).parts[0].state["weight"].tolist() == [1, 1, 1, 1]
    assert [found.name for found in tmp_path.rglob("*") if found.is_file()] == ["net.zip"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a.pth": b"x", "b.ckpt": b"y"}, r"net\.zip: holds a\.pth, b\.ckpt; unpack it"),
        ({"a.pth": bytes(1_000_000)}, r"a\.pth would unpack to 1000000 bytes"),
        ({"a.pth": b"web page"}, r"net\.zip, a\.pth: truncated or not a torch checkpoint"),
        ({"a.pth": _saved(os.system)}, r"net\.zip, a\.pth: needs posix\.system"),
        ({"a.pth": zipped({"b.pth": b"x"})}, r"net\.zip, a\.pth: truncated or not a torch checkpoint"),
        ({"../../a.txt": b"x"}, r"net\.zip: not a torch checkpoint, and a zip file without one \(\.ckpt, \.pth"),
        ({"enc.weight.npy": b"x", "enc.bias.npy": b"x"}, r"net\.zip: arrays of NumPy .* torch\.from_numpy"),
    ],
    ids=["two", "bomb", "web page", "system call", "zip in a zip in a zip", "nothing", "arrays of NumPy"],
)
def test_hostile_bundles_are_refused(entries, message, tmp_path):
    with pytest.raises(CheckpointRefused, match=message):
        read_checkpoint(_bundle(tmp_path, entries))
