from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from retouch.command_line import app
from service.core.settings import Settings
from training.__main__ import app as training_app

COMMANDS = [
    "serve",
    "inpaint",
    "translate",
    "generate",
    "export",
    "import",
    "sweep",
    "models",
    "bench",
    "build",
    "doctor",
    "keys",
    "install-gpu",
]
HEAVY = {"numpy", "torch", "fastapi", "onnx", "onnxruntime", "openvino", "cv2", "httpx", "aiohttp", "matplotlib"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    "command",
    sorted({*COMMANDS} - {"models", "keys"} | {f"models {one}" for one in ("list", "add", "push", "withdraw")}),
)
def test_every_command_shows_an_example_that_names_it(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert f"Example: retouch {command}" in result.output


@pytest.mark.parametrize(
    "command",
    [
        "models --models-dir=",
        "models add lama --output=",
        "models push photos/5 --models-dir=",
        "build --models-dir=",
        "build --engine-cache-dir=",
        "doctor --results-dir=",
        "export latest_net_G.pth --output=",
        "inpaint photo.jpg mask.png -o filled.png --models-dir=",
        "bench pipeline --images photo.jpg --models-dir=",
    ],
)
def test_an_empty_name_of_a_folder_is_refused(command: str) -> None:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    assert "it is empty; name a path" in " ".join(result.stderr.replace("│", "").split())


def test_the_list_of_commands_is_complete() -> None:
    assert set(typer.main.get_group(app).commands) == set(COMMANDS)


def test_a_command_loads_no_other() -> None:
    code = """
import atexit, sys
from retouch.__main__ import main
atexit.register(lambda: print(*(name for name in sys.modules if name.startswith("retouch."))))
sys.argv = ["retouch", "keys", "--help"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    expected = "retouch.__main__ retouch.command_line retouch.commands retouch.commands.keys"
    assert done.stdout.splitlines()[-1] == expected


class Broken:
    """A module that looks for something in vain while it is loaded."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


def test_a_command_that_cannot_be_loaded_is_not_taken_for_an_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "retouch.commands.keys", Broken())
    result = CliRunner().invoke(app, ["keys", "list"])
    assert isinstance(result.exception, KeyError)
    assert "No such command" not in result.output


def test_version_is_that_of_the_installed_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"retouch {importlib.metadata.version('retouch')}\n"


def test_help_loads_no_model_library() -> None:
    code = f"import sys, retouch.command_line; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_what_a_command_loads_is_not_traversed_by_garbage_collections() -> None:
    code = """
import atexit, gc, sys
from retouch.__main__ import main
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))
sys.argv = ["retouch", "--version"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[1:] == ["True True"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_server_loads_no_rich_and_looks_for_no_plugins_of_pydantic(workers: str, tmp_path: Path) -> None:
    code = f"""
import atexit, sys
from retouch.__main__ import main
atexit.register(lambda: print("rich" in sys.modules, sys.modules["pydantic.plugin._loader"]._plugins))
sys.argv = ["retouch", "serve", "--workers={workers}", "--host=203.0.113.1"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "cannot listen on 203.0.113.1" in done.stderr
    assert done.stdout == "False None\n"


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "retouch", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert all(f" {command} " in done.stdout for command in COMMANDS)


def flags(command: click.Command) -> Iterator[click.Option]:
    """Yield the flags of a command and its sub-commands except `serve`, whose flags are made from the settings."""
    for name, below in getattr(command, "commands", {}).items():
        if name != "serve":
            yield from flags(below)
    yield from (flag for flag in command.params if isinstance(flag, typer.core.TyperOption))


def test_every_flag_for_a_folder_or_a_runtime_of_the_server_follows_the_environment() -> None:
    """All commands read RETOUCH_MODELS_DIR and similar variables; none has its own default."""
    defaults = {str(field.default) for field in Settings.model_fields.values()} & {"models", "cache", "results"}
    found = []
    for app_ in (app, training_app):
        for flag in flags(typer.main.get_command(app_)):
            if flag.name in {"models_dir", "engine", "engine_cache_dir"} or str(flag.default) in defaults:
                twin = flag.envvar or "".join(re.findall(r"RETOUCH_[A-Z_]+", flag.help or ""))
                assert isinstance(twin, str)
                assert twin.removeprefix("RETOUCH_").lower() in Settings.model_fields, flag.opts
                assert flag.default is None or flag.envvar, f"{flag.opts}: the environment cannot win over its default"
                found.append(flag.name)
    assert len(found) > 15


def test_an_interrupt_before_the_command_begins_is_no_traceback() -> None:
    code = "import sys, retouch.__main__ as m; sys.modules['retouch.command_line'] = Interrupted(); m.main()"
    interrupted = "class Interrupted:\n    def __getattr__(self, name):\n        raise KeyboardInterrupt\n"
    ended = subprocess.run([sys.executable, "-c", interrupted + code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_advice_on_a_setting_that_went_is_one_line_without_source_code() -> None:
    command = [sys.executable, "-m", "retouch", "serve", "--slots-mb", "3", "--print-config"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"warning: the setting slots_mb no longer exists; remove it: [^\n]+\n", ended.stderr)


def test_a_standard_stream_that_the_parent_closed_is_the_null_device() -> None:
    """Otherwise `retouch serve 2>&-` exits with status 1 without a message, and a result can get descriptor 1."""
    code = """
import os, sys
from retouch.__main__ import open_closed_streams
for stream in range(3):
    os.close(stream)
sys.stdin = sys.stdout = sys.stderr = None
open_closed_streams()
print("nobody reads this", file=sys.stderr)
streams = [os.readlink(f"/proc/self/fd/{stream.fileno()}") for stream in (sys.stdin, sys.stdout, sys.stderr)]
os._exit(0 if streams == ["/dev/null"] * 3 and os.get_inheritable(2) else 1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
