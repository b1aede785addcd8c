"""`retouch install-gpu`: installs what an NVIDIA GPU of this host needs; `make serve` runs it first."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from retouch.gpu_setup.choice import GpuChoice
    from retouch.gpu_setup.host import GpuHost
    from retouch.gpu_setup.installing import Installer


def install_gpu(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be installed, and install nothing.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Choose and install again, for instance after a new driver.")
    ] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo-unfinished", help="Restore the packages for the CPU after an installation that was interrupted."
        ),
    ] = False,
    nvidia_index: Annotated[
        str | None, typer.Option(help="Package index or folder with TensorRT (RETOUCH_NVIDIA_INDEX). Empty: none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Install what serving on this host's NVIDIA GPU needs: CUDA packages and the best runtime.

    Without a GPU that can be used, nothing is installed.

    Example: retouch install-gpu --dry-run
    """
    from retouch.gpu_setup.installing import Installer  # noqa: PLC0415 -- loads the engines
    from retouch.gpu_setup.pip import Environment  # noqa: PLC0415 -- as above

    say = partial(typer.echo, err=as_json)
    installer = Installer(Environment.of_this_process(on_stderr=as_json), say)
    facts = _install(installer, nvidia_index, dry_run=dry_run, again=again, undo=undo)
    if as_json:
        typer.echo(json.dumps(facts, indent=1))


def _install(
    installer: Installer, nvidia_index: str | None, *, dry_run: bool, again: bool, undo: bool
) -> dict[str, Any]:
    """Install what is missing and report each step; returns the object for `--json`. See `install_gpu` for the flags.

    Raises:
        InstallFailed: as for `Installer`.
    """
    from retouch.gpu_setup.choice import choose_packages, describe_gpus  # noqa: PLC0415 -- as below
    from retouch.gpu_setup.host import this_host  # noqa: PLC0415 -- loads the engines
    from retouch.gpu_setup.record import facts_of  # noqa: PLC0415 -- as above
    from service.core.gpu_use import why_on_cpu  # noqa: PLC0415 -- as above
    from service.core.settings import load_settings  # noqa: PLC0415 -- as above

    say, why = installer.notify, why_on_cpu(load_settings({}))
    restored = installer.restore_cpu() if undo or (why and not dry_run) else False
    if why and not undo:
        say(f"{why}: nothing is installed for one")
    if undo or why:
        return {"device": "cpu", "why": why or "--undo-unfinished", "restored": restored}
    host = this_host(notify=say)
    choice = choose_packages(host)
    if choice.why_cpu:
        _say_cpu(choice, say)
        return {"device": "cpu", "why": choice.why_cpu, "to_do": choice.to_do}
    say(describe_gpus(host))
    facts: dict[str, Any] = {"device": "gpu", "gpus": describe_gpus(host)}
    recorded = facts_of(host, choice)
    if not (again or dry_run) and (runtime := installer.installed(choice, recorded)):
        say(f"what the GPU needs is installed: {runtime}")
        return facts | {"installed": False, "runtime": runtime}
    choice = choose_packages(_with_index(host, nvidia_index))
    if dry_run:
        _say_choice(choice, say)
        return facts | {"installed": False, "plan": _plan_of(choice)}
    runtime = installer.install(choice, recorded)
    say(f"installed for the GPU: {runtime}")
    return facts | {"installed": True, "runtime": runtime, "plan": _plan_of(choice)}


def _with_index(host: GpuHost, given: str | None) -> GpuHost:
    """Return the host with NVIDIA's package index, if it answers."""
    from dataclasses import replace  # noqa: PLC0415 -- as above

    from retouch.gpu_setup.host import INDEX_VARIABLE, NVIDIA_INDEX, index_answers  # noqa: PLC0415 -- as above

    address = given if given is not None else os.environ.get(INDEX_VARIABLE, NVIDIA_INDEX)
    return replace(host, nvidia_index=address if address and index_answers(address) else "")


def _say_cpu(choice: GpuChoice, say: Callable[[str], None]) -> None:
    """Say that the CPU computes; a GPU that cannot be used is a warning on standard error."""
    if choice.to_do:
        typer.secho(f"warning: {choice.why_cpu}; the CPU computes. {choice.to_do}", fg=typer.colors.YELLOW, err=True)
    else:
        say(f"{choice.why_cpu}: the CPU computes")


def _say_choice(choice: GpuChoice, say: Callable[[str], None]) -> None:
    say(f"for CUDA {choice.cuda}: {', '.join(choice.packages)}")
    for name, why in choice.passed_over:
        say(f"not {name}: {why}")
    for candidate in choice.candidates:
        what = ", ".join(candidate.requirements) or (
            f"linked from {candidate.folder}" if candidate.folder else "is installed"
        )
        say(f"{'then' if candidate is not choice.candidates[0] else 'first'} {candidate.name}: {what}")


def _plan_of(choice: GpuChoice) -> dict[str, Any]:
    """Return as JSON values: the packages, the candidates for the runtime in their order, and what is passed over."""
    return {
        "cuda": choice.cuda,
        "packages": choice.packages,
        "passed_over": dict(choice.passed_over),
        "candidates": [
            {"name": candidate.name, "engine": candidate.engine, "requirements": candidate.requirements}
            for candidate in choice.candidates
        ],
    }
