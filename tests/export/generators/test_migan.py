from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)

from export.checkpoint import load_strictly
from export.errors import LayoutMismatch
from export.generators.migan.generator import MIGAN, PUBLIC_FILTER, ZeroBorderBilinear
from export.generators.migan.net import MIGANOptions, SeparableConv
from export.generators.migan.shifted_sums import ShiftedSum, shift_depthwise
from export.program import program_backend, write_program
from export.recognition import recognise
from export.states.finding import StateDict
from tests.export.generators.drawn_files import check_drawn_files

FAMILY = MIGAN()
TINY = MIGANOptions(widths="4,6,8")


@pytest.mark.parametrize("name", ["migan_64_tiny", "migan_256_tiny"])
def test_golden_comes_out_of_torch_and_both_graphs(name, load_golden, run_graph, psnr):
    options, net, golden = load_golden(name)
    assert options.resolution == int(name.split("_")[1])
    feed, wanted = {"image": golden["image"], "mask": golden["hole_mask"]}, golden["output"] / 2 + 0.5
    with torch.inference_mode():
        raw = net(torch.from_numpy(golden["input"])).numpy()
        found = FAMILY.wrap(net, options)(*map(torch.from_numpy, feed.values())).numpy()
    assert np.abs(raw - golden["output"]).max() <= 1e-5
    assert np.abs(found - wanted).max() <= 1e-5
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 1e-4
    assert psnr(run_graph(FAMILY, options, net, feed, half=True), wanted) >= 45


@pytest.mark.parametrize("widths", ["4,6,8", "3,3,2,5", "2,4"])
def test_graphs_agree_with_torch_and_options_come_back(widths, make_net, check_parity, round_trip):
    options = MIGANOptions(widths=widths)
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    x = torch.rand(2, 4, options.resolution, options.resolution)
    assert torch.equal(round_trip(FAMILY, options, net)(x), net(x))


@pytest.mark.parametrize(
    ("widths", "parameters", "buffers", "keys"),
    [
        ("128,256,512,512,512,512,512", 5_943_617, 349_440, 154),
        ("64,128,256,512,512,512,512,512", 5_973_366, 1_398_016, 177),
    ],
)
def test_full_width_nets_have_the_public_codes_parameters_and_keys(widths, parameters, buffers, keys):
    with torch.device("meta"):
        net = FAMILY.build(MIGANOptions(widths=widths))
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert sum(b.numel() for b in net.buffers()) == buffers
    assert len(net.state_dict()) == keys


@pytest.mark.parametrize("name", ["migan_256", "migan_512"])
def test_full_width_nets_have_the_public_codes_keys_and_shapes(name, shared_file):
    with torch.device("meta"):
        net = FAMILY.build(recognised_from_keys(shared_file(f"golden/{name}.keys.txt")))
    found = [f"{key}\t{tuple(tensor.shape)}\tfloat32" for key, tensor in net.state_dict().items()]
    assert sorted(found) == sorted(shared_file(f"golden/{name}.keys.txt").read_text("utf-8").splitlines())


def recognised_from_keys(path) -> MIGANOptions:
    lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    shapes = {key: [int(side) for side in shape.strip("()").split(",") if side.strip()] for key, shape, _ in lines}
    state = {key: torch.zeros(shape, device="meta") for key, shape in shapes.items()}
    options = FAMILY.recognise(state)
    assert options is not None
    return options


def test_a_hundred_drawn_files_are_recognised_with_exactly_their_options(tmp_path):
    def draw(rng):
        return {"widths": ",".join(map(str, rng.integers(1, 9, rng.integers(2, 7))))}

    check_drawn_files(FAMILY, draw, tmp_path)


@pytest.mark.parametrize("widths", ["8", "0,4", "4,4,4,4,4,4,4,4,4,4", "4,x"])
def test_impossible_widths_are_refused(widths):
    with pytest.raises(ValueError, match="widths"):
        MIGANOptions(widths=widths)


def test_net_in_training_is_refused_with_what_to_do(make_net):
    state = dict(make_net(FAMILY, TINY).state_dict())
    state["synthesis.b8.conv1.conv2.w0"] = state.pop("synthesis.b8.conv1.conv2.weight")
    found = recognise([StateDict("", state)], None, {})
    with pytest.raises(LayoutMismatch, match=r"in training.*export_inference_model\.py"):
        FAMILY.translate(found.state, found.options)


def test_another_grid_of_kept_pixels_is_refused_by_its_key(make_net):
    state = dict(make_net(FAMILY, TINY).state_dict())
    state["synthesis.b16.upsample.filter_const"] = torch.ones(1, 1, 16, 16)
    with pytest.raises(LayoutMismatch, match=r"synthesis\.b16\.upsample\.filter_const keeps other pixels"):
        FAMILY.translate(state, TINY)


def test_missing_blocks_are_named_and_no_grid_is_blamed(make_net):
    state = {key: tensor for key, tensor in make_net(FAMILY, TINY).state_dict().items() if "encoder.b16" not in key}
    found = recognise([StateDict("", state)], None, {})
    with pytest.raises(LayoutMismatch, match=r"keys missing: encoder\.b8\.fromrgb\.weight.*unexpected: synthesis\.b16"):
        load_strictly(FAMILY.build(found.options), FAMILY.translate(found.state, found.options).state)


@pytest.mark.parametrize("name", ["migan_64_tiny", "migan_256_tiny"])
def test_golden_comes_out_of_a_program_of_shifted_sums(name, load_golden, tmp_path, psnr):
    options, net, golden = load_golden(name)
    form = FAMILY.lower_for_program(net, options)
    kinds = [type(module) for module in form.modules()]
    assert (
        kinds.count(ShiftedSum) == sum(isinstance(m, SeparableConv) for m in net.modules()) + len(options.channels) - 1
    )
    assert all(module.groups == 1 for module in form.modules() if isinstance(module, torch.nn.Conv2d))
    feed, wanted = {"image": golden["image"], "mask": golden["hole_mask"]}, golden["output"] / 2 + 0.5
    for precision, found_well in (
        ("fp32", lambda found: np.abs(found - wanted).max() <= 1e-4),
        ("fp16", lambda found: psnr(found, wanted) >= 45),
    ):
        path = tmp_path / f"{precision}.pt2"
        write_program(form, FAMILY.interface(options), precision, path)
        assert found_well(program_backend(path)(feed)), precision


def test_public_filter_is_lowered_to_an_enlargement_and_no_other(make_net, check_parity):
    public, other = make_net(FAMILY, TINY), make_net(FAMILY, TINY)
    for key, tensor in public.state_dict().items():
        if key.endswith("upsample.filter.weight"):
            tensor.copy_(PUBLIC_FILTER)
    check_parity(FAMILY, TINY, public)
    enlargements = [
        sum(isinstance(module, ZeroBorderBilinear) for module in FAMILY.lower(net, TINY).modules())
        for net in (public, other)
    ]
    assert enlargements == [4, 0]


def test_what_lies_under_the_mask_has_no_influence(make_net):
    net = FAMILY.wrap(make_net(FAMILY, TINY), TINY)
    image, mask = torch.rand(1, 3, 16, 16), (torch.rand(1, 1, 16, 16) < 0.5).float()
    with torch.inference_mode():
        assert torch.equal(net(image, mask), net(image * (1 - mask) + 0.7 * mask, mask))


def test_public_pipelines_crop_and_blend_lead_to_its_result(load_golden, shared_file):
    """Upstream's ONNX pipeline: bilinear resize to R×R, the net, bilinear resize back, blend with a blurred mask."""
    options, net, _ = load_golden("migan_64_tiny")
    golden = np.load(shared_file("golden/migan_pipeline_64_tiny.npz"))
    for suffix in ("", "_64x64"):
        image, known = (torch.from_numpy(golden[key + suffix]).float() for key in ("image", "mask_known255"))
        left, right, top, bottom = golden[f"bbox_x0_x1_y0_y1{suffix}"].tolist()
        part = (slice(None), slice(None), slice(top, bottom), slice(left, right))
        side = (options.resolution,) * 2
        seen = F.interpolate(image[part], side, mode="bilinear", align_corners=False).round() / 255
        hole = 1 - F.interpolate(known[part], side) / 255
        with torch.inference_mode():
            fill = FAMILY.wrap(net, options)(seen, hole).clamp(0, 1) * 255
        fill = F.interpolate(fill, (bottom - top, right - left), mode="bilinear", align_corners=False)
        weight = upstreams_blend(known[part] / 255)
        wanted = torch.from_numpy(golden[f"result{suffix}"]).float()[part]
        found = (image[part] * weight + fill * (1 - weight)).round()
        assert (found - wanted).abs().max() <= 1


def upstreams_blend(known: torch.Tensor) -> torch.Tensor:
    """Return the picture's weight in the blend: known pixels, dilated by one, blurred by a 5×5 Gaussian."""
    grown = F.max_pool2d(known, 3, stride=1, padding=1)
    steps = torch.exp(-((torch.arange(5.0) - 2) ** 2) / 4)
    kernel = torch.outer(steps, steps)
    return F.conv2d(F.pad(grown, (2, 2, 2, 2), mode="reflect"), (kernel / kernel.sum())[None, None])


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, TINY)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("side", "stride", "padding"), [(3, 1, 1), (4, 2, 1), (1, 1, 0), (5, 3, 2)])
def test_a_shifted_sum_is_the_depthwise_convolution(side, stride, padding, bias):
    conv = torch.nn.Conv2d(5, 5, side, stride, padding, groups=5, bias=bias).requires_grad_(requires_grad=False)
    for height, width in ((8, 8), (7, 10), (5, 5)):
        x = torch.randn(2, 5, height, width)
        assert (ShiftedSum(conv)(x) - conv(x)).abs().max() <= 1e-6


def test_half_inputs_are_summed_in_single_precision():
    conv = torch.nn.Conv2d(1, 1, 3, padding=1, bias=False).requires_grad_(requires_grad=False)
    conv.weight.copy_(torch.tensor([[0.0, 0, 0], [30_000, 1, 30_000], [0, 0, -60_000]]))
    found = ShiftedSum(conv)(torch.ones(1, 1, 2, 4, dtype=torch.float16))
    assert found.dtype == torch.float16
    assert found[0, 0, 0, 1] == 1, "halves would lose the one among tens of thousands"


def test_only_depthwise_convolutions_without_dilation_are_replaced():
    kept = [
        torch.nn.Conv2d(4, 8, 3, groups=4),
        torch.nn.Conv2d(4, 4, 3, groups=2),
        torch.nn.Conv2d(4, 4, 3, groups=4, dilation=2),
        torch.nn.Conv2d(4, 4, (3, 1), groups=4),
        torch.nn.Conv2d(4, 4, 3, groups=4, padding=1, padding_mode="reflect"),
        torch.nn.ConvTranspose2d(4, 4, 4, groups=4),
    ]
    net = shift_depthwise(torch.nn.Sequential(torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, groups=4)), *kept))
    assert [type(module) for module in net[0]] == [ShiftedSum]
    assert list(net[1:]) == kept
