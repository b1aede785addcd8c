"""`retouch install-gpu`: installs what an NVIDIA GPU of this host needs; `make serve` runs it first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from retouch.gpu_setup.choice import GpuChoice
    from retouch.gpu_setup.host import GpuHost


def install_gpu(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be installed, and install nothing")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="choose again, even if everything is installed")] = False,
    undo: Annotated[
        bool, typer.Option("--undo-unfinished", help="undo an installation that was cut off: CPU only")
    ] = False,
    nvidia_index: Annotated[
        str | None, typer.Option(help="index or folder with TensorRT (RETOUCH_NVIDIA_INDEX); empty: none")
    ] = None,
) -> None:
    """Install CUDA packages and the best TensorRT that this host can have; nothing where the CPU is to compute."""
    from retouch.gpu_setup.choice import choose_packages, describe_gpus  # noqa: PLC0415 -- as below
    from retouch.gpu_setup.host import this_host  # noqa: PLC0415 -- loads the engines
    from retouch.gpu_setup.installing import Installer  # noqa: PLC0415 -- as above
    from retouch.gpu_setup.pip import Environment  # noqa: PLC0415 -- as above
    from retouch.gpu_setup.record import facts_of  # noqa: PLC0415 -- as above
    from service.core.gpu_use import why_on_cpu  # noqa: PLC0415 -- as above
    from service.core.settings import load_settings  # noqa: PLC0415 -- as above

    installer = Installer(Environment.of_this_process(), typer.echo)
    why = why_on_cpu(load_settings({}))
    if undo or (why and not dry_run):
        installer.restore_cpu()
    if why and not undo:
        typer.echo(f"{why}: nothing is installed for one")
    if undo or why:
        return
    host = this_host(notify=typer.echo)
    choice = choose_packages(host)
    if choice.why_cpu:
        _say_cpu(choice)
        return
    typer.echo(describe_gpus(host))
    facts = facts_of(host, choice)
    if not (again or dry_run) and (runtime := installer.installed(choice, facts)):
        typer.echo(f"what the GPU needs is installed: {runtime}")
        return
    choice = choose_packages(_with_index(host, nvidia_index))
    if dry_run:
        _say_choice(choice)
        return
    typer.echo(f"installed for the GPU: {installer.install(choice, facts)}")


def _with_index(host: GpuHost, given: str | None) -> GpuHost:
    """Return the host with NVIDIA's package index, if it answers."""
    from dataclasses import replace  # noqa: PLC0415 -- as above

    from retouch.gpu_setup.host import INDEX_VARIABLE, NVIDIA_INDEX, index_answers  # noqa: PLC0415 -- as above

    address = given if given is not None else os.environ.get(INDEX_VARIABLE, NVIDIA_INDEX)
    return replace(host, nvidia_index=address if address and index_answers(address) else "")


def _say_cpu(choice: GpuChoice) -> None:
    """Say that the CPU computes; a GPU that cannot be used is a warning on standard error."""
    if choice.to_do:
        typer.secho(f"warning: {choice.why_cpu}; the CPU computes. {choice.to_do}", fg=typer.colors.YELLOW, err=True)
    else:
        typer.echo(f"{choice.why_cpu}: the CPU computes")


def _say_choice(choice: GpuChoice) -> None:
    typer.echo(f"for CUDA {choice.cuda}: {', '.join(choice.packages)}")
    for name, why in choice.passed_over:
        typer.echo(f"not {name}: {why}")
    for way in choice.ways:
        what = ", ".join(way.requirements) or (f"linked from {way.folder}" if way.folder else "is installed")
        typer.echo(f"{'then' if way is not choice.ways[0] else 'first'} {way.name}: {what}")
