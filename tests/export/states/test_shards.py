"""A net in several files is read from any one of them, or from their index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from export.checkpoint import read_checkpoint, read_checkpoints
from export.errors import CheckpointRefused, LayoutMismatch
from export.generators.family import State
from export.recognition import notes_on_files, recognise
from export.states.shards import files_of_nets
from tests.export.states.tiny_nets import TINY, made, outputs, reread

SAVE: dict[str, Callable[[State, Path], None]] = {".safetensors": save_file, ".bin": torch.save}


def _write(state: State, folder: Path, suffix: str, count: int = 3) -> list[Path]:
    """Write shards of a state dict and their index, as Hugging Face's libraries do; the index is first."""
    names = [f"model-{number + 1:05}-of-{count:05}{suffix}" for number in range(count)]
    keys = list(state)
    for number, name in enumerate(names):
        SAVE[suffix]({key: state[key].clone() for key in keys[number::count]}, folder / name)
    index = folder / f"model{suffix}.index.json"
    places = {key: names[number % count] for number, key in enumerate(keys)}
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return [index, *(folder / name for name in names)]


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("given", [0, 1, 3], ids=["index", "first shard", "last shard"])
def test_one_file_of_a_divided_net_stands_for_all(given, suffix, make_net, tmp_path):
    net = made("unet", make_net)
    files = _write(net.state_dict(), tmp_path, suffix)
    found, again = reread(files[given])
    assert (found.options, found.notes) == (TINY["unet"][1], ())
    assert torch.equal(outputs("unet", again), outputs("unet", net))


def test_all_files_of_a_divided_net_are_one_net_with_one_digest(make_net, tmp_path):
    files = _write(made("dcgan", make_net).state_dict(), tmp_path, ".safetensors")
    (checkpoint,) = read_checkpoints(files)
    assert {read_checkpoint(file).sha256 for file in files} == {checkpoint.sha256}


def test_missing_shards_are_named(make_net, tmp_path):
    files = _write(made("dcgan", make_net).state_dict(), tmp_path, ".bin")
    files[2].unlink()
    for file in (files[0], files[1]):
        with pytest.raises(CheckpointRefused, match=r"in 3 files, of which model-00002-of-00003\.bin are missing"):
            read_checkpoint(file)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"weight_map": {}}',
        b'{"weight_map": {"a": "../secret.bin"}}',
        b'{"weight_map": {"a": "/etc/passwd"}}',
        b'{"weight_map": {"a": ".."}}',
        b'{"weight_map": {"a": ""}}',
        b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": "%s"}}' % (b"a" * 300),
        b'{"weight_map": {"a": "%s"}}' % ("\u00e4".encode() * 200),
        b'{"weight_map": {"a": "\\ud800.bin"}}',
        b'{"weight_map": {"a": "a\\u0000.bin"}}',
    ],
)
def test_an_index_that_is_none_or_leads_elsewhere_is_refused(content, tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(content)
    with pytest.raises(CheckpointRefused, match=r"index\.json: ") as refused:
        read_checkpoint(index)
    assert len(str(refused.value).encode()) < 800, "it can be printed"


def test_a_name_that_only_looks_like_a_shards_is_a_file_of_its_own(tmp_path):
    for name in ("net-1-of-2.pth", "net-00000-of-00000.pth", "net-00001-of-99999.pth"):
        path = tmp_path / name
        assert files_of_nets([path]) == [(path, (path,))]


@pytest.mark.parametrize("name", ["unet", "pconv", "fillnet"])
def test_halves_of_a_net_in_files_of_any_name_are_joined_and_counted(name, make_net, tmp_path):
    net = made(name, make_net)
    keys = list(net.state_dict())
    files = [tmp_path / "a.pth", tmp_path / "b.pth"]
    for file, some in zip(files, (keys[: len(keys) // 2], keys[len(keys) // 2 :]), strict=True):
        torch.save({key: net.state_dict()[key] for key in some}, file)
    found, again = reread(*files)
    assert found.notes == ("used 2 nets as one model",)
    assert torch.equal(outputs(name, again), outputs(name, net))


def test_halves_of_a_net_are_not_said_to_be_left_out(make_net, tmp_path):
    state = made("dcgan", make_net).state_dict()
    for number in range(2):
        torch.save(dict(list(state.items())[number::2]), tmp_path / f"{number}.pth")
    torch.save({"d": torch.zeros(1)}, tmp_path / "netD.pth")
    files = read_checkpoints([tmp_path / name for name in ("0.pth", "1.pth")])
    found = recognise([part for file in files for part in file.parts], None, {})
    other = read_checkpoint(tmp_path / "netD.pth")
    notes = notes_on_files(found, {file.path: file.parts for file in (*files, other)})
    assert notes == (f"left out: {other.path}",)


def test_a_half_alone_is_refused_with_the_advice_to_give_all_files(make_net, tmp_path):
    state = made("pconv", make_net).state_dict()
    torch.save({key: tensor for key, tensor in state.items() if "enc" in key}, tmp_path / "half.pth")
    with pytest.raises(LayoutMismatch, match="give all files of a net in several"):
        reread(tmp_path / "half.pth")
    torch.save({key: tensor for key, tensor in state.items() if "dec_2" not in key}, tmp_path / "half.pth")
    with pytest.raises(LayoutMismatch, match=r"missing: dec_2.*; if the net is in several files, give all of them$"):
        reread(tmp_path / "half.pth")
