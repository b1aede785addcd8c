"""Checkpoint files in every common wrapper, with random configurations, which must be recognised exactly."""

from __future__ import annotations

import io
import sys
import types
import warnings
import zipfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from export.checkpoint import load_strictly, read_checkpoint
from export.generators.family import Family
from export.recognition import recognise

State = dict[str, Tensor]
_OTHER = {"critic.0.weight": torch.ones(2, 2)}


def _under(prefix: str, state: State) -> State:
    return {prefix + key: tensor for key, tensor in state.items()}


def _bytes(value: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def _lightning(state: State) -> bytes:
    """Write a checkpoint as Lightning's callback does: the net among others, and objects of uninstalled classes."""
    module = types.ModuleType("pytorch_lightning.callbacks")
    kind = type("ModelCheckpoint", (), {"__module__": module.__name__})
    vars(module)[kind.__name__] = kind
    others = {f"discriminator.{key}": tensor for key, tensor in _OTHER.items()}
    value = {"state_dict": _under("generator.", state) | others, "callbacks": {kind: {"best": 0.5}}, "epoch": 3}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pytorch_lightning", types.ModuleType("pytorch_lightning"))
        patched.setitem(sys.modules, module.__name__, module)
        return _bytes(value)


def _script(state: State) -> bytes:
    """Write a program whose modules hold the tensors under a wrapper's name."""
    root = nn.Module()
    for key, tensor in _under("generator.", state).items():
        *parents, last = key.split(".")
        module = root
        for parent in parents:
            if parent not in dict(module.named_children()):
                module.add_module(parent, nn.Module())
            module = module.get_submodule(parent)
        module.register_buffer(last, tensor)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch deprecates the format of existing files
        torch.jit.save(torch.jit.script(root), buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def _bundle(state: State) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("net/config.yaml", "a: 1\n")
        file.writestr("net/models/best.ckpt", _bytes({"state_dict": state}))
    return buffer.getvalue()


_WRAPPERS: dict[str, Callable[[State], bytes]] = {
    "net.pth": _bytes,
    "old.pth": lambda state: _bytes(state, _use_new_zipfile_serialization=False),
    "g.pth": lambda state: _bytes({"G": state, "n_iter": 1000}),
    "gan.pth": lambda state: _bytes({"G": state, "D": _OTHER, "G_optim": {"state": {}, "param_groups": []}}),
    "state.ckpt": lambda state: _bytes({"state_dict": state, "epoch": 3}),
    "both.pth": lambda state: _bytes({"generator": state, "discriminator": _OTHER}),
    "parallel.pth": lambda state: _bytes(_under("module.", state)),
    "compiled.pth": lambda state: _bytes({"model": _under("_orig_mod.", state), "step": 1}),
    "tools.ckpt": lambda state: _bytes({"gen_state_dict": state}),
    "best.ckpt": _lightning,
    "traced.pt": _script,
    "net.zip": _bundle,
}


def check_drawn_files(
    family: Family[Any],
    draw: Callable[[np.random.Generator], dict[str, Any]],
    folder: Path,
    as_public: Callable[[nn.Module], State] = lambda net: dict(net.state_dict()),
) -> None:
    """Check that a hundred random nets, written in each wrapper in turn, are read with all options and tensors."""
    rng, names = np.random.default_rng(17), cycle([*_WRAPPERS, "net.safetensors"])
    for _ in range(100):
        options = family.options.model_validate(draw(rng))
        net = family.build(options)
        state = {key: tensor.detach().clone() for key, tensor in as_public(net).items()}
        name = next(names)
        path = folder / name
        if name in _WRAPPERS:
            path.write_bytes(_WRAPPERS[name](state))
        else:
            save_file(state, path)
        found = recognise(read_checkpoint(path).parts, None, {})
        assert (found.family.name, found.options) == (family.name, options), name
        load_strictly(net, family.translate(found.state, found.options).state)
