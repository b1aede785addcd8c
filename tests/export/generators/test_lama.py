from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
import torch

from export.checkpoint import load_strictly, read_checkpoint
from export.errors import LayoutMismatch, OptionInvalid
from export.generators.lama.generator import LaMa
from export.generators.lama.net import LaMaNet, LaMaOptions
from export.onnx_graph import write_graph
from export.parity import onnx_backend
from export.recognition import recognise
from export.states.finding import StateDict
from tests.export.generators.drawn_files import check_drawn_files

pytestmark = pytest.mark.slow

FAMILY = LaMa()
TINY = LaMaOptions(ngf=8, downsamplings=2, blocks=3)
GOLDENS: list[tuple[str, dict[str, str], LaMaOptions, tuple[str, ...], float]] = [
    ("lama_tiny", {}, TINY, ("", "_72x56"), 1e-4),
    ("lama_3down_tiny", {}, LaMaOptions(ngf=4, blocks=4), ("",), 1e-4),
    (
        "lama_lfu_outffc_tiny",
        {"output": "tanh"},
        LaMaOptions(ngf=8, downsamplings=2, blocks=2, ratio=0.5, lfu=True, out_ratio=0.5, output="tanh"),
        ("",),
        5e-4,
    ),
]


@pytest.mark.parametrize("case", GOLDENS, ids=lambda case: case[0])
def test_goldens_come_out_of_torch_programs_and_both_graphs(case, load_golden, run_graph, psnr):
    name, overrides, wanted_options, sizes, bar = case
    options, net, golden = load_golden(name, **overrides)
    assert options == wanted_options
    for size in sizes:
        feed, wanted = {key: golden[key + size] for key in ("image", "mask")}, golden["predicted" + size]
        with torch.inference_mode():
            tensors = [torch.from_numpy(array) for array in feed.values()]
            for form in (FAMILY.wrap(net, options), FAMILY.lower_for_program(net, options)):
                assert np.abs(form(*tensors).numpy() - wanted).max() <= bar
        assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= bar
        assert psnr(run_graph(FAMILY, options, net, feed, half=True), wanted) >= 45


@pytest.mark.parametrize(
    "name", ["lama_tiny_torchscript.pt", "lama_tiny_lightning.ckpt", "lama_tiny_gen_state_dict.ckpt"]
)
def test_every_kind_of_file_holds_the_same_net(name, shared_file):
    plain = read_checkpoint(shared_file("golden/lama_tiny.pth")).parts[0].state
    found = recognise(read_checkpoint(shared_file(f"golden/{name}")).parts, None, {})
    assert (found.family.name, found.options) == ("lama", TINY)
    state = FAMILY.translate(found.state, TINY).state
    assert state.keys() == plain.keys()
    assert all(torch.equal(state[key], plain[key]) for key in plain)


OTHERS = [
    LaMaOptions(ngf=4, downsamplings=1, blocks=1, ratio=0.5, output="none"),
    LaMaOptions(ngf=6, downsamplings=2, blocks=2, ratio=7 / 24, output="tanh"),
    LaMaOptions(ngf=4, downsamplings=3, blocks=1, ratio=0.75, out_ratio=0.5),
    LaMaOptions(ngf=8, downsamplings=3, blocks=1, ratio=0.75, lfu=True, out_ratio=0.5),
]


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_graphs_agree_with_torch_and_options_come_back(options, make_net, check_parity, round_trip):
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    visible = options.model_copy(update={"output": "sigmoid"})
    again, inputs = round_trip(FAMILY, visible, net), (torch.rand(1, 3, 32, 32), torch.ones(1, 1, 32, 32))
    again.output = options.output
    assert torch.equal(again(*inputs), net(*inputs))


def test_odd_features_and_three_sizes_agree(make_net, tmp_path):
    net = make_net(FAMILY, TINY)
    write_graph(FAMILY.lower(net, TINY), FAMILY.interface(TINY), tmp_path / "model.onnx")
    run = onnx_backend(tmp_path / "model.onnx")
    compiled = openvino.Core().compile_model(str(tmp_path / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    rng = np.random.default_rng(5)
    for count, height, width in ((1, 36, 52), (3, 64, 40), (2, 44, 128)):  # features of 9×13, 16×10, 11×32
        image = rng.random((count, 3, height, width), np.float32)
        mask = (rng.random((count, 1, height, width)) > 0.6).astype(np.float32)
        with torch.inference_mode():
            wanted = net(torch.from_numpy(image), torch.from_numpy(mask)).numpy()
        assert np.abs(run({"image": image, "mask": mask}) - wanted).max() <= 1e-4
        assert np.abs(compiled({"image": image, "mask": mask})[0] - wanted).max() <= 1e-4


def test_fourier_matrices_are_made_once_for_all_blocks(make_net, tmp_path):
    write_graph(FAMILY.lower(make_net(FAMILY, TINY), TINY), FAMILY.interface(TINY), tmp_path / "model.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert (kinds.count("Cos"), kinds.count("Sin"), "DFT" in kinds) == (2, 2, False)


@pytest.mark.parametrize(
    ("name", "options"),
    [("big_lama", LaMaOptions()), ("lama_fourier_9blocks", LaMaOptions(blocks=9))],
)
def test_published_nets_have_their_keys_and_options(name, options, shared_file):
    rows = [line.split("\t") for line in shared_file(f"golden/{name}.keys.txt").read_text("utf-8").splitlines()]
    with torch.device("meta"):
        state = FAMILY.build(options).state_dict()
    wanted = {key: tuple(map(int, re.findall(r"\d+", shape))) for key, shape, _ in rows}
    assert {key: tuple(tensor.shape) for key, tensor in state.items()} == wanted
    assert recognise([StateDict("", dict(state))], None, {}).options == options


def _drawn(rng: np.random.Generator, widest: int = 24, deepest: int = 20) -> LaMaOptions:
    """Draw a configuration that upstream could build."""
    while True:
        ngf, downs = int(rng.integers(2, widest)), int(rng.integers(1, 4))
        features, outer = ngf << downs, int(rng.integers(0, ngf))
        values: dict[str, Any] = {
            "ngf": ngf,
            "downsamplings": downs,
            "blocks": int(rng.integers(1, deepest)),
            "ratio": int(rng.integers(1, features)) / features,
            "lfu": bool(rng.integers(2)),
            "out_ratio": outer / ngf,
            "out_lfu": bool(rng.integers(2)) and outer > 0,
        }
        try:
            return LaMaOptions.model_validate(values)
        except ValueError:
            continue


def _wrapped(state: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Put a state dict under one of the prefixes in real files, in some of which it is beside other nets."""
    prefix = ("", "generator.", "model.generator.", "module.generator.", "net.", "a.b.c.", "generator.model.")[
        rng.integers(7)
    ]
    wrapped = {prefix + key: tensor for key, tensor in state.items()}
    others = {"discriminator.model.0.weight": torch.zeros(1), "val_evaluator.window": torch.zeros(1)}
    return wrapped | (others if prefix and rng.integers(2) else {})


def test_a_hundred_configurations_are_recognised_under_every_prefix():
    rng = np.random.default_rng(3)
    for _ in range(100):
        options = _drawn(rng)
        with torch.device("meta"):
            net = LaMaNet(options)
        parts = [StateDict("", _wrapped(dict(net.state_dict()), rng))]
        found = recognise(parts, None, {})
        assert (found.family.name, found.options) == ("lama", options)
        load_strictly(net, FAMILY.translate(found.state, found.options).state)


def test_a_hundred_drawn_files_are_recognised_with_exactly_their_options(tmp_path):
    check_drawn_files(FAMILY, lambda rng: _drawn(rng, widest=5, deepest=4).model_dump(), tmp_path)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("str_state_dict.rel_pos_emb.weight", "position embeddings"),
        ("model.5.conv1.ffc.convg2g.fu.se.fc.0.weight", "squeeze-and-excitation"),
        ("model.5.conv1.ffc.gate.weight", "gated Fourier convolutions"),
    ],
)
def test_other_functions_are_refused_by_name(key, message):
    state = {**LaMaNet(TINY).state_dict(), key: torch.zeros(1)}
    with pytest.raises(LayoutMismatch, match=message):
        FAMILY.translate(state, TINY)


def _renamed(pattern: str, name: str) -> dict[str, torch.Tensor]:
    return {re.sub(pattern, name, key): tensor for key, tensor in LaMaNet(TINY).state_dict().items()}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (_renamed(r"model\.5\.", "model.5.impl."), r"learned rotations .*spatial transforms"),
        (_renamed(r"model\.4\.", "model.40."), r"without its block model\.4"),
        (_renamed(r"model\.3\.ffc\.convl2g", "model.3.ffc.other"), r"global features nowhere"),
        (
            {**LaMaNet(TINY).state_dict(), "model.2.ffc.convl2g.weight": torch.zeros(1, 1, 3, 3)},
            r"global features from model\.2 on; they must begin at its last halving, model\.3",
        ),
        (
            {**LaMaNet(TINY).state_dict(), "model.1.ffc.convl2l.weight": torch.zeros(8, 5, 7, 7)},
            r"first layer has the shape \(8, 5, 7, 7\): it must take 4 channels",
        ),
    ],
    ids=["spatial transforms", "a block lost", "no global features", "global features too early", "five channels"],
)
def test_unpublished_variants_of_the_upstream_class_are_refused_by_name(state, message):
    with pytest.raises(LayoutMismatch, match=message):
        recognise([StateDict("", state)], None, {})


def test_position_embeddings_beside_the_generator_are_refused():
    parts = [
        StateDict("gen_state_dict", dict(LaMaNet(TINY).state_dict())),
        StateDict("str_state_dict", {"rel_pos_emb.weight": torch.zeros(1), "alpha5": torch.zeros(1)}),
    ]
    with pytest.raises(LayoutMismatch, match="position embeddings"):
        recognise(parts, None, {})


@pytest.fixture(scope="module")
def trained() -> tuple[LaMaNet, dict[str, Any]]:
    """Train a net for a few seconds to reproduce a smooth picture, as real nets do."""
    options = LaMaOptions(ngf=8, downsamplings=1, blocks=1, ratio=0.5)
    torch.manual_seed(1)
    net = LaMaNet(options).eval()
    image = torch.rand(2, 3, 4, 4)
    image = torch.nn.functional.interpolate(image, (32, 32), mode="bicubic", align_corners=False).clamp(0, 1)
    mask = torch.zeros(2, 1, 32, 32)
    mask[:, :, 10:16, 10:16] = 1
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(150):
        optimiser.zero_grad()
        (net(image, mask) - image).square().mean().backward()
        optimiser.step()
    return net.requires_grad_(requires_grad=False), {"image": image.numpy(), "mask": mask.numpy()}


def test_right_activation_is_confirmed_on_pictures(trained):
    net, feed = trained
    options = LaMaOptions(ngf=8, downsamplings=1, blocks=1, ratio=0.5)
    (note,) = FAMILY.examine(net, options, [feed])
    assert re.fullmatch(r"known pixels come back at \d\d\.\d dB with output=sigmoid", note)


def test_every_activation_is_tried_on_one_pass_of_the_net(trained):
    net, feed = trained
    passes: list[object] = []
    hook = net.model[-1].register_forward_hook(lambda *_: passes.append(None))
    FAMILY.examine(net, LaMaOptions(ngf=8, downsamplings=1, blocks=1, ratio=0.5), [feed, feed])
    hook.remove()
    assert len(passes) == 2


@pytest.mark.parametrize("wrong", ["tanh", "none"])
def test_wrong_activation_is_noticed_on_pictures(wrong, trained):
    net, feed = trained
    options = LaMaOptions(ngf=8, downsamplings=1, blocks=1, ratio=0.5, output=wrong)
    with pytest.raises(OptionInvalid, match=r"with sigmoid at .* dB: add --option output=sigmoid"):
        FAMILY.examine(net, options, [feed])


def test_random_weights_cannot_confirm_the_activation_and_a_note_says_so(make_net):
    feed = {"image": np.full((1, 3, 32, 32), 0.99, np.float32), "mask": np.zeros((1, 1, 32, 32), np.float32)}
    feed["image"][..., ::2] = 0
    (note,) = FAMILY.examine(make_net(FAMILY, TINY), TINY, [feed])
    assert "could not be confirmed" in note


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, LaMaOptions(ngf=2, downsamplings=2, blocks=1, ratio=0.5))
