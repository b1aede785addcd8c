from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from export.checkpoint import load_strictly, read_checkpoint, sha256_of
from export.errors import CheckpointRefused, LayoutMismatch

STATE = {"enc.weight": torch.arange(6.0).view(2, 3), "enc.bias": torch.zeros(2)}


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


def _saved(tmp_path: Path, value: object, **options: object) -> Path:
    path = tmp_path / "checkpoint.pth"
    torch.save(value, path, **options)
    return path


def _single(path: Path) -> dict[str, torch.Tensor]:
    (part,) = read_checkpoint(path).parts
    return part.state


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
def test_state_dicts_are_read_from_both_formats(tmp_path, zipped):
    state = _single(_saved(tmp_path, STATE, _use_new_zipfile_serialization=zipped))
    assert all(torch.equal(state[key], STATE[key]) for key in STATE)


def test_safetensors_are_read(tmp_path):
    safetensors.torch.save_file(STATE, tmp_path / "net.safetensors")
    assert _single(tmp_path / "net.safetensors").keys() == STATE.keys()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions_become_fp32(tmp_path, kind):
    state = _single(_saved(tmp_path, {key: tensor.to(kind) for key, tensor in STATE.items()}))
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
@pytest.mark.parametrize("protocol", [4, 5])
def test_a_newer_pickle_protocol_is_named_with_what_to_do(tmp_path, protocol, zipped):
    path = _saved(tmp_path, STATE, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointRefused, match=r"protocol 4 or later.*without pickle_protocol"):
        read_checkpoint(path)


def test_integer_tensors_stay_integers(tmp_path):
    assert (
        _single(_saved(tmp_path, {"bn.num_batches_tracked": torch.tensor(3)}))["bn.num_batches_tracked"].dtype
        == torch.int64
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrapping_modules_are_removed(tmp_path, prefix):
    assert _single(_saved(tmp_path, {prefix + key: tensor for key, tensor in STATE.items()})).keys() == STATE.keys()


def test_the_counter_beside_the_weights_that_torch_averages_is_left_out(tmp_path):
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Conv2d(3, 4, 3))
    assert _single(_saved(tmp_path, averaged.state_dict())).keys() == {"weight", "bias"}


def test_a_prefix_that_only_some_keys_have_stays(tmp_path):
    assert set(_single(_saved(tmp_path, {"module.a": torch.zeros(1), "b": torch.zeros(1)}))) == {"module.a", "b"}


@pytest.mark.parametrize("wrapper", ["model", "state_dict", "net", "generator", "G_ema"])
def test_wrappers_are_opened_and_named(tmp_path, wrapper):
    (part,) = read_checkpoint(_saved(tmp_path, {"epoch": 3, wrapper: OrderedDict(STATE), "args": {"lr": 0.1}})).parts
    assert (part.path, part.state.keys()) == (wrapper, STATE.keys())


@pytest.mark.parametrize(
    "prefix", ["generator", "netG", "G", "ema_model", "generator.module", "unet", "backbone", "pconv"]
)
def test_nets_are_found_under_a_prefix_of_their_keys(tmp_path, prefix):
    keys = {f"{prefix}.{key}": tensor for key, tensor in STATE.items()}
    whole, net = read_checkpoint(_saved(tmp_path, {**keys, "discriminator.weight": torch.zeros(1)})).parts
    assert (whole.path, net.path) == ("", prefix.partition(".")[0])
    assert net.state.keys() == STATE.keys()


def test_several_nets_are_all_found(tmp_path):
    parts = read_checkpoint(_saved(tmp_path, {"nets": {"G": dict(STATE), "D": dict(STATE)}})).parts
    assert [part.path for part in parts] == ["nets/G", "nets/D"]


def test_optimizers_are_passed_over(tmp_path):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(1, 2)).sum().backward()
    optimizer.step()
    path = _saved(
        tmp_path, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "lr_scheduler": {"x": STATE}}
    )
    assert [part.path for part in read_checkpoint(path).parts] == ["model"]


def test_a_checkpoint_of_deeply_nested_dicts_is_refused(tmp_path):
    value: dict[str, object] = dict(STATE)
    for _ in range(12):
        value = {"a": value, "b": value}
    with pytest.raises(CheckpointRefused, match="no state dict"):
        read_checkpoint(_saved(tmp_path, value))


def test_code_in_a_pickle_is_never_run(tmp_path):
    path = _saved(tmp_path, {"model": STATE, "hook": RunsCode()})
    with pytest.raises(CheckpointRefused, match=r"needs (posix|nt)\.system .*state_dict\(\) alone"):
        read_checkpoint(path)


def test_code_in_a_bare_pickle_is_never_run(tmp_path):
    path = tmp_path / "net.pickle"
    path.write_bytes(pickle.dumps(RunsCode()))
    with pytest.raises(CheckpointRefused):
        read_checkpoint(path)


def test_a_whole_module_is_refused_with_the_reason(tmp_path):
    with pytest.raises(CheckpointRefused, match=r"needs torch\.nn\.modules\.linear\.Linear to be unpickled"):
        read_checkpoint(_saved(tmp_path, nn.Linear(1, 1)))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, share, zipped):
    path = _saved(tmp_path, {"a": torch.rand(1000)}, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(CheckpointRefused, match="truncated or not a torch checkpoint"):
        read_checkpoint(path)


def test_an_onnx_graph_is_sent_to_the_command_that_takes_it(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(CheckpointRefused, match=r"becomes a model by retouch import .*net\.onnx$"):
        read_checkpoint(tmp_path / "net.onnx")


def test_a_file_that_gzip_compressed_is_to_be_unpacked_first(tmp_path):
    packed = tmp_path / "net.pth.gz"
    packed.write_bytes(gzip.compress(_saved(tmp_path, {"a": torch.rand(9)}).read_bytes()))
    with pytest.raises(CheckpointRefused, match=r"net\.pth\.gz: compressed with gzip; unpack it first"):
        read_checkpoint(packed)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" + bytes(100), b"<!doctype html>", bytes(1000)])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "net.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointRefused, match="not a torch checkpoint"):
        read_checkpoint(path)


def test_compressed_zips_are_refused_before_they_are_unpacked(tmp_path):
    source, path = zipfile.ZipFile(_saved(tmp_path, STATE)), tmp_path / "bomb.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for entry in source.infolist():
            packed.writestr(entry.filename, source.read(entry))
    source.close()
    with pytest.raises(CheckpointRefused, match="is compressed"):
        read_checkpoint(path)


def test_damaged_zip_directories_are_refused(tmp_path):
    path = _saved(tmp_path, STATE)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at : at + 4] = b"XXXX"
    path.write_bytes(data)
    with pytest.raises(CheckpointRefused, match=r"damaged zip|not a torch checkpoint"):
        read_checkpoint(path)


def test_safetensors_that_are_none_are_refused(tmp_path):
    (tmp_path / "net.safetensors").write_bytes(b"{}")
    with pytest.raises(CheckpointRefused, match="not a safetensors file"):
        read_checkpoint(tmp_path / "net.safetensors")


def test_tensors_that_claim_more_than_they_hold_are_refused(tmp_path):
    with pytest.raises(CheckpointRefused, match=r"a claims shape \(100000, 100000\)"):
        read_checkpoint(_saved(tmp_path, {"a": torch.zeros(1).expand(100_000, 100_000)}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_weights_are_refused_by_name(tmp_path, value):
    with pytest.raises(CheckpointRefused, match=r"enc\.bias holds NaN or infinity"):
        read_checkpoint(_saved(tmp_path, {**STATE, "enc.bias": torch.tensor([1, value])}))


@pytest.mark.parametrize(
    "beside",
    [
        {"best_loss": torch.tensor(float("inf"))},
        {"netD": {"head.weight": torch.full((2,), float("nan"))}},
        {"loss": {"freqs": torch.zeros(2, dtype=torch.complex64)}},
    ],
    ids=["best loss", "diverged discriminator", "complex buffer"],
)
def test_a_checkpoint_may_hold_other_values_beside_the_weights(tmp_path, beside):
    parts = read_checkpoint(_saved(tmp_path, {"netG": STATE, **beside})).parts
    assert "netG" in {part.path for part in parts}


def test_sparse_weights_are_refused_by_name(tmp_path):
    with pytest.raises(CheckpointRefused, match=r"enc\.bias is sparse"):
        read_checkpoint(_saved(tmp_path, {"enc.bias": torch.eye(2).to_sparse()}))


@pytest.mark.parametrize(
    "value", [{}, [1, 2], {"epoch": 3}, torch.zeros(2)], ids=["empty", "list", "numbers", "tensor"]
)
def test_files_without_a_state_dict_are_refused(tmp_path, value):
    with pytest.raises(CheckpointRefused, match="holds no state dict"):
        read_checkpoint(_saved(tmp_path, value))


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(CheckpointRefused, match="No such file"):
        read_checkpoint(tmp_path / "none.pth")


def test_digest_is_the_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert sha256_of(path).startswith("ba7816bf")


def test_missing_unexpected_and_misshapen_keys_are_named():
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    state = {key: tensor for key, tensor in net.state_dict().items() if key != "1.bias"}
    state |= {"0.weight": torch.zeros(2, 4), "extra": torch.zeros(1)}
    with pytest.raises(LayoutMismatch) as caught:
        load_strictly(net, state)
    assert str(caught.value) == (
        "keys missing: 1.bias; unexpected: extra; of another shape: 0.weight (2, 4) instead of (2, 3)"
    )


@pytest.mark.parametrize("counted", [None, torch.tensor(torch.inf, dtype=torch.float16)], ids=["lost", "overflown"])
def test_counters_of_batch_norms_may_be_what_a_conversion_left_of_them(counted, tmp_path):
    net = nn.BatchNorm2d(2)
    state = {f"bn.{key}": tensor for key, tensor in net.state_dict().items() if key != "num_batches_tracked"}
    if counted is not None:
        state["bn.num_batches_tracked"] = counted
    loaded = nn.Sequential(OrderedDict(bn=nn.BatchNorm2d(2)))
    load_strictly(loaded, _single(_saved(tmp_path, {"weights": state})))
    assert torch.equal(loaded(torch.ones(1, 2, 1, 1)), net.eval()(torch.ones(1, 2, 1, 1)))


def test_a_long_list_of_keys_is_cut_and_counted():
    with pytest.raises(LayoutMismatch, match=r"unexpected: k0, k1, .*k7 and 12 more$"):
        load_strictly(nn.Identity(), {f"k{i}": torch.zeros(1) for i in range(20)})


def test_reading_does_not_close_over_the_file(tmp_path):
    path = _saved(tmp_path, STATE)
    state = _single(path)
    path.write_bytes(io.BytesIO(b"changed").getvalue())
    assert torch.equal(state["enc.weight"], STATE["enc.weight"])


@pytest.mark.parametrize("keys", [[""], [f"{number}" for number in range(30)]], ids=["unnamed", "thirty times"])
def test_mapping_that_holds_itself_is_read_once(keys, tmp_path):
    around: dict[str, object] = dict(STATE)
    around.update(dict.fromkeys(keys, around))
    assert _single(_saved(tmp_path, around)).keys() == STATE.keys()


def test_state_is_found_where_it_lies_deepest(tmp_path):
    deepest: dict[str, object] = {"a": {"b": {"c": {"d": STATE}}}}
    (part,) = read_checkpoint(_saved(tmp_path, deepest)).parts
    assert part.path == "a/b/c/d"
    with pytest.raises(CheckpointRefused, match="no state dict"):
        read_checkpoint(_saved(tmp_path, {"more": deepest}))


def test_mapping_first_met_too_deep_is_opened_where_it_is_higher(tmp_path):
    shared = {"inner": STATE}
    (part,) = read_checkpoint(_saved(tmp_path, {"a": {"b": {"c": {"d": shared}}}, "z": shared})).parts
    assert part.path == "z/inner"
