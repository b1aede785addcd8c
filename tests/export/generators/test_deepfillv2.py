from __future__ import annotations

import numpy as np
import openvino
import pytest
import torch
from PIL import Image

from export.checkpoint import load_strictly
from export.errors import LayoutMismatch
from export.generators.deepfillv2.attention import Paste, Patches, fused_scores, halve
from export.generators.deepfillv2.generator import DeepFillV2
from export.generators.deepfillv2.lowered import DividedGatedConv, SlicedPaste, ViewedPatches
from export.generators.deepfillv2.net import LAYOUTS, DeepFillV2Net, DeepFillV2Options
from export.lowering import to_half
from export.onnx_graph import write_graph
from export.parity import onnx_backend
from export.pipeline import ExportRequest, export_model
from export.program import program_backend, write_program
from export.recognition import recognise
from export.states.finding import StateDict
from tests.export.generators.csqiangwen_files import as_csqiangwen, seeded_state
from tests.export.generators.drawn_files import check_drawn_files

pytestmark = pytest.mark.slow

FAMILY = DeepFillV2()
GOLDENS = {"deepfillv2_pt_tiny": "networks", "deepfillv2_tf_tiny": "networks_tf"}


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens_of_two_sizes_come_out_of_torch_and_the_graph(name, load_golden, tmp_path):
    options, net, golden = load_golden(name)
    assert options == DeepFillV2Options(layout=GOLDENS[name], cnum=8)
    write_graph(FAMILY.lower(net, options), FAMILY.interface(options), tmp_path / "single.onnx")
    single = onnx_backend(tmp_path / "single.onnx")
    for suffix in ("", "_128x64"):
        image, mask = golden[f"image{suffix}"], golden[f"mask{suffix}"]
        with torch.inference_mode():
            first, second = net(torch.from_numpy(image) * 2 - 1, torch.from_numpy(mask))
            attended = net.attend(torch.from_numpy(golden[f"attention_in{suffix}"]), torch.from_numpy(mask))
        assert np.abs(attended.numpy() - golden[f"attention_out{suffix}"]).max() <= 1e-4
        assert np.abs(first.numpy() - golden[f"stage1{suffix}"]).max() <= 1e-3
        assert_close_to_stage2(second.numpy(), golden[f"stage2{suffix}"])
        assert_close_to_stage2(single({"image": image, "mask": mask}) * 2 - 1, golden[f"stage2{suffix}"])


def test_csqiangwens_net_computes_what_its_public_code_did(pictures_dir, tmp_path):
    options = DeepFillV2Options(layout="csqiangwen", cnum=4)
    found = recognise([StateDict("", seeded_state(options))], None, {})
    net = FAMILY.build(found.options).eval()
    load_strictly(net, FAMILY.translate(found.state, found.options).state)
    write_graph(FAMILY.lower(net, options), FAMILY.interface(options), tmp_path / "single.onnx")
    write_graph(to_half(FAMILY.lower(net, options)), FAMILY.interface(options), tmp_path / "half.onnx")
    single, half = onnx_backend(tmp_path / "single.onnx"), onnx_backend(tmp_path / "half.onnx")
    golden, rng = np.load(pictures_dir / "deepfillv2_csqiangwen.npz"), np.random.default_rng(21)
    for height, width in ((32, 48), (64, 40)):
        image = rng.random((1, 3, height, width)).astype(np.float32)
        mask = np.zeros((1, 1, height, width), np.float32)
        mask[:, :, 8:24, 10:26] = 1
        with torch.inference_mode():
            first, second = net(torch.from_numpy(image), torch.from_numpy(mask))
        wanted = golden[f"stage2_{height}x{width}"]
        assert np.abs(first.numpy() - golden[f"stage1_{height}x{width}"]).max() <= 1e-5
        assert np.abs(second.numpy() - wanted).max() <= 1e-5
        assert np.abs(single({"image": image, "mask": mask}) - wanted).max() <= 1e-5
        assert np.square(half({"image": image, "mask": mask}) - wanted).mean() <= 1e-4  # 40 dB


def assert_close_to_stage2(found, wanted):
    assert np.abs(found - wanted).max() <= 1e-2
    assert np.abs(found - wanted).mean() <= 5e-4


def test_a_file_becomes_a_model_of_few_tiles_and_tells_its_largest_activation(pictures_dir, tmp_path):
    options = DeepFillV2Options(layout="csqiangwen", cnum=4)
    torch.save(seeded_state(options), tmp_path / "net.pth")
    (tmp_path / "pictures").mkdir()
    Image.open(pictures_dir / "dress.jpg").save(tmp_path / "pictures" / "dress.png")
    request = ExportRequest((tmp_path / "net.pth",), "golden", tmp_path / "pictures", output=tmp_path / "models")
    exported = export_model(request, lambda _step: None)
    manifest = exported.manifest
    assert (manifest.generator, manifest.precision, manifest.max_batch) == ("deepfillv2", "fp16", 4)
    assert {case.backend for case in manifest.parity.cases} == {"onnx-fp32", "onnx-fp16"}
    assert manifest.parity.fill_levels == 1
    assert any(note.startswith("largest activation") for note in exported.notes)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_graphs_agree_with_torch_and_options_come_back(layout, make_net, check_parity, round_trip):
    options = DeepFillV2Options(layout=layout, cnum=4)
    net = public_net(make_net, options)
    check_parity(FAMILY, options, net)
    image, mask = torch.rand(2, 3, 32, 48), (torch.rand(2, 1, 32, 48) < 0.3).float()
    assert torch.equal(round_trip(FAMILY, options, net)(image, mask)[1], net(image, mask)[1])


def public_net(make_net, options):
    """Make a net with random weights, and with the constant that all published files share."""
    net = make_net(FAMILY, options)
    for key, tensor in net.state_dict().items():
        if key.endswith("fuse_weight"):
            tensor.copy_(torch.eye(3))
    return net


@pytest.mark.parametrize("layout", LAYOUTS)
def test_openvino_computes_the_same_at_three_sizes_and_batches(layout, make_net, tmp_path):
    options = DeepFillV2Options(layout=layout, cnum=4)
    net = public_net(make_net, options)
    write_graph(FAMILY.lower(net, options), FAMILY.interface(options), tmp_path / "model.onnx")
    compiled = openvino.Core().compile_model(
        str(tmp_path / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    )
    wrapped, generator = FAMILY.wrap(net, options), torch.Generator().manual_seed(5)
    for batch, height, width in ((1, 32, 64), (3, 64, 32), (2, 96, 48)):
        image = torch.rand(batch, 3, height, width, generator=generator)
        mask = (torch.rand(batch, 1, height, width, generator=generator) < 0.1).float()
        found = compiled({"image": image.numpy(), "mask": mask.numpy()})[0]
        with torch.inference_mode():
            assert np.abs(found - wrapped(image, mask).numpy()).max() <= 5e-3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_program_has_every_size(layout, make_net, tmp_path):
    options = DeepFillV2Options(layout=layout, cnum=4)
    net = public_net(make_net, options)
    write_program(FAMILY.lower_for_program(net, options), FAMILY.interface(options), "fp32", tmp_path / "program.pt2")
    run, wrapped = program_backend(tmp_path / "program.pt2"), FAMILY.wrap(net, options)
    generator = torch.Generator().manual_seed(6)
    for batch, height, width in ((1, 64, 96), (3, 40, 56)):
        image = torch.rand(batch, 3, height, width, generator=generator)
        mask = (torch.rand(batch, 1, height, width, generator=generator) < 0.1).float()
        with torch.inference_mode():
            wanted = wrapped(image, mask).numpy()
        assert np.abs(run({"image": image.numpy(), "mask": mask.numpy()}) - wanted).max() <= 1e-4


@pytest.mark.parametrize(("height", "width"), [(2, 2), (6, 10), (16, 8)])
def test_a_programs_patches_are_those_of_the_public_code_to_the_bit(height, width):
    x, patches = torch.rand(2, 3, height, width), torch.rand(2, 3 * 16, height, width)
    for side, stride in ((3, 1), (4, 2)):
        cut = Patches(3, side, stride)
        assert torch.equal(ViewedPatches(cut)(x), cut(x))
    paste = Paste(3)
    assert torch.allclose(SlicedPaste(paste)(patches), paste(patches), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_has_no_grouped_convolution(layout, make_net):
    options = DeepFillV2Options(layout=layout, cnum=4)
    form = FAMILY.lower_for_program(public_net(make_net, options), options)
    kinds = {type(module) for module in form.modules()}
    assert {ViewedPatches, SlicedPaste} <= kinds
    assert not {Patches, Paste} & kinds
    assert all(module.groups == 1 for module in form.modules() if isinstance(module, torch.nn.Conv2d))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_picture_of_a_batch_has_its_own_mask(layout, make_net):
    options = DeepFillV2Options(layout=layout, cnum=4)
    net = FAMILY.wrap(make_net(FAMILY, options), options)
    image, mask = torch.rand(2, 3, 64, 64), torch.zeros(2, 1, 64, 64)
    mask[0, :, :40, :20], mask[1, :, 30:, 30:] = 1, 1
    with torch.inference_mode():
        together = net(image, mask)
        alone = torch.cat([net(image[i : i + 1], mask[i : i + 1]) for i in range(2)])
    assert torch.allclose(together, alone, atol=1e-4)


@pytest.mark.parametrize(("layout", "keys"), [("networks", 85), ("networks_tf", 84)])
def test_full_width_nets_have_the_public_codes_parameters_and_keys(layout, keys):
    with torch.device("meta"):
        net = FAMILY.build(DeepFillV2Options(layout=layout))
    weights = [p for name, p in net.named_parameters() if not name.endswith("fuse_weight")]
    assert (sum(p.numel() for p in weights), len(net.state_dict())) == (4_052_478, keys)


@pytest.mark.parametrize("name", ["deepfillv2_pt", "deepfillv2_tf"])
def test_full_width_nets_have_the_public_codes_keys_and_shapes(name, shared_file):
    layout = "networks" if name.endswith("pt") else "networks_tf"
    with torch.device("meta"):
        net = FAMILY.build(DeepFillV2Options(layout=layout))
    found = [f"{key}\t{tuple(tensor.shape)}\tfloat32" for key, tensor in net.state_dict().items()]
    assert sorted(found) == sorted(shared_file(f"golden/{name}.keys.txt").read_text("utf-8").splitlines())


def test_a_hundred_drawn_files_are_recognised_with_exactly_their_options(tmp_path):
    def draw(rng):
        return {"layout": LAYOUTS[rng.integers(3)], "cnum": 4 * int(rng.integers(1, 4))}

    def as_public(net):
        if net.white:
            return as_csqiangwen(net)
        state = dict(net.state_dict())
        fused = {key: torch.eye(3)[None, None] for key in state if key.endswith("fuse_weight")}
        return state | fused

    check_drawn_files(FAMILY, draw, tmp_path, as_public)


def test_other_fuse_weights_are_refused():
    options = DeepFillV2Options(cnum=4)
    state = dict(FAMILY.build(options).state_dict())
    state["stage2.contextual_attention.fuse_weight"] = torch.ones(1, 1, 3, 3)
    found = recognise([StateDict("G", state)], None, {})
    with pytest.raises(LayoutMismatch, match="fuse_weight is not the identity"):
        FAMILY.translate(found.state, found.options)


def test_csqiangwens_pairs_and_spectral_norms_become_one_convolution_each(make_net):
    options = DeepFillV2Options(layout="csqiangwen", cnum=4)
    net = make_net(FAMILY, options)
    found = recognise([StateDict("", as_csqiangwen(net))], None, {})
    assert (found.family.name, found.options) == ("deepfillv2", options)
    state = FAMILY.translate(found.state, found.options).state
    assert set(state) == set(net.state_dict())
    assert torch.equal(state["coarse.3.conv.weight"], net.get_submodule("coarse.3.conv").weight)
    for half, whole in zip(
        state["coarse.12.conv.weight"].chunk(2), net.get_submodule("coarse.12.conv").weight.chunk(2), strict=True
    ):
        assert torch.linalg.matrix_norm(half.flatten(1), 2).item() == pytest.approx(1, abs=1e-5)
        assert torch.allclose(half * torch.linalg.matrix_norm(whole.flatten(1), 2), whole, atol=1e-5)


def test_csqiangwens_full_width_file_has_the_public_codes_keys_and_shapes(shared_file, make_net):
    found = as_csqiangwen(make_net(FAMILY, DeepFillV2Options(layout="csqiangwen")))
    lines = [f"{key}\t{tuple(tensor.shape)}\tfloat32" for key, tensor in found.items()]
    assert sorted(lines) == sorted(shared_file("golden/deepfillv2_csqiangwen.keys.txt").read_text("utf-8").splitlines())


def test_aligned_halving_takes_the_first_and_the_last_pixel():
    x = torch.arange(16.0).view(1, 1, 1, 16).expand(1, 1, 2, 16)
    assert halve(x, "aligned")[0, 0, 0].tolist() == [0, 2, 4, 6, 9, 11, 13, 15]
    assert halve(x, "plain")[0, 0, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 3), (1, 4), (3, 1), (1, 1)])
def test_scores_are_fused_as_the_public_convolutions_do(height, width):
    def diagonals(scores):
        return torch.nn.functional.conv2d(scores[:, None], torch.eye(3)[None, None], padding=1)

    def turned(scores, rows, columns):
        parts = scores.view(-1, rows, columns, rows, columns)
        return parts.permute(0, 2, 1, 4, 3).reshape(-1, height * width, height * width)

    scores = torch.randn(2, height * width, height * width)
    wanted = turned(diagonals(turned(diagonals(scores), height, width)), width, height)
    assert torch.allclose(fused_scores(scores, height, width), wanted, rtol=0, atol=1e-6)


def test_what_lies_under_the_mask_has_no_influence(make_net):
    options = DeepFillV2Options(cnum=4)
    net = FAMILY.wrap(make_net(FAMILY, options), options)
    image, mask = torch.rand(1, 3, 32, 32), torch.zeros(1, 1, 32, 32)
    mask[..., 8:20, 4:30] = 1
    with torch.inference_mode():
        assert torch.equal(net(image, mask), net(image * (1 - mask) + 0.7 * mask, mask))


def test_attention_stays_fp32_in_the_half_net(make_net):
    net = to_half(FAMILY.lower(make_net(FAMILY, DeepFillV2Options(cnum=4)), DeepFillV2Options(cnum=4))).get_submodule(
        "net"
    )
    assert isinstance(net, DeepFillV2Net)
    attention = net.get_submodule(net.attention_name)
    assert attention(torch.rand(1, 8, 8, 8).half(), torch.zeros(1, 1, 4, 4)).dtype == torch.float32


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_graphs_gates_have_convolutions_of_their_own_and_equal_values(layout, make_net):
    options = DeepFillV2Options(layout=layout, cnum=4)
    net = public_net(make_net, options)
    lowered, whole = FAMILY.lower(net, options), FAMILY.lower_for_program(net, options)
    kinds = [[type(module) for module in form.modules()] for form in (lowered, whole)]
    assert DividedGatedConv in kinds[0]
    assert DividedGatedConv not in kinds[1]
    image, mask = torch.rand(2, 3, 32, 48), torch.zeros(2, 1, 32, 48)
    mask[..., 8:20, 4:30] = 1
    with torch.inference_mode():
        assert (lowered(image, mask) - whole(image, mask)).abs().max() <= 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensorrt_plan_is_built(layout, check_plan):
    check_plan(FAMILY, DeepFillV2Options(layout=layout, cnum=4))
