"""Weights are computed from what torch trains in their place, exactly as torch's own modules compute them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.overrides import TorchFunctionMode

from export.checkpoint import load_strictly
from export.errors import LayoutMismatch
from export.generators import FAMILIES
from export.recognition import recognise
from export.states.finding import StateDict
from export.states.folding import as_hooks, folded
from tests.export.states.tiny_nets import TINY, made, outputs, reread

Layer = nn.Conv2d | nn.ConvTranspose2d | nn.Linear


def _spectral_hook(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch deprecates the hooks of existing files
        nn.utils.spectral_norm(layer)
    (hook,) = layer._forward_pre_hooks.values()  # torch runs it before each forward
    for _ in range(30):
        hook(layer.train(), ())
    layer.eval()


def _weight_hook(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(layer)


def _pruned(layer: nn.Module) -> None:
    prune.random_unstructured(layer, "weight", 0.3)


WAYS: dict[str, Callable[[nn.Module], object]] = {
    "spectral norm": lambda layer: parametrizations.spectral_norm(layer, n_power_iterations=5).eval(),
    "hook of a spectral norm": _spectral_hook,
    "weight norm": parametrizations.weight_norm,
    "hook of a weight norm": _weight_hook,
    "pruning": _pruned,
}
LAYERS: dict[str, Callable[[], Layer]] = {
    "conv": lambda: nn.Conv2d(6, 4, 3),
    "square conv": lambda: nn.Conv2d(32, 32, 3),
    "transposed conv": lambda: nn.ConvTranspose2d(6, 4, 3),
    "square transposed conv": lambda: nn.ConvTranspose2d(32, 32, 3),
    "linear": lambda: nn.Linear(6, 4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
def test_folded_weights_are_those_of_torchs_modules(kind: str, way: str) -> None:
    torch.manual_seed(3)
    layer = LAYERS[kind]()
    WAYS[way](layer)
    x = torch.rand(2, layer.weight.shape[0 if "transposed" in kind else 1], *((8, 8) if "conv" in kind else ()))
    wanted = layer(x)
    state = folded(layer.state_dict())
    assert set(state) == {"weight", "bias"}
    plain = LAYERS[kind]()
    plain.load_state_dict(state)
    assert torch.allclose(plain(x), wanted, atol=1e-6)


@pytest.mark.parametrize("way", [parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch deprecates the hooks of existing files
def test_the_weight_norm_of_a_vector_has_an_axis_for_each_value(way) -> None:
    norm = nn.BatchNorm2d(5).eval()
    nn.init.uniform_(norm.weight, -1, 1)
    way(norm)
    x = torch.rand(2, 5, 4, 4)
    wanted = norm(x)
    plain = nn.BatchNorm2d(5).eval()
    plain.load_state_dict(folded(norm.state_dict()))
    assert torch.allclose(plain(x), wanted, atol=1e-6)


@pytest.mark.parametrize("way", ["spectral norm", "weight norm"])
@pytest.mark.parametrize("name", TINY)
def test_every_familys_net_comes_back_with_the_output_of_torchs_module(name, way, make_net, tmp_path):
    net = made(name, make_net)
    for layer_name, layer in net.named_modules():
        if isinstance(layer, Layer) and "mask_conv" not in layer_name:
            WAYS[way](layer)
    torch.save(net.eval().state_dict(), tmp_path / "net.pth")
    found, again = reread(tmp_path / "net.pth")
    assert (found.family.name, found.options) == TINY[name]
    assert "were computed from their spectral norm" in found.notes[-1]
    wanted = outputs(name, net)
    assert (outputs(name, again) - wanted).abs().max() <= 1e-5 * wanted.abs().max().clamp(min=1)


def test_some_layers_alone_may_have_a_norm(make_net, tmp_path):
    net = made("unet", make_net)
    _spectral_hook(net.model.model[1].model[1])
    net(torch.rand(1, 3, 128, 128))  # hooks set the weight in forward
    torch.save({"netG": net.state_dict()}, tmp_path / "net.pth")
    found, again = reread(tmp_path / "net.pth")
    assert found.options == TINY["unet"][1]
    assert torch.allclose(outputs("unet", again), outputs("unet", net), atol=1e-6)


def test_the_spectral_norms_of_pdgan_are_kept_whichever_their_spelling(make_net):
    options = FAMILIES["pdgan"].options.model_validate({"prior_width": 2, "ngf": 2, "z_dim": 5})
    net = make_net(FAMILIES["pdgan"], options)
    states = [dict(part.state_dict()) for part in (net.prior.EN, net.prior.DE, net.PDGAN)]
    spelt = {"orig": "original", "u": "0._u", "v": "0._v"}

    def renamed(key: str) -> str:
        layer, _, rest = key.rpartition(".weight_")
        return f"{layer}.parametrizations.weight.{spelt[rest]}" if layer else key

    states[2] = {renamed(key): tensor for key, tensor in states[2].items()}
    found = recognise([StateDict("", state) for state in states], None, {})
    load_strictly(FAMILIES["pdgan"].build(options), FAMILIES["pdgan"].translate(found.state, options).state)


def test_the_weight_that_torch_stored_before_version_1_is_taken() -> None:
    stored = torch.rand(4, 3, 3, 3)
    state = {"weight": stored, "weight_orig": stored * 7, "weight_u": torch.rand(4)}
    assert folded(state) == {"weight": stored}


class _Products(TorchFunctionMode):
    """Counts the products of a matrix and a vector."""

    count = 0

    def __torch_function__(self, function: Any, _types: Any, values: Any = (), options: Any = None) -> Any:
        self.count += function is torch.mv
        return function(*values, **(options or {}))


def test_the_axis_of_a_spectral_norm_is_found_once() -> None:
    layer = nn.Conv2d(8, 8, 3)  # either axis has u's length
    parametrizations.spectral_norm(layer, n_power_iterations=20).eval()
    state = layer.state_dict()
    with _Products() as products:
        assert folded(state).keys() == {"weight", "bias"}
    assert products.count == len(("along axis 0", "along axis 1", "the norm"))


def test_names_that_only_look_like_a_norm_stay() -> None:
    for state in (
        {"a_orig": torch.rand(3, 2), "a_u": torch.rand(9), "a_v": torch.rand(2)},
        {"a_g": torch.rand(5), "a_v": torch.rand(3, 2)},
        {"a_orig": torch.rand(3, 2), "a_mask": torch.rand(3)},
        {"a_orig": torch.ones(3, 2).int(), "a_u": torch.rand(3), "a_v": torch.rand(2)},
        {"a_orig": torch.tensor(1.0), "a_u": torch.rand(1), "a_v": torch.rand(1)},
        {"a_bar": torch.rand(2), "a_u": torch.rand(2)},
        {"a": torch.rand(2, 2), "a_orig": torch.rand(2, 2), "a_u": torch.rand(2, 3), "a_v": torch.rand(2)},
        {"a": torch.ones(2, 2).bool(), "a_orig": torch.rand(2, 2), "a_u": torch.rand(2)},
    ):
        assert folded(state) is state
        assert as_hooks(state) is state


@pytest.mark.parametrize("way", ["orthogonal", "spectral norm over either axis"])
def test_a_weight_that_cannot_be_computed_is_named_with_what_to_do(way, make_net, tmp_path):
    state = dict(made("unet", make_net).state_dict())
    layer = "model.model.1.model.3.model.1."
    weight = state.pop(f"{layer}weight")
    if way == "orthogonal":
        put = {"parametrizations.weight.original": weight, "parametrizations.weight.0.base": torch.eye(2)}
    else:
        put = {"weight_orig": torch.rand(8, 8, 4, 4), "weight_u": torch.rand(8), "weight_v": torch.randn(128)}
    state |= {layer + name: tensor for name, tensor in put.items()}
    torch.save(state, tmp_path / "net.pth")
    with pytest.raises(LayoutMismatch, match=r"model\.3\.model\.1\..*cannot be computed.*remove_parametrizations"):
        reread(tmp_path / "net.pth")
