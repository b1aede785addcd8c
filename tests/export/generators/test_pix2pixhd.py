from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export.checkpoint import load_strictly, read_checkpoint
from export.errors import LayoutMismatch
from export.generators.pix2pixhd.contract import chosen_clusters, edge_map
from export.generators.pix2pixhd.encoder import EncoderShape, FeatureEncoder, instance_means
from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from export.lowering import to_half
from export.onnx_graph import write_graph
from export.recognition import recognise

FAMILY = Pix2PixHD()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pix2pixhd_global_tiny", Pix2PixHDOptions(ngf=4, blocks=2)),
        ("pix2pixhd_local_tiny", Pix2PixHDOptions(net="local", ngf=4, blocks=2, local_blocks=2)),
    ],
)
def test_goldens_come_out_of_torch_and_both_graphs(name, options, load_golden, run_graph, psnr):
    found_options, net, golden = load_golden(name)
    assert found_options == options
    feed = {"label": golden["label"].astype(np.uint8), "instance": golden["inst"].astype(np.int32)}
    wanted = golden["output"] / 2 + 0.5
    assert np.array_equal(edge_map(torch.from_numpy(feed["instance"])).numpy(), golden["edge"])
    with torch.inference_mode():
        found = FAMILY.wrap(net, options)(*map(torch.from_numpy, feed.values())).numpy()
    assert np.abs(found - wanted).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 2e-4
    rough = run_graph(FAMILY, options, net, feed, half=True)
    assert np.isfinite(rough).all()
    assert psnr(rough, wanted) >= 40


CONFIGURATIONS = [
    Pix2PixHDOptions(ngf=4, label_nc=12, downsamplings=2, blocks=1),
    Pix2PixHDOptions(ngf=4, norm="batch", label_nc=0, edges=False, downsamplings=3, blocks=2, out_channels=1),
    Pix2PixHDOptions(ngf=4, label_nc=0, downsamplings=1, blocks=1),
    Pix2PixHDOptions(net="local", ngf=2, label_nc=200, downsamplings=2, blocks=1, enhancers=2, local_blocks=1),
    Pix2PixHDOptions(ngf=4, label_nc=12, downsamplings=2, blocks=1, features=3, encoder_width=4),
    Pix2PixHDOptions(
        ngf=4, norm="batch", label_nc=0, downsamplings=2, blocks=1, features=5, encoder_width=2, encoder_downsamplings=1
    ),
    Pix2PixHDOptions(ngf=4, label_nc=12, downsamplings=2, blocks=1, features=3, clusters=4),
]
ENCODED = CONFIGURATIONS[4]


@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_graphs_agree_with_torch_and_options_come_back(options, make_net, check_parity, round_trip):
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    x = torch.rand(1, options.in_channels, 32, 32)
    assert torch.equal(round_trip(FAMILY, options, net)(x), net(x))


@pytest.mark.parametrize(
    ("options", "parameters", "keys"),
    [(Pix2PixHDOptions(), 182_546_755, 56), (Pix2PixHDOptions(net="local", ngf=32), 182_857_059, 74)],
)
def test_full_width_nets_have_the_public_codes_parameters_and_keys(options, parameters, keys):
    with torch.device("meta"):
        net = FAMILY.build(options)
    assert (sum(p.numel() for p in net.parameters()), len(net.state_dict())) == (parameters, keys)


@pytest.mark.parametrize(("side", "served"), [(0, (512, 1024)), (256, (256,)), (250, (256,))])
def test_a_net_is_served_at_the_side_it_was_trained_at(side, served):
    options = Pix2PixHDOptions(side=side)
    assert FAMILY.interface(options).size.sides == served


def _draw(rng):
    local, kind = bool(rng.integers(2)), rng.integers(3)
    drawn = {
        "net": "local" if local else "global",
        "norm": str(rng.choice(["instance", "batch"])),
        "ngf": rng.integers(1, 65),
        "out_channels": rng.integers(1, 4),
        "downsamplings": rng.integers(3, 6),
        "blocks": rng.integers(1, 10),
        **[{"label_nc": rng.integers(4, 200)}, {"label_nc": 0}, {"label_nc": 0, "edges": False}][kind],
    }
    sizes = {"features": 3, "encoder_width": rng.integers(1, 17), "encoder_downsamplings": rng.integers(1, 6)}
    drawn |= sizes if rng.integers(2) else {}
    return drawn | ({"enhancers": rng.integers(1, 3), "local_blocks": rng.integers(1, 4)} if local else {})


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(FAMILY, _draw)


def test_instance_ids_that_half_precision_merges_still_have_an_edge(make_net):
    options = CONFIGURATIONS[0]
    instance = torch.full((1, 1, 8, 8), 34_001, dtype=torch.int32)
    instance[..., 4:] = 34_002
    assert torch.tensor(34_001.0).half() == torch.tensor(34_002.0).half()
    assert edge_map(instance)[0, 0, 0].tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    half = to_half(FAMILY.lower(make_net(FAMILY, options), options))
    label = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    assert not torch.equal(half(label, instance), half(label, torch.zeros_like(instance)))


def test_labels_and_ids_enter_the_graph_as_integers(make_net, tmp_path):
    options = CONFIGURATIONS[0]
    write_graph(
        to_half(FAMILY.lower(make_net(FAMILY, options), options)), FAMILY.interface(options), tmp_path / "g.onnx"
    )
    kinds = {value.name: value.type.tensor_type.elem_type for value in onnx.load(tmp_path / "g.onnx").graph.input}
    assert kinds == {"label": onnx.TensorProto.UINT8, "instance": onnx.TensorProto.INT32}


def test_a_label_outside_the_classes_has_no_channel(make_net):
    options = CONFIGURATIONS[0]
    lowered = FAMILY.lower(make_net(FAMILY, options), options)
    seen = []
    lowered.net.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    lowered(torch.full((1, 1, 8, 8), 77, dtype=torch.uint8), torch.zeros(1, 1, 8, 8, dtype=torch.int32))
    assert seen[0].abs().sum() == 0


def test_two_downsamplings_on_a_picture_are_pix2pix(make_net):
    state = make_net(FAMILY, Pix2PixHDOptions(ngf=1, label_nc=0, edges=False, downsamplings=2, blocks=6)).state_dict()
    assert FAMILY.recognise(dict(state)) is None


def test_running_statistics_of_old_files_are_dropped(make_net):
    options = CONFIGURATIONS[0]
    old = {**make_net(FAMILY, options).state_dict(), "model.2.running_mean": torch.zeros(4)}
    assert FAMILY.recognise(old) == options
    assert set(FAMILY.translate(old, options).dropped) == {"model.2.running_mean"}


@pytest.mark.parametrize("missing", ["model.31.weight", "model.1.bias", "model.16.conv_block.1.weight"])
def test_incomplete_layouts_are_not_recognised(missing):
    with torch.device("meta"):
        state = dict(FAMILY.build(Pix2PixHDOptions(ngf=1, blocks=2)).state_dict())
    del state[missing]
    recognised = FAMILY.recognise(state)
    assert recognised is None or recognised.blocks == 1


def test_a_picture_net_with_batch_norm_and_biases_is_pix2pixhd(round_trip, make_net):
    options = Pix2PixHDOptions(ngf=1, norm="batch", label_nc=0, edges=False, downsamplings=2, blocks=6)
    round_trip(FAMILY, options, make_net(FAMILY, options))


def test_an_enhancer_without_its_last_convolution_is_not_recognised():
    with torch.device("meta"):
        state = dict(FAMILY.build(Pix2PixHDOptions(net="local", ngf=1)).state_dict())
    del state["model1_2.7.weight"]
    assert FAMILY.recognise(state) is None


def test_encoder_has_the_public_codes_parameters_and_keys():
    encoder = FeatureEncoder(EncoderShape(3, 3, 16, 4), torch.nn.InstanceNorm2d)
    assert (sum(p.numel() for p in encoder.parameters()), len(encoder.state_dict())) == (788_803, 20)


def test_features_are_means_over_each_instance_of_each_picture():
    features = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([0, 7, 34_000, 65_535], dtype=torch.int32)[torch.arange(128).view(2, 1, 8, 8) % 37 % 4]
    found = instance_means(features, ids)
    for picture, its_ids, means in zip(features, ids, found, strict=True):
        for one in its_ids.unique():
            where = (its_ids[0] == one).expand_as(picture)
            wanted = picture[where].view(3, -1).mean(1)
            torch.testing.assert_close(means[where].view(3, -1), wanted[:, None].expand(3, int(where[0].sum())))


def test_generator_and_encoder_come_in_two_files_in_either_order(make_net, tmp_path):
    net = make_net(FAMILY, ENCODED)
    torch.save(net.encoder.state_dict(), tmp_path / "latest_net_E.pth")
    generator = {key: tensor for key, tensor in net.state_dict().items() if not key.startswith("encoder.")}
    torch.save(generator, tmp_path / "latest_net_G.pth")
    for names in ("GE", "EG"):
        files = [read_checkpoint(tmp_path / f"latest_net_{name}.pth") for name in names]
        found = recognise([part for file in files for part in file.parts], None, {})
        assert found.options == ENCODED
        again: Any = FAMILY.build(ENCODED)
        load_strictly(again, FAMILY.translate(found.state, ENCODED).state)
        picture = torch.rand(1, 3, 32, 32)
        assert torch.equal(again.encoder(picture), net.encoder(picture))


def test_features_of_a_label_need_no_instances_and_those_of_an_instance_do(make_net):
    of_labels = ENCODED.model_copy(update={"edges": False, "features_of": "label"})
    of_instances = ENCODED.model_copy(update={"edges": False})
    names = [[spec.name for spec in FAMILY.interface(options).inputs] for options in (of_labels, of_instances)]
    assert names == [["label", "reference"], ["label", "instance", "reference"]]
    label = torch.randint(0, 12, (1, 1, 32, 32), dtype=torch.uint8)
    picture = torch.rand(1, 3, 32, 32)
    by_label = FAMILY.wrap(make_net(FAMILY, of_labels), of_labels)(label, picture)
    by_instance = FAMILY.wrap(make_net(FAMILY, of_instances), of_instances)(label, label.int(), picture)
    assert torch.equal(by_label, by_instance)


def test_every_cluster_is_as_likely_as_another_and_each_class_has_a_number_of_its_own():
    table = torch.arange(4.0)[None, :, None] + torch.tensor([0.0, 10.0])[:, None, None]
    numbers = torch.randn(4000, 2, generator=torch.Generator().manual_seed(1))
    found = chosen_clusters(numbers, table)
    for place in (0, 1):
        shares = torch.bincount(found[:, place, 0].long() - 10 * place, minlength=4) / 4000
        torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.03, rtol=0)
    ends = chosen_clusters(torch.tensor([[-40.0, 40.0]]), table)
    assert ends.flatten().tolist() == [0, 13]


def test_a_class_gets_the_style_that_its_number_chooses_and_no_other(make_net):
    options = CONFIGURATIONS[-1]
    model = FAMILY.wrap(make_net(FAMILY, options), options)
    seen = []
    model.net.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0][:, -3:]))
    label = (torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8) // 32) + 2
    latent = torch.zeros(1, 12)
    latent[0, 2], latent[0, 3] = -3, 3
    model(label, torch.zeros(1, 1, 8, 8, dtype=torch.int32), latent)
    table = model.net.clusters
    assert torch.equal(seen[0][0, :, 0, 0], table[2, 0])
    assert torch.equal(seen[0][0, :, 7, 7], table[3, 3])


def test_a_file_with_clusters_and_an_encoder_gives_either_model(make_net):
    state = {**make_net(FAMILY, ENCODED).state_dict(), "clusters": torch.zeros(12, 6, 3)}
    found = FAMILY.recognise(state)
    assert (found.clusters, found.features, found.encoder_width) == (6, 3, 4)
    names = [spec.name for spec in FAMILY.interface(found).inputs]
    assert names == ["label", "instance", "latent"]
    for options, dropped in ((found, "encoder."), (found.model_copy(update={"clusters": 0}), "clusters")):
        translated = FAMILY.translate(state, options)
        assert all(key.startswith(dropped) for key in translated.dropped)
        load_strictly(FAMILY.build(options), translated.state)


def test_generator_that_takes_features_is_not_loaded_without_its_encoder(make_net, tmp_path):
    net = make_net(FAMILY, ENCODED)
    torch.save({k: t for k, t in net.state_dict().items() if not k.startswith("encoder.")}, tmp_path / "g.pth")
    found = recognise(read_checkpoint(tmp_path / "g.pth").parts, None, {"features": "3", "label_nc": "12"})
    with pytest.raises(LayoutMismatch, match=r"missing: encoder\.model\.1\.weight"):
        load_strictly(FAMILY.build(found.options), FAMILY.translate(found.state, found.options).state)


@pytest.mark.parametrize("missing", ["model.1.weight", "model.29.weight", "model.4.weight"])
def test_incomplete_encoder_is_none(make_net, missing):
    state = dict(FeatureEncoder(EncoderShape(3, 3, 2, 4), torch.nn.InstanceNorm2d).state_dict())
    del state[missing]
    assert FAMILY.join([make_net(FAMILY, CONFIGURATIONS[0]).state_dict(), state]) is None


@pytest.mark.parametrize(
    "options",
    [
        Pix2PixHDOptions(ngf=2, downsamplings=2, blocks=1),
        Pix2PixHDOptions(net="local", ngf=2, downsamplings=2, blocks=1, local_blocks=1),
    ],
    ids=str,
)
def test_tensorrt_plans_are_built(options, check_plan):
    check_plan(FAMILY, options)
