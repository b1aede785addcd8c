"""Training configs: invalid options, overrides, and the shipped files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from training.config import DataConfig, MasksConfig, PConvConfig, PConvPhase, Pix2PixConfig, Pix2PixPhase, load_config
from training.errors import ConfigInvalid
from training.fill_config import FillConfig, FillPhase, JudgeConfig, SharesConfig
from training.pgn_config import PGNConfig, PGNPhase

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "training" / "configs").glob("*.toml"))
SMALLEST = """
model = "pconv"
output = "run"
[data]
path = "photos"
[[phase]]
steps = 10
batch = 4
learning_rate = 1e-3
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_configs_are_valid(path: Path) -> None:
    config = load_config(path)
    assert config.output.name == path.stem


def test_defaults_fill_what_a_file_leaves_out(written: Callable[[str], Path]) -> None:
    config = load_config(written(SMALLEST))
    assert isinstance(config, PConvConfig)
    assert (config.generator.levels, config.precision, config.phase[0].hole) == (7, "bf16", 6.0)


def test_values_are_laid_over_the_files(written: Callable[[str], Path]) -> None:
    overrides = [
        "data.path=other place",
        "phase.0.steps=7",
        "generator.width=8",
        "precision=fp16",
        "masks.coverage=[0.1, 0.2]",
    ]
    config = load_config(written(SMALLEST), overrides)
    assert isinstance(config, PConvConfig)
    assert (config.data.path, config.phase[0].steps, config.generator.width) == (Path("other place"), 7, 8)
    assert (config.precision, config.masks.coverage) == ("fp16", (0.1, 0.2))


@pytest.mark.parametrize("override", ["seed", "=3", "phase.steps=3", "phase.4.steps=3", "phase.first.steps=3"])
def test_an_override_that_names_no_option_is_refused(override: str, written: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(repr(override))):
        load_config(written(SMALLEST), [override])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed = 1", "sead = 1"), r"unknown option sead; did you mean seed\?"),
        (("steps = 10", "step = 10"), r"phase\.0\.step: unknown option step; did you mean steps\?"),
        (
            ("seed = 1", "seed = 1\nthick = 0.1"),
            "thick: another model or section has this option, and this one has none",
        ),
        (('"pconv"', '"vae"'), "vae"),
        (("steps = 10", "steps = 0"), r"phase\.0\.steps"),
        (("steps = 10", "steps = 10\nstyle = 10.0"), "features"),
        (("steps = 10", "steps = 10\nlpips = 1.0"), "lpips_features"),
        (('path = "photos"', 'path = "photos"\ncrop = 200'), r"\.toml: data\.crop 200 is not a multiple"),
        (('path = "photos"', 'path = "photos"\nload_side = 128'), "load_side"),
        (('path = "photos"', 'path = "photos"\nlayout = "pairs"'), "pix2pix"),
        (('path = "photos"', 'path = "photos"\nscale = [2.0, 1.0]'), "scale"),
        (("[data]", "[masks]\ncoverage = [0.5, 0.1]\n[data]"), "coverage"),
        (("[data]", "data"), "not TOML"),
        (("seed = 1", "seed = " + "[" * 5000), r"\.toml: not TOML \(it is nested too deeply"),
    ],
)
def test_a_wrong_option_is_named(change: tuple[str, str], message: str, written: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        load_config(written(SMALLEST.replace("output", "seed = 1\noutput").replace(*change)))


def test_a_value_on_the_command_line_that_is_nested_too_deeply_is_text(written: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigInvalid, match="seed: "):
        load_config(written(SMALLEST), ["seed=" + "[" * 5000])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"absent\.toml"):
        load_config(tmp_path / "absent.toml")


def test_pix2pix_requires_rgb_pairs(pix2pix_run: Callable[..., dict[str, Any]]) -> None:
    for options, message in (({"data": {"path": "x"}}, "pairs"), ({"generator": {"in_channels": 1}}, "RGB")):
        with pytest.raises(ValidationError, match=message):
            Pix2PixConfig.model_validate(pix2pix_run(**options))


SECTIONS = (
    PConvConfig,
    Pix2PixConfig,
    DataConfig,
    MasksConfig,
    PConvPhase,
    Pix2PixPhase,
    FillConfig,
    SharesConfig,
    JudgeConfig,
    FillPhase,
    PGNConfig,
    PGNPhase,
)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_option_is_described_and_documented(section: type[BaseModel]) -> None:
    text = (ROOT / "docs" / "training_options.md").read_text("utf-8")
    for name, field in section.model_fields.items():
        if field.annotation is not None and name not in (
            "data",
            "masks",
            "generator",
            "phase",
            "model",
            "shares",
            "judge",
        ):
            assert field.description, name
        assert f"`{name}`" in text, name


def test_dropout_of_pix2pix_is_on_unless_the_config_turns_it_off(pix2pix_run: Callable[..., dict[str, Any]]) -> None:
    data = pix2pix_run()["data"] | {"load_side": 286, "crop": 256}

    def dropout(**generator: Any) -> bool:
        return Pix2PixConfig.model_validate(pix2pix_run(data=data, generator=generator)).generator.dropout

    without_section = pix2pix_run(data=data)
    del without_section["generator"]
    assert Pix2PixConfig.model_validate(without_section).generator.dropout
    assert dropout(ngf=32)
    assert not dropout(dropout=False)


@pytest.mark.parametrize(
    ("net", "crop", "message"),
    [
        ("unet_256", 128, "takes 256"),
        ("unet_256", 512, "takes 256"),
        ("unet_128", 256, "takes 128"),
        ("resnet_6blocks", 130, "multiple of 4"),
    ],
)
def test_a_crop_that_the_pix2pix_net_cannot_take_is_refused(
    net: str, crop: int, message: str, pix2pix_run: Callable[..., dict[str, Any]]
) -> None:
    data = pix2pix_run()["data"] | {"load_side": crop, "crop": crop}
    with pytest.raises(ValidationError, match=message):
        Pix2PixConfig.model_validate(pix2pix_run(generator={"net": net}, data=data))


def test_batch_norm_of_a_single_value_is_refused(partial_run: Callable[..., dict[str, Any]]) -> None:
    phase = {"steps": 1, "batch": 1, "learning_rate": 1e-3}
    lone = partial_run(generator={"levels": 5, "width": 4}, phase=[phase])
    with pytest.raises(ValidationError, match=r"phase\.0\.batch.*freeze_encoder_norm"):
        PConvConfig.model_validate(lone)
    for better in (phase | {"batch": 2}, phase | {"freeze_encoder_norm": True}):
        PConvConfig.model_validate(lone | {"phase": [better]})
    PConvConfig.model_validate(lone | {"generator": {"levels": 4, "width": 4}})


@pytest.mark.parametrize(
    ("options", "crop", "message"),
    [
        (
            {},
            16,
            r"data\.crop 16: .* of 3 layers needs 24; use a crop of 24 or more, or discriminator_layers of at most 2",
        ),
        (
            {"generator": {"levels": 4, "width": 4}},
            16,
            "needs 24; use a crop of 32 or more, or discriminator_layers of at most 2",
        ),
        (
            {"discriminator_layers": 6},
            184,
            "of 6 layers needs 192; use a crop of 192 or more, or discriminator_layers of at most 5",
        ),
    ],
)
def test_a_crop_too_small_for_the_discriminator_is_refused_where_there_is_one(
    options: dict[str, Any], crop: int, message: str, partial_run: Callable[..., dict[str, Any]]
) -> None:
    data = partial_run()["data"] | {"load_side": crop, "crop": crop}
    phase = {"steps": 1, "batch": 2, "learning_rate": 1e-3}
    PConvConfig.model_validate(partial_run(**options, data=data, phase=[phase]))
    with pytest.raises(ValidationError, match=message):
        PConvConfig.model_validate(partial_run(**options, data=data, phase=[phase, phase | {"adversarial": 0.1}]))


@pytest.mark.parametrize(
    ("net", "layers", "crop", "message"),
    [
        ("resnet_6blocks", 3, 20, "needs 24; use a crop of 24 or more, or discriminator_layers of at most 2"),
        ("unet_128", 6, 128, "needs 192; use discriminator_layers of at most 5"),
    ],
)
def test_so_it_is_for_pix2pix_whose_u_nets_take_no_other_crop(
    net: str, layers: int, crop: int, message: str, pix2pix_run: Callable[..., dict[str, Any]]
) -> None:
    data = pix2pix_run()["data"] | {"load_side": crop, "crop": crop}
    run = pix2pix_run(generator={"net": net}, data=data, discriminator_layers=layers)
    Pix2PixConfig.model_validate(run | {"phase": [run["phase"][0] | {"adversarial": 0.0}]})
    Pix2PixConfig.model_validate(run | {"discriminator_layers": layers - 1})
    with pytest.raises(ValidationError, match=message):
        Pix2PixConfig.model_validate(run)
