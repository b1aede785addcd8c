from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from annotated_types import Le
from typer.testing import CliRunner, Result

from retouch.command_line import app
from retouch.commands.serve import flag_for, to_toml
from service.core.retired_settings import RETIRED
from service.core.setting_groups import SETTING_GROUPS
from service.core.settings import PREFIX, Settings, load_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = sorted(Settings.model_fields)
VALID = {
    "apis": "openai",
    "cors_origins": "https://other.example",
    "host": "::1",
    "ledger_url": "postgresql://other",
    "models_url": "s3://other",
    "otlp_endpoint": "http://other:4318",
    "public_url": "https://other.example",
    "results_url": "s3://other",
    "s3_endpoint": "http://other",
}
"""Valid values other than the default, for text settings that are validated."""
NEEDS = {name: {"RETOUCH_RESULTS_URL": "s3://other"} for name in ("ledger_url", "promise")}
"""Environment that a setting requires."""


def serve(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments], env=env)


def resolved(*arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    result = serve(*arguments, "--print-config", env=env)
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.stdout)


def other_value(name: str) -> tuple[str, object]:
    """Return a valid value other than the default, as given and as printed."""
    field = Settings.model_fields[name]
    kind: Any = field.annotation
    if name == "workers":  # a number or a word
        value: object = 3
    elif kind in (int, float):
        most = next((limit.le for limit in field.metadata if isinstance(limit, Le)), field.default + 1)
        value = kind(min(field.default + 1, most))
    elif choices := get_args(kind):
        value = next(choice for choice in choices if choice != field.default)
    else:
        value = VALID.get(name, "other")
    return str(value), value


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_flag_and_an_environment_twin(name: str) -> None:
    field = Settings.model_fields[name]
    if field.annotation is bool:
        positive, negative = flag_for(name, field).split("/")
        assert resolved(positive)[name] is True
        assert resolved(negative)[name] is False
        assert resolved(env={PREFIX + name.upper(): "false"})[name] is False
        return
    text, value = other_value(name)
    assert resolved(flag_for(name, field), text, env=NEEDS.get(name))[name] == value
    assert resolved(env={PREFIX + name.upper(): text, **NEEDS.get(name, {})})[name] == value


def test_help_lists_every_flag() -> None:
    help_text = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "300"}, color=False).output
    assert [name for name in NAMES if f"--{name.replace('_', '-')}" not in help_text] == []


def test_help_lists_settings_by_group_and_none_that_went() -> None:
    help_text = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "300"}, color=False).output
    assert [group for group in SETTING_GROUPS if f" {group} " not in help_text] == []
    assert [name for name in RETIRED if f"--{name.replace('_', '-')} " in help_text] == []


def test_a_flag_that_went_is_accepted_with_advice() -> None:
    with pytest.warns(FutureWarning, match="save_threads no longer exists"):
        assert "save_threads" not in resolved("--save-threads", "4")


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text("port = 1\nmax_batch_size = 11\nmax_pixels = 21\n", "utf-8")
    environment = {"RETOUCH_MAX_BATCH_SIZE": "12", "RETOUCH_MAX_PIXELS": "22"}
    values = resolved("--config", str(config), "--max-pixels", "23", env=environment)
    assert (values["port"], values["max_batch_size"], values["max_pixels"]) == (1, 12, 23)
    assert resolved(env={"RETOUCH_CONFIG": str(config)})["port"] == 1


def test_the_printed_configuration_has_all_settings_under_the_names_of_their_groups() -> None:
    for group, text in zip(SETTING_GROUPS, to_toml(Settings()).split("\n\n"), strict=True):
        heading, *lines = text.splitlines()
        assert heading == f"# {group}"
        assert [line.partition(" = ")[0] for line in lines] == list(SETTING_GROUPS[group])


def test_the_printed_configuration_can_be_read_back(tmp_path: Path) -> None:
    config = tmp_path / "retouch.toml"
    flags = {"save": False, "results_dir": 'a "quoted" \\ path\n', "max_body_mb": 1.5}
    config.write_text(to_toml(load_settings(flags, environ={})), "utf-8")
    assert load_settings(environ={}, config=config) == load_settings(flags, environ={})


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        pytest.param(["--port", "70000"], {}, "settings: port: ", id="out of range"),
        pytest.param(
            [],
            {"RETOUCH_PROT": "8000"},
            "unknown environment setting RETOUCH_PROT; did you mean RETOUCH_PORT?",
            id="misspelt twin",
        ),
        pytest.param(["--results-dir", ""], {}, "settings: results_dir: it is empty; give it a value", id="no name"),
        pytest.param(["--config", "gone.toml"], {}, "config file gone.toml", id="no such file"),
        pytest.param(["--prot", "8000"], {}, "No such option", id="misspelt flag"),
        pytest.param(["--engine", "fastest"], {}, "'fastest' is not one of", id="no such choice"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_exit_code_2(
    arguments: list[str], env: dict[str, str], message: str
) -> None:
    result = serve(*arguments, env=env)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "pass their file with --keys-file"),
        (["--cors-origins", "app.example"], "cors_origins: 'app.example' is not an origin"),
        (["--inpaint-model", "My Model"], "inpaint_model: 'My Model' is not a model name"),
        (["--s3-endpoint", "minio:9000"], "s3_endpoint: 'minio:9000' is not http"),
        (["--otlp-endpoint", "collector"], "otlp_endpoint: 'collector' is not the address"),
        (["--results-url", "https://bucket"], "results_url 'https://bucket' is not s3://"),
        (["--results-url", "s3://["], "results_url 's3://[' is not s3://"),
        (["--models-url", "s3://models?share=2"], "models_url 's3://models?share=2' is not s3://"),
        (["--models-url", "https://models"], "models_url 'https://models' is not s3://"),
        (["--models-url", "s3://["], "models_url 's3://[' is not s3://"),
        (["--promise", "store"], "promise=store needs results_url"),
        (["--ledger-url", "postgresql://db"], "ledger_url needs results_url"),
        (["--port", "8123", "--metrics-port", "8123"], "metrics_port 8123 is the port, too"),
    ],
)
def test_a_configuration_that_no_server_would_start_with_is_not_printed(arguments: list[str], message: str) -> None:
    result = serve(*arguments, "--print-config")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_printing_does_not_look_at_this_machine(tmp_path: Path) -> None:
    elsewhere = {"keys_file": str(tmp_path / "keys"), "results_dir": str(tmp_path / "a/b"), "host": "192.0.2.1"}
    flags = [part for name, value in elsewhere.items() for part in (flag_for(name, Settings.model_fields[name]), value)]
    assert resolved(*flags).items() >= elsewhere.items()
    assert not list(tmp_path.iterdir())


def test_the_first_line_of_the_log_comes_before_anything_is_loaded_and_names_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # a file in place of the folder: results cannot be saved, so nothing is served
    options = ["--models-dir=a-folder", f"--results-dir={tmp_path / 'file/results'}"]
    command = [sys.executable, "-m", "retouch", "serve", *options]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first = json.loads(started.stderr.splitlines()[0])
    assert (first["event"], first["models_dir"]) == ("starting", str(Path.cwd() / "a-folder"))


def test_no_installation_is_advised_for_a_gpu_without_packages(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # as above
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'GeForce GTX 1060, 580.65.06, 6.1'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cuda'] = None\n")
    environ = {**os.environ, "PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "retouch", "serve", f"--results-dir={tmp_path / 'file/results'}"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    lines = [json.loads(line) for line in started.stderr.splitlines() if line.startswith("{")]
    (reason,) = [line["reason"] for line in lines if line["event"] == "the GPU is not used"]
    assert reason.startswith("GeForce GTX 1060 (6.1) is too old")
    assert "install-gpu" not in reason
