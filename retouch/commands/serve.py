"""`retouch serve`: has a flag for every setting, generated from service.core.settings."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from service.core.retired_settings import RETIRED
from service.core.setting_groups import SETTING_GROUPS
from service.core.settings import CONFIG_VARIABLE, Settings, load_settings
from service.lifecycle.loading import without_collections, without_rich

_Config = Annotated[
    Path | None, typer.Option(help=f"TOML file of settings, as --print-config prints it ({CONFIG_VARIABLE}).")
]
_PASSWORD = re.compile(r"(?<=://)[^@]*:.*@|(?<=[?&])(ssl)?password=[^&]*&?")
"""The user and password in an address, or a password as its option; also matches unquoted special characters."""
_PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Check the settings, print all of them as TOML, and exit.")
]


def _make_serve_command() -> Callable[..., None]:
    """Make the function behind `retouch serve`, with a parameter for each setting."""

    def serve(config: Path | None, print_config: bool, **flags: Any) -> None:
        """Serve the models over HTTP, until SIGTERM or Ctrl-C.

        Each setting is a flag (--max-batch-size 4), an environment variable
        (RETOUCH_MAX_BATCH_SIZE=4) or a line in the --config file (max_batch_size =
        4). A flag wins over the environment, and the environment over the file. An
        unknown name stops the start.

        Example: retouch serve --port 8080 --results-dir /var/lib/retouch
        """
        settings = load_settings({name: value for name, value in flags.items() if value is not None}, config=config)
        if print_config:
            from service.preflight import check_values  # noqa: PLC0415 -- loads what opens the ledger and the bucket

            check_values(settings)
            typer.echo(to_toml(settings), nl=False)
            return
        with without_collections(), without_rich():
            from service.lifecycle.end_limit import write_stacks_on_request  # noqa: PLC0415 -- loads structlog

        _log_start(settings)
        write_stacks_on_request()
        front_ends = _chosen_front_ends(settings)
        settings = settings.model_copy(update={"workers": front_ends})
        if front_ends:
            with without_collections():
                from service.processes.launcher.launcher import launch  # noqa: PLC0415 -- other processes do not need it

            raise typer.Exit(launch(settings, front_ends))
        with without_collections():
            from service.compat.assembly import foreign_apis, grpc_server_opener  # noqa: PLC0415 -- loads engines, FastAPI
            from service.web.server import run  # noqa: PLC0415 -- as above

        raise typer.Exit(
            run(settings, apis=foreign_apis(settings.api_names), extra_server=grpc_server_opener(settings))
        )

    parameters = [
        _make_parameter("config", _Config, None),
        _make_parameter("print_config", _PrintConfig, False),
        *(
            _make_parameter(name, _option_annotation(name, group, description), None)
            for group, descriptions in SETTING_GROUPS.items()
            for name, description in descriptions.items()
        ),
        *(_make_parameter(name, Annotated[str | None, typer.Option(hidden=True)], None) for name in RETIRED),
    ]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by inspect.signature
    serve.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return serve


def _log_start(settings: Settings) -> None:
    """Write the first log line; importing the rest takes seconds."""
    import structlog  # noqa: PLC0415 -- as in `serve`

    from service.telemetry.logs import configure_logs  # noqa: PLC0415 -- loads structlog

    configure_logs(settings)
    log = structlog.get_logger(__name__)
    log.info("starting", version=version("retouch"), models_dir=str(settings.models_dir.absolute()))


def _chosen_front_ends(settings: Settings) -> int:
    """Return the number of front ends, 0 for a single process, and log the reason."""
    import structlog  # noqa: PLC0415 -- as in `serve`

    from service.processes.launcher.process_plan import (  # noqa: PLC0415 -- as above
        choose_processes,
        facts_of_this_host,
        unused_gpu,
    )

    facts = facts_of_this_host(settings)
    chosen = choose_processes(settings, facts)
    log = structlog.get_logger(__name__)
    if why := unused_gpu(facts):
        log.warning("the GPU is not used", reason=_why_no_packages(os.environ) or why)
    log.info("processes", front_ends=chosen.front_ends or "none: one process", why=chosen.why)
    return chosen.front_ends


def _why_no_packages(environ: Mapping[str, str]) -> str:
    """Return why no packages can be installed for the GPUs here, such as cards that are too old; empty if some can."""
    from retouch.gpu_setup.choice import choose_packages  # noqa: PLC0415 -- loads the engines
    from retouch.gpu_setup.host import GpuHost, ask_driver  # noqa: PLC0415 -- as above

    choice = choose_packages(GpuHost(ask_driver(environ), (sys.version_info.major, sys.version_info.minor)))
    return f"{choice.why_cpu}. {choice.to_do}" if choice.why_cpu and choice.to_do else choice.why_cpu


def to_toml(settings: Settings) -> str:
    """Format the settings by group as TOML, usable as a `--config` file, without the password of the database."""
    values = settings.model_dump(mode="json")
    values["ledger_url"] = _PASSWORD.sub("", values["ledger_url"])
    groups = (
        [f"# {group}", *(f"{name} = {_toml_value(values[name])}" for name in names)]
        for group, names in SETTING_GROUPS.items()
    )
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in groups)


def flag_for(name: str, field: FieldInfo) -> str:
    """Return the flag of a setting: `--max-batch-size`, or `--save/--no-save`."""
    dashed = name.replace("_", "-")
    return f"--{dashed}/--no-{dashed}" if field.annotation is bool else f"--{dashed}"


def default_of(field: FieldInfo) -> str:
    """Return the default of a setting as TOML writes it."""
    return _toml_value(to_jsonable_python(field.default))


def _option_annotation(name: str, group: str, description: str) -> Any:
    field = Settings.model_fields[name]
    default = default_of(field).replace(",", ", ")  # a terminal breaks lines at blanks, and settings may contain them
    option = typer.Option(
        flag_for(name, field),
        help=f"{description.replace('`', '')} (default {default})",
        metavar="NAME" if name == "engine" else None,  # all names would leave no room for the descriptions
        rich_help_panel=group,
        path_type=str,  # Path("") would be the current folder
    )
    kind: Any = str if get_origin(field.annotation) in (Union, UnionType) else field.annotation
    return Annotated[kind | None, option]


def _make_parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _toml_value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON and TOML write strings, numbers and booleans alike


serve = _make_serve_command()
