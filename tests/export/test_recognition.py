from __future__ import annotations

import pytest
import torch

from export.checkpoint import parts_of, read_checkpoint, read_checkpoints
from export.errors import CheckpointRefused, LayoutMismatch, OptionInvalid
from export.generators import FAMILIES
from export.generators.pconv.unet import PConv, PConvOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.recognition import family_named, recognise
from export.states.finding import StateDict

TINY = PConvOptions(levels=2, width=2)


@pytest.fixture
def state():
    return dict(PConv().build(TINY).state_dict())


def test_family_and_options_are_found_without_being_named(state):
    found = recognise([StateDict("", state)], None, {})
    assert (found.family.name, found.options, found.notes) == ("pconv", TINY, ())


def test_what_the_user_states_wins(state):
    assert recognise([StateDict("", state)], None, {"width": "5"}).options == PConvOptions(levels=2, width=5)


@pytest.mark.parametrize(
    ("generator", "options", "message"),
    [
        ("pconvv", {}, r"unknown generator 'pconvv'; known generators are pconv, pconv_nvidia, pix2pix"),
        (None, {"deep": "3"}, r"unknown option deep of pconv; known options are levels, width"),
        (None, {"levels": "many"}, r"pconv: levels=many: it must be a whole number$"),
        (None, {"levels": "99"}, r"pconv: levels=99: it must be at most 8$"),
    ],
)
def test_wrong_options_are_errors_that_name_the_known_ones(generator, options, message, state):
    with pytest.raises(OptionInvalid, match=message):
        recognise([StateDict("", state)], generator, options)


def test_options_that_contradict_each_other_are_an_error_though_none_is_wrong_alone():
    with pytest.raises(OptionInvalid, match=r"^migan: widths are positive"):
        recognise([StateDict("", {"head.weight": torch.zeros(1)})], "migan", {"widths": "0,0"})


@pytest.mark.parametrize("averaged", ["ema", "swa_model"])
def test_averaged_weights_are_preferred_and_a_note_says_so(averaged, state):
    other = {key: tensor + 1 for key, tensor in state.items()}
    found = recognise(
        [StateDict("model", other), StateDict(averaged, state), StateDict("discriminator", {"d": torch.zeros(1)})],
        None,
        {},
    )
    assert torch.equal(found.state["enc_1.conv.input_conv.weight"], state["enc_1.conv.input_conv.weight"])
    assert found.notes == (f"used the weights of {averaged}", "left out: model, discriminator")


@pytest.mark.parametrize("outer", ["", "state_dict/"])
def test_nets_beside_the_chosen_one_in_the_same_state_dict_are_said_to_be_left_out(state, outer, tmp_path):
    nets = {"generator": state, "discriminator": {"d": torch.zeros(1)}, "generator_ema": state, "vgg.conv": state}
    flat = {f"{net}.{key}": tensor for net, weights in nets.items() for key, tensor in weights.items()}
    torch.save({"state_dict": {**flat, "step": torch.zeros(1)}} if outer else flat, tmp_path / "last.ckpt")
    found = recognise(read_checkpoint(tmp_path / "last.ckpt").parts, None, {})
    assert found.notes == (
        f"used the weights of {outer}generator_ema",
        f"left out: {outer}generator, {outer}discriminator, {outer}vgg",
    )


def test_the_other_net_is_said_to_be_left_out_though_its_name_begins_alike(state):
    paths = ("state_dict", "state_dict/generator", "state_dict/generator/model", "state_dict/generator_ema", "critic")
    found = recognise([StateDict(path, state) for path in paths], None, {})
    assert found.notes == (
        "used the weights of state_dict/generator_ema",
        "left out: state_dict/generator, critic",
    )


def test_keys_that_no_family_expects_are_unrecognised_and_no_failure():
    state = {f"model.{n}.ffc.convl2l.weight": torch.zeros(8, 4, 7, 7) for n in (1, 3)}
    state["model.2.ffc.convl2g.weight"] = torch.zeros(8, 4, 3, 3)
    state["model.4.conv2.ffc.convl2l.weight"] = torch.zeros(8, 8, 3, 3)
    with pytest.raises(LayoutMismatch):
        recognise([StateDict("", state)], None, {})


def test_the_part_that_is_a_generator_is_found_whatever_its_name(state):
    found = recognise([StateDict("netD", {"d": torch.zeros(1)}), StateDict("weights", state)], None, {})
    assert found.notes[0] == "used the weights of weights"


def test_a_net_cut_out_of_its_file_by_a_prefix_does_not_leave_the_file_out(state):
    prefixed = {f"generator.{key}": tensor for key, tensor in state.items()}
    found = recognise([StateDict("", prefixed), StateDict("generator", state)], None, {})
    assert (found.options, found.notes) == (TINY, ("used the weights of generator",))


def test_the_weights_that_would_be_used_are_refused_if_diverged_whatever_else_would_do(state, tmp_path):
    averaged = {**state, "enc_1.conv.input_conv.bias": torch.full((2,), float("nan"))}
    torch.save({"model": state, "ema": averaged}, tmp_path / "net.pth")
    with pytest.raises(CheckpointRefused, match=r"^ema: enc_1\.conv\.input_conv\.bias holds NaN or infinity"):
        recognise(read_checkpoint(tmp_path / "net.pth").parts, None, {})


def test_a_net_under_the_prefix_of_the_model_that_holds_it_is_found(state, tmp_path):
    flat = {f"model.netG.{key}": tensor for key, tensor in state.items()} | {"model.netD.weight": torch.zeros(1)}
    torch.save({"state_dict": flat}, tmp_path / "last.ckpt")
    found = recognise(read_checkpoint(tmp_path / "last.ckpt").parts, None, {})
    assert found.options == TINY
    assert found.notes == ("used the weights of state_dict/model/netG", "left out: state_dict/model/netD")


def test_a_net_whose_keys_begin_as_a_wrapper_is_put_together_from_several_files(tmp_path):
    options = Pix2PixOptions(ngf=1)
    state = dict(Pix2Pix().build(options).state_dict())
    for number in range(2):
        torch.save(dict(list(state.items())[number::2]), tmp_path / f"{number}.pth")
    files = [read_checkpoint(tmp_path / f"{number}.pth") for number in range(2)]
    found = recognise([part for file in files for part in file.parts], None, {})
    assert (found.options, found.state.keys()) == (options, state.keys())


@pytest.mark.parametrize("shape", [(), (4,), (4, 99, 4, 4)])
def test_shapes_that_no_option_makes_are_not_recognised(shape):
    state = {key: torch.zeros(shape) for key in ("main.0.weight", "main.12.weight", "enc_1.conv.input_conv.weight")}
    with pytest.raises(LayoutMismatch, match="no known generator"):
        recognise([StateDict("", state)], None, {})


def test_unknown_keys_are_shown_with_the_known_families():
    with pytest.raises(LayoutMismatch, match=r"keys such as head\.weight; known generators are pconv, "):
        recognise([StateDict("", {"head.weight": torch.zeros(1)})], None, {})


def test_a_named_family_gets_the_weights_even_if_it_does_not_recognise_them():
    found = recognise([StateDict("", {"head.weight": torch.zeros(1)})], "pconv", {"levels": "3"})
    assert (found.family.name, found.options) == ("pconv", PConvOptions(levels=3))


@pytest.mark.parametrize("generator", [None, "pix2pix"])
def test_a_net_of_too_many_channels_is_refused_by_its_family_and_the_limit(generator):
    state = dict(Pix2Pix().build(Pix2PixOptions(net="unet_128", ngf=1)).state_dict())
    state["model.model.0.weight"] = torch.zeros(1, 4, 4, 4)
    with pytest.raises(LayoutMismatch, match=r"those of pix2pix, but in_channels=4: it must be at most 3"):
        recognise([StateDict("", state)], generator, {})


def test_a_named_family_whose_keys_begin_as_a_wrapper_gets_the_part_that_is_most_like_it(tmp_path):
    state = dict(Pix2Pix().build(Pix2PixOptions(ngf=1)).state_dict())
    del state["model.model.1.model.1.weight"]
    torch.save(state, tmp_path / "net.pth")  # read as the file's own keys, and as those after `model.`
    found = recognise(read_checkpoint(tmp_path / "net.pth").parts, "pix2pix", {"ngf": "1"})
    assert found.state.keys() == state.keys()


@pytest.mark.parametrize("prefix", ["model_G.", "state.", "my_net.", "wrapped.inner.net."])
@pytest.mark.parametrize("generator", [None, "pconv"])
def test_a_prefix_that_all_keys_share_is_removed_whatever_it_is(prefix, generator, state, tmp_path):
    torch.save({"step": 3, "weights": {prefix + key: tensor for key, tensor in state.items()}}, tmp_path / "net.pth")
    found = recognise(read_checkpoint(tmp_path / "net.pth").parts, generator, {})
    assert (found.family.name, found.options) == ("pconv", TINY)
    assert found.state.keys() == state.keys()
    assert found.notes == (f"used the weights of weights/{prefix.rstrip('.').replace('.', '/')}",)


@pytest.mark.parametrize("prefix", ["translator.", "my.translator."])
def test_a_shared_prefix_is_removed_from_a_net_whose_own_keys_begin_alike(prefix, tmp_path):
    options = Pix2PixOptions(net="unet_128", ngf=1)
    state = {prefix + key: tensor for key, tensor in Pix2Pix().build(options).state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "last.ckpt")
    assert recognise(read_checkpoint(tmp_path / "last.ckpt").parts, None, {}).options == options


def _beside(state):
    """Return the state under a name that is none of a generator, beside another net."""
    return {f"drawer.{key}": tensor for key, tensor in state.items()} | {"critic.weight": torch.zeros(1)}


def test_a_net_under_an_unknown_prefix_beside_another_is_named_with_the_flag_that_takes_it(state, tmp_path):
    torch.save({"state_dict": _beside(state)}, tmp_path / "last.ckpt")
    files = read_checkpoints([tmp_path / "last.ckpt"])
    with pytest.raises(LayoutMismatch, match=r"under drawer\. .* those of pconv: add --weights state_dict/drawer$"):
        recognise(parts_of(files, None), None, {})
    found = recognise(parts_of(files, "state_dict/drawer"), None, {})
    assert (found.options, found.notes) == (TINY, ("used the weights of state_dict/drawer",))


def _upsampled(options):
    """Return the keys of a ResNet whose decoder upsamples bilinearly and pads before its convolutions."""
    state = dict(Pix2Pix().build(options).state_dict())
    moved = {"model.16": "model.18", "model.19": "model.23", "model.23": "model.27"}
    layers = {key: key.rpartition(".")[0] for key in state}
    return {key.replace(layers[key], moved.get(layers[key], layers[key])): tensor for key, tensor in state.items()}


def test_a_decoder_without_transposed_convolutions_is_told_from_the_nearest_net_that_has_them(tmp_path):
    torch.save(_upsampled(Pix2PixOptions(net="resnet_6blocks", norm="instance", ngf=2)), tmp_path / "net.pth")
    with pytest.raises(LayoutMismatch) as refused:
        recognise(read_checkpoint(tmp_path / "net.pth").parts, None, {})
    message = str(refused.value)
    assert "the nearest is pix2pix with net=resnet_6blocks, norm=instance" in message
    assert "missing: model.16.weight, " in message
    assert "unexpected: model.18.weight, " in message
    assert "has no transposed convolutions" in message
    assert "nn.Upsample" in message


def test_a_net_like_no_known_one_has_no_nearest():
    with pytest.raises(LayoutMismatch) as refused:
        recognise([StateDict("", {f"net.{n}.weight": torch.zeros(4, 4, 3, 3) for n in range(9)})], None, {})
    assert "nearest" not in str(refused.value)


def test_unknown_keys_are_shown_as_the_file_has_them(tmp_path):
    torch.save({"model.0.weight": torch.zeros(1), "model.2.weight": torch.zeros(1)}, tmp_path / "net.pth")
    with pytest.raises(LayoutMismatch, match=r"keys such as model\.0\.weight, model\.2\.weight;"):
        recognise(read_checkpoint(tmp_path / "net.pth").parts, None, {})


def test_net_of_another_family_than_the_named_one_is_called_by_its_own(state):
    with pytest.raises(LayoutMismatch, match=r"this is not a net of lama: its keys and shapes are those of pconv$"):
        recognise([StateDict("", state)], "lama", {})


def test_every_family_is_listed_under_its_own_name():
    assert all(family_named(name).name == name for name in FAMILIES)
