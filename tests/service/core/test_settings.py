"""Settings from flags, environment, file and defaults, in this order; misspelt names are refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from service.core.retired_settings import RETIRED
from service.core.setting_groups import SETTING_GROUPS
from service.core.settings import PREFIX, Settings, SettingsInvalid, load_settings


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text("port = 1\nmax_queue_size = 2\nmax_batch_size = 3\n")
    environ = {"RETOUCH_PORT": "10", "RETOUCH_MAX_QUEUE_SIZE": "20", "PATH": "/bin"}
    settings = load_settings({"port": 100}, environ, config)
    assert (settings.port, settings.max_queue_size, settings.max_batch_size) == (100, 20, 3)


def test_the_config_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text("port = 7\n")
    assert load_settings({}, {"RETOUCH_CONFIG": str(config)}).port == 7
    assert load_settings({}, {"RETOUCH_CONFIG": ""}).port == 8000, "empty, as compose files pass what is not set"


@pytest.mark.parametrize("after", [" ", "\t", "\r"])
def test_whitespace_around_environment_values_is_ignored(after: str, tmp_path: Path) -> None:
    """Files of `docker --env-file` have them, with CR where they were edited on Windows; a folder's name would too."""
    config = tmp_path / "retouch.toml"
    config.write_text("port = 7\n")
    written = {"RESULTS_DIR": "/results", "SAVE": "false", "WORKERS": "auto", "CONFIG": str(config)}
    settings = load_settings({}, {f"RETOUCH_{name}": f" {value}{after}" for name, value in written.items()})
    assert (str(settings.results_dir), settings.save, settings.workers, settings.port) == ("/results", False, "auto", 7)


@pytest.mark.parametrize("written", ["::1", "[::1]"])
def test_an_ipv6_host_may_be_in_brackets_as_in_urls(written: str) -> None:
    assert load_settings({"host": written}, {}).host == load_settings({}, {"RETOUCH_HOST": written}).host == "::1"


@pytest.mark.parametrize(("text", "expected"), [("false", False), ("0", False), ("true", True), ("1", True)])
def test_booleans_in_the_environment_are_parsed(text: str, expected: bool) -> None:
    assert load_settings({}, {"RETOUCH_SAVE": text}).save is expected


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"RETOUCH_PROT": "8000"}, id="misspelt"),
        pytest.param({"RETOUCH_PORT": "eighty"}, id="not a number"),
        pytest.param({"RETOUCH_PORT": "70000"}, id="out of range"),
        pytest.param({"RETOUCH_SAVE": "maybe"}, id="not a boolean"),
        pytest.param({"RETOUCH_ENGINE": "warp"}, id="not a choice"),
    ],
)
def test_a_wrong_or_misspelt_environment_setting_stops_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsInvalid, match=r"(?i)prot|port|save|engine"):
        load_settings({}, environ)


@pytest.mark.parametrize(
    ("written", "meant"), [("max_batch", "max_batch_size"), ("PROT", "port"), ("model_dir", "models_dir")]
)
def test_a_misspelt_name_gets_a_suggestion_and_not_the_full_list(tmp_path: Path, written: str, meant: str) -> None:
    with pytest.raises(SettingsInvalid) as in_environment:
        load_settings({}, {PREFIX + written.upper(): "1"})
    message = f"unknown environment setting {PREFIX}{written.upper()}; did you mean {PREFIX}{meant.upper()}?"
    assert str(in_environment.value) == f"{message} (`retouch serve --help` lists all)"
    config = tmp_path / "retouch.toml"
    config.write_text(f"{written} = 1\n")
    with pytest.raises(SettingsInvalid) as in_file:
        load_settings({}, {}, config)
    message = f"unknown setting {written}; did you mean {meant}?"
    assert str(in_file.value) == f"config file {config}: {message} (`retouch serve --help` lists all)"


def test_an_unknown_name_without_a_close_match_gets_no_suggestion() -> None:
    with pytest.raises(SettingsInvalid, match=r"^unknown environment setting RETOUCH_Q{12} \(`retouch serve"):
        load_settings({}, {PREFIX + "Q" * 12: "1"})


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(
            {
                "RETOUCH_SERVICE_HOST": "10.0.0.1",
                "RETOUCH_SERVICE_PORT": "80",
                "RETOUCH_SERVICE_PORT_HTTP": "80",
                "RETOUCH_PORT": "tcp://10.0.0.1:80",
                "RETOUCH_PORT_80_TCP": "tcp://10.0.0.1:80",
                "RETOUCH_PORT_80_TCP_ADDR": "10.0.0.1",
            },
            id="of a Service called retouch",
        ),
        pytest.param({"RETOUCH_CPU_SERVICE_HOST": "10.0.0.1"}, id="called retouch-cpu"),
        pytest.param({"RETOUCH_PORT": "tcp://10.0.0.1:80"}, id="the port alone"),
    ],
)
def test_kubernetes_service_variables_are_distinguished_from_misspelt_settings(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsInvalid, match=r"Kubernetes .* set enableServiceLinks: false in the pod's spec$"):
        load_settings({}, environ)


@pytest.mark.parametrize("content", ["prot = 1", "port = ", 'port = "x"'])
def test_a_wrong_config_file_stops_the_start(tmp_path: Path, content: str) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text(content)
    with pytest.raises(SettingsInvalid):
        load_settings({}, {}, config)


@pytest.mark.parametrize("name", ["max_batch_size", "request_timeout_s", "host"])
def test_a_boolean_in_the_config_file_is_not_a_number(tmp_path: Path, name: str) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text(f"{name} = true")
    with pytest.raises(SettingsInvalid, match=rf"{name}: true is neither a number nor text"):
        load_settings({}, {}, config)


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    config = tmp_path / "retouch.toml"
    config.write_text("port = 9000", "utf-8-sig")
    assert load_settings({}, {}, config).port == 9000


def test_a_missing_config_file_stops_the_start_and_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        load_settings({}, {}, tmp_path / "none.toml")
    reason = "cannot be read: No such file or directory; check --config and RETOUCH_CONFIG"
    assert str(refused.value) == f"config file {tmp_path / 'none.toml'} {reason}"


def test_every_setting_has_an_environment_variable() -> None:
    for name, field in Settings.model_fields.items():
        value = field.get_default()
        environ = {PREFIX + name.upper(): str(value)}
        assert getattr(load_settings({}, environ), name) == value


def test_every_setting_stands_in_one_group_and_is_described_in_sentences() -> None:
    grouped = [one for described in SETTING_GROUPS.values() for one in described.items()]
    assert sorted(name for name, _ in grouped) == sorted(Settings.model_fields)
    assert [name for name, text in grouped if not re.fullmatch(r"[A-Za-z].+\.", text)] == []


def test_there_are_at_most_54_settings() -> None:
    assert len(Settings.model_fields) <= 54


@pytest.mark.parametrize("name", RETIRED)
def test_a_retired_setting_is_accepted_with_advice(name: str, tmp_path: Path) -> None:
    assert name not in Settings.model_fields
    config = tmp_path / "retouch.toml"
    config.write_text(f"{name} = 1\n")
    advice = f"the setting {name} no longer exists; remove it: "
    with pytest.warns(FutureWarning, match=advice):
        load_settings({name: "1"}, {})
    with pytest.warns(FutureWarning, match=advice):
        load_settings({}, {PREFIX + name.upper(): "1"})
    with pytest.warns(FutureWarning, match=advice):
        load_settings({}, {}, config)


@pytest.mark.parametrize(
    ("written", "memory_mb"),
    [
        ({"max_bodies_mb": 300}, 600),
        ({"max_decoded_mb": "200"}, 400),
        ({"max_bodies_mb": 300, "max_decoded_mb": 200}, 400),
        ({"max_bodies_mb": 300, "max_memory_mb": 5000}, 5000),
    ],
)
def test_a_retired_memory_limit_is_never_exceeded_by_its_replacement(written: dict[str, Any], memory_mb: float) -> None:
    with pytest.warns(FutureWarning, match="max_memory_mb"):
        settings = load_settings(written, {})
    assert settings.max_memory_mb == memory_mb
    assert settings.max_bodies_mb == settings.max_decoded_mb == memory_mb / 2


def test_a_flag_wins_over_a_retired_setting_in_the_environment() -> None:
    with pytest.warns(FutureWarning, match="spool_max_items"):
        assert load_settings({}, {"RETOUCH_SPOOL_MAX_MB": "200"}).spool_max_items == 800
    with pytest.warns(FutureWarning, match="spool_max_items"):
        assert load_settings({"spool_max_items": 7}, {"RETOUCH_SPOOL_MAX_MB": "200"}).spool_max_items == 7


@pytest.mark.parametrize("name", ["max_decoded_mb", "spool_max_mb"])
@pytest.mark.parametrize("value", ["much", "0", "-1", "nan", "inf", "1e400", [1]])
def test_an_invalid_retired_limit_stops_the_start(name: str, value: object) -> None:
    with pytest.raises(SettingsInvalid, match=f"settings: {name}"):
        load_settings({name: value}, {})


@pytest.mark.parametrize("name", ["models_dir", "port", "workers", "max_body_mb", "save", "engine", "log_level"])
def test_an_empty_setting_that_is_not_text_stops_the_start_and_says_so(name: str, tmp_path: Path) -> None:
    (config := tmp_path / "retouch.toml").write_text(f'{name} = ""', "utf-8")
    said = f"settings: {name}: it is empty; give it a value, or leave it out for the default"
    for flags, environ, file in (({name: ""}, {}, None), ({}, {PREFIX + name.upper(): " "}, None), ({}, {}, config)):
        with pytest.raises(SettingsInvalid) as refused:
            load_settings(flags, environ, file)
        assert str(refused.value) == said


def test_an_empty_text_is_a_value() -> None:
    assert load_settings({}, {"RETOUCH_APIS": "", "RETOUCH_INPAINT_MODEL": ""}).api_names == frozenset()


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "{a=" * 5000])
def test_a_file_that_is_nested_too_deeply_to_be_read_stops_the_start(tmp_path: Path, text: str) -> None:
    (config := tmp_path / "retouch.toml").write_text(text, "utf-8")
    with pytest.raises(SettingsInvalid, match=r"config file .*retouch.toml: .*nested too deeply"):
        load_settings({}, {}, config)


@pytest.mark.parametrize("name", ["max_memory_mb", "max_body_mb", "results_max_gb"])
def test_sizes_that_are_infinite_as_bytes_stop_the_start(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name}: it must be .* 1000000000000, not 1e308$"):
        load_settings(environ={f"RETOUCH_{name.upper()}": "1e308"})


@pytest.mark.parametrize("name", ["max_memory_mb", "results_max_gb", "drain_timeout_s"])
@pytest.mark.parametrize("value", ["inf", "nan", "1e400"])
def test_infinite_numbers_stop_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"settings: {name}"):
        load_settings({name: value}, {})


def test_current_settings_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_settings({"port": 1}, {"RETOUCH_MAX_MEMORY_MB": "100"})


def test_limits_derived_from_the_memory_have_their_old_defaults() -> None:
    settings = Settings()
    assert (settings.max_bodies_mb, settings.max_decoded_mb, settings.max_uploads) == (2048.0, 2048.0, 1024)
    assert settings.spool_max_mb == 1024.0


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("", ""),
        ("https://images.example/", "https://images.example"),
        ("http://10.0.0.7:8000/shop/", "http://10.0.0.7:8000/shop"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_a_public_url_is_an_address_with_or_without_a_prefix(url: str, read: str) -> None:
    assert Settings(public_url=url).public_url == read


@pytest.mark.parametrize(
    "url",
    [
        *("images.example", "//images.example", "ftp://images.example", "https://", "https:///shop", "https://:80"),
        *("https://a.example?x=1", "https://a.example#x", "https://me:pw@a.example", "https://a.example:99999"),
        *(
            "https://a.example:0",
            "https://[::1",
            "https://a.example/a b",
            "https://a.example/\n",
            "javascript:alert(1)",
        ),
    ],
)
def test_an_unusable_public_url_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="public_url"):
        load_settings({"public_url": url}, {})


@pytest.mark.parametrize("name", ["drain_delay_s", "drain_timeout_s"])
def test_drain_times_too_long_for_timers_stop_the_start(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name}: it must be .* 10000000, not 1e12$"):
        load_settings({name: "1e12"}, {})


def test_a_pixel_limit_above_the_index_range_stops_the_start() -> None:
    assert load_settings({"max_pixels": 2**30}, {}).max_pixels == 2**30
    with pytest.raises(SettingsInvalid, match=r"max_pixels: it must be 1 to 1073741824, not 1073741825$"):
        load_settings({"max_pixels": 2**30 + 1}, {})
