"""Reads untrusted checkpoints without executing code from them, and loads a state dict into a net.

`export.archives` reads a file as data; `export.states` finds the state dicts in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from export.archives.formats import load_file
from export.archives.torch_tensors import SAVE_WEIGHTS
from export.errors import CheckpointRefused, LayoutMismatch
from export.generators.family import State
from export.states.averages import Ordered, completed, in_order, named_averages
from export.states.choosing import chosen_parts
from export.states.finding import MAX_NAME_LENGTH, StateDict, UnnamedTensors, state_dicts, unnamed_averages
from export.states.folding import unfolded_message
from export.states.shards import files_of_nets

_COUNTER = ".num_batches_tracked"
"""Suffix of batch norms' counters. Nothing reads them after training, so converted files may lack or overflow them."""
_MAX_SHARING = 16
"""Largest size of all tensors of a file, as a multiple of the file's size. Tied weights share values, and weights may
have four times the size of a zip that has them; a hostile file could make any number of views of one tensor."""
_MAX_NETS, _MAX_AVERAGES = 256, 16
"""Most state dicts and lists of averages in a file; each is compared with each, and a net's file has about ten."""
_NAMES_SHOWN = 8
_GIVE_ALL = "; if the net is in several files, give all of them"
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_UNSIGNED = (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_INTEGERS = frozenset(_SIGNED + _UNSIGNED)


@dataclass(frozen=True)
class Checkpoint:
    """All state dicts of a file, or of the shards of one net, and their digest."""

    path: Path
    """The file as it was given, which for shards may be their index."""
    sha256: str
    parts: tuple[StateDict, ...]
    unnamed: tuple[UnnamedTensors, ...] = ()
    """Averaged weights without names that no state dict could give names to."""

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on each list of averaged weights that is not used, for the report."""
        return tuple(
            f"passed over {each.path} of {self.path}: averaged weights without names, {len(each.tensors)} tensors that "
            "fit no net's parameters in one order alone; save them under names to export them"
            for each in self.unnamed
        )


def read_checkpoint(path: Path) -> Checkpoint:
    """Read every state dict of a .pth, .pt, .pickle (zip or legacy format) or .safetensors file.

    A shard of a net (`NAME-00001-of-00002.safetensors`) or the index of its shards stands for all of them.

    Raises:
        CheckpointRefused: the file is missing, truncated or not a checkpoint, needs unsafe unpickling, would unpack to
            more than it holds, has a weight that is not dense, or has no state dict whose values are all real and
            finite; the message says which. Values beside a usable state dict, such as the best loss so far, may be
            infinite.
    """
    (checkpoint,) = read_checkpoints([path])
    return checkpoint


def read_checkpoints(paths: Sequence[Path]) -> list[Checkpoint]:
    """Read the files of one model; averaged weights in one file get the names of the net in another.

    Raises:
        CheckpointRefused: as `read_checkpoint`, or shards are missing.
    """
    checkpoints = [_read(path, files) for path, files in files_of_nets(paths)]
    parts = [part for checkpoint in checkpoints for part in checkpoint.parts]
    ordered = [in_order(part) for part in parts] if any(checkpoint.unnamed for checkpoint in checkpoints) else []
    named = [_with_named_averages(checkpoint, ordered) for checkpoint in checkpoints]
    for checkpoint in named:
        if not checkpoint.parts:
            raise CheckpointRefused(_no_state_dict_message(checkpoint))
        if all(faults := [_unusable(part.state) for part in checkpoint.parts]):
            raise CheckpointRefused(f"{checkpoint.path}: {faults[0]}")
    return named


def _read(path: Path, files: Sequence[Path]) -> Checkpoint:
    """Read the files of one net; shards have the same paths, and their keys are put together."""
    states: dict[str, State] = {}
    unnamed: list[UnnamedTensors] = []
    digests = [sha256_of(file) for file in files]
    for file in files:
        value = load_file(file)
        check = _TensorCheck(file)
        unnamed += islice(unnamed_averages(value, check), _MAX_AVERAGES + 1)
        for part in islice(state_dicts(value, check), _MAX_NETS + 1):
            states[part.path] = {**states.get(part.path, {}), **part.state}
        if len(states) > _MAX_NETS or len(unnamed) > _MAX_AVERAGES:
            raise CheckpointRefused(
                f"{file}: over {_MAX_NETS} state dicts or {_MAX_AVERAGES} lists of averages; {SAVE_WEIGHTS}"
            )
    parts = completed([StateDict(where, state) for where, state in states.items()])
    return Checkpoint(path, _joint_digest(digests), tuple(parts), tuple(unnamed))


def _with_named_averages(checkpoint: Checkpoint, parts: Sequence[Ordered]) -> Checkpoint:
    found = [(each, named_averages(each, parts)) for each in checkpoint.unnamed]
    named = tuple(part for _, part in found if part is not None)
    left = tuple(each for each, part in found if part is None)
    return replace(checkpoint, parts=(*named, *checkpoint.parts), unnamed=left)


def _no_state_dict_message(checkpoint: Checkpoint) -> str:
    path = checkpoint.path
    if not checkpoint.unnamed:
        return f"{path}: holds no state dict (names with tensors); export needs a generator's weights"
    (first, *_) = checkpoint.unnamed
    return (
        f"{path}: holds averaged weights without names ({first.path}, {len(first.tensors)} tensors), which fit no net "
        f"in the files given; give the net's own .pth too: retouch export NET.pth {path}"
    )


def refuse_unusable(part: StateDict) -> None:
    """Refuse a state dict that was chosen for loading if its weights are not real and finite.

    Raises:
        CheckpointRefused: a tensor is complex, or has NaN or infinity; the message names it.
    """
    if (fault := _unusable(part.state)) is not None:
        raise CheckpointRefused(f"{part.path}: {fault}" if part.path else fault)


def sha256_of(path: Path) -> str:
    """Compute the file's SHA-256 digest in hexadecimal.

    Raises:
        CheckpointRefused: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise CheckpointRefused(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    return digest.hexdigest()


class _TensorCheck:
    """Checks the tensors of one file, and counts their bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes_left = _MAX_SHARING * path.stat().st_size

    def __call__(self, tensor: Tensor, name: str) -> Tensor:
        """Return a tensor as FP32, or as it is if it has integers.

        Raises:
            CheckpointRefused: it cannot be a weight, or the file's tensors are much larger than the file.
        """
        path, nbytes = self._path, tensor.numel() * tensor.element_size()
        if len(name) > MAX_NAME_LENGTH:
            raise CheckpointRefused(f"{path}: a tensor's name has {len(name)} characters; {SAVE_WEIGHTS}")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise CheckpointRefused(f"{path}: {name} is sparse, nested or quantised; export needs dense weights")
        if tensor.is_meta:
            raise CheckpointRefused(f"{path}: {name} has a shape and no values; {SAVE_WEIGHTS}")
        if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in _INTEGERS):
            raise CheckpointRefused(f"{path}: {name} {_not_real(tensor)}")
        if nbytes > tensor.untyped_storage().nbytes():
            raise CheckpointRefused(f"{path}: {name} claims shape {tuple(tensor.shape)} but holds fewer values")
        self._bytes_left -= nbytes
        if self._bytes_left < 0:
            raise CheckpointRefused(f"{path}: its tensors share storages more often than those of a net")
        return tensor.detach().float().contiguous() if tensor.is_floating_point() else tensor.detach()


def _unusable(state: State) -> str | None:
    """Return why the first tensor that cannot be a weight (complex, NaN, infinite) cannot be one; None if all can.

    Tensors on the meta device, which have a shape and no values, are skipped.
    """
    for name, tensor in state.items():
        if tensor.is_meta:
            continue
        if tensor.is_complex():
            return f"{name} {_not_real(tensor)}"
        if not name.endswith(_COUNTER) and not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity; the training had diverged, take an earlier file"
    return None


def _not_real(tensor: Tensor) -> str:
    return f"holds {str(tensor.dtype).removeprefix('torch.')} values; export needs real numbers"


def load_strictly(net: torch.nn.Module, state: State) -> None:
    """Load `state` into `net`, whose parameters may be on the meta device, and put it into eval mode.

    Only the counters of batch norms may be missing.

    Raises:
        LayoutMismatch: a key is missing or unexpected, or its tensor has another shape, or integers in place of a
            weight; the message names it.
    """
    state = _with_counters(net, state)
    if faults := layout_faults(net, state):
        rest = _GIVE_ALL if len(faults) == 1 and faults[0].startswith("missing") else ""
        raise LayoutMismatch(f"keys {'; '.join(faults)}{unfolded_message(state)}{rest}")
    net.load_state_dict(state, strict=True, assign=True)
    net.requires_grad_(requires_grad=False).eval()


def layout_faults(net: torch.nn.Module, state: State) -> list[str]:
    """Return what keeps `load_strictly` from loading `state` into `net`: missing keys, unexpected ones, and so on."""
    state = _with_counters(net, state)
    weights = {key for key, tensor in net.state_dict().items() if tensor.is_floating_point()}
    wanted = {key: tuple(tensor.shape) for key, tensor in net.state_dict().items()}
    found = {key: tuple(tensor.shape) for key, tensor in state.items()}
    faults = [
        _list_keys("missing", [key for key in wanted if key not in found]),
        _list_keys("unexpected", [key for key in found if key not in wanted]),
        _list_keys(
            "of another shape",
            [
                f"{key} {found[key]} instead of {wanted[key]}"
                for key in wanted
                if found.get(key, wanted[key]) != wanted[key]
            ],
        ),
        _list_keys("of integers", [key for key in state if key in weights and not state[key].is_floating_point()]),
    ]
    return [fault for fault in faults if fault]


def _with_counters(net: torch.nn.Module, state: State) -> State:
    return {**{key: torch.tensor(0) for key in net.state_dict() if key.endswith(_COUNTER)}, **state}


def _list_keys(what: str, names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{what}: {shown}{more}" if names else ""


def parts_of(checkpoints: Sequence[Checkpoint], weights: str | None) -> list[StateDict]:
    """Return the state dicts of the files; if `weights` is given, those at this path and inside it.

    Raises:
        OptionInvalid: there is none at the path; the message lists the paths that there are.
    """
    return chosen_parts([part for checkpoint in checkpoints for part in checkpoint.parts], weights)


def digest_of(checkpoints: Sequence[Checkpoint], weights: str | None) -> str:
    """Return the digest of what a model is made of: files in their order, and the path chosen in them if one was."""
    digest = _joint_digest([checkpoint.sha256 for checkpoint in checkpoints])
    return digest if weights is None else hashlib.sha256(f"{digest} {weights}".encode()).hexdigest()


def _joint_digest(digests: Sequence[str]) -> str:
    """Return a single file's digest; for several, the digest of their digests in the order given."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
