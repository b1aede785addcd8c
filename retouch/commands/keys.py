"""`retouch keys`: makes, lists and revokes API keys. A running server reloads the key file within seconds."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engines.terminal.folders import file_flag

if TYPE_CHECKING:
    from service.auth.keys import KeyRecord

_BY_DEFAULT = "keys.json"

keys_app = typer.Typer(help="Create, list and revoke the API keys of a server.", no_args_is_help=True)

_File = Annotated[Path | None, file_flag(f"Key file (RETOUCH_KEYS_FILE). By default {_BY_DEFAULT}.", "--file")]


@keys_app.command()
def create(  # noqa: PLR0913, PLR0917 -- each is a flag
    name: Annotated[str, typer.Argument(help="Name of the key's owner, which lists and logs show.")],
    file: _File = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What the key may do: inference (default), metrics, results:read, results:delete. Repeat for several."
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second, on average. By default no limit.")] = None,
    burst: Annotated[
        int | None, typer.Option(help="Requests that may be sent at once, above --rate. By default 10.")
    ] = None,
    per_day: Annotated[
        int | None,
        typer.Option(help="Requests for pictures per day (UTC), refused ones included. By default no limit."),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=1e-6, max=36500, help="Days until the key expires. By default it never does.")
    ] = None,
) -> None:
    """Create a key and print it, once: the file keeps only its digest.

    Example: retouch keys create studio --rate 5 --per-day 10000
    """
    if burst is not None and rate is None:
        raise typer.BadParameter("--burst alone limits nothing; add --rate")
    from pydantic import ValidationError  # noqa: PLC0415 -- `retouch --help` does without

    from engines.validation import validation_message  # noqa: PLC0415 -- the same
    from service.auth.keys import (  # noqa: PLC0415 -- the same
        KeyOptionInvalid,
        KeyRecord,
        check_new_name,
        key_digest,
        lock_key_file,
        new_key,
        read_keys,
        write_keys,
    )

    check_new_name(name)
    path, now = _key_file_path(file), datetime.now(timezone.utc)
    with lock_key_file(path) as real_path:
        keys = read_keys(real_path) if real_path.exists() else ()
        taken = {key.id for key in keys}
        key_id, key = new_key()
        while key_id in taken:
            key_id, key = new_key()
        try:
            record = KeyRecord.model_validate(
                {
                    "id": key_id,
                    "name": name,
                    "sha256": key_digest(key),
                    "scopes": scope or ["inference"],
                    "created_at": now,
                    "expires_at": now + timedelta(days=expires_days) if expires_days is not None else None,
                    "rate_per_s": rate,
                    **({} if burst is None else {"burst": burst}),
                    "requests_per_day": per_day,
                }
            )
        except ValidationError as error:
            raise KeyOptionInvalid(validation_message(error, "field", KeyRecord.model_fields)) from None
        kept = write_keys(real_path, (*keys, record))
    _warn_of_access(path, kept=kept)
    typer.secho(f"key {key_id} of {name} is in {path}; this is the only time that it is shown:", err=True)
    typer.echo(key)


@keys_app.command("list", epilog="Example: retouch keys list --file keys.json")
def list_keys(
    file: _File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything except the digests as JSON.")] = False,
) -> None:
    """List the keys: id, name, scopes, limits, and whether they are valid."""
    from rich.markup import escape  # noqa: PLC0415 -- `retouch serve` runs without it
    from rich.table import Column, Table  # noqa: PLC0415 -- the same

    from engines.terminal.tables import print_table  # noqa: PLC0415 -- loads rich
    from service.auth.keys import read_keys  # noqa: PLC0415 -- loads pydantic

    now = datetime.now(timezone.utc)
    listed = read_keys(_key_file_path(file))
    if as_json:
        typer.echo(json.dumps([_as_json(key, now) for key in listed], indent=1))
        return
    table = Table(Column("id", no_wrap=True), Column("name", no_wrap=True), "scopes", "limits", "created", "state")
    for key in listed:
        scopes = ", ".join(sorted(key.scopes))
        table.add_row(
            key.id,
            escape(key.name),
            scopes,
            _describe_limits(key),
            f"{key.created_at:%Y-%m-%d}",
            _describe_validity(key, now),
        )
    print_table(table)


@keys_app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, as `retouch keys list` shows it.")], file: _File = None
) -> None:
    """Revoke a key. A running server refuses it within seconds.

    Example: retouch keys revoke 1f2e3d4c
    """
    from service.auth.keys import lock_key_file, read_keys, with_key_revoked, write_keys  # noqa: PLC0415 -- loads pydantic

    path = _key_file_path(file)
    with lock_key_file(path) as real_path:
        kept = write_keys(real_path, with_key_revoked(read_keys(real_path), key_id, datetime.now(timezone.utc)))
    _warn_of_access(path, kept=kept)
    typer.echo(f"key {key_id} is revoked")


def _as_json(key: KeyRecord, now: datetime) -> dict[str, Any]:
    known = key.model_dump(mode="json", exclude={"sha256"})
    return known | {"scopes": sorted(key.scopes), "state": _describe_validity(key, now)}


def _key_file_path(file: Path | None) -> Path:
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    return file or Path(load_settings().keys_file or _BY_DEFAULT)


def _warn_of_access(path: Path, *, kept: bool) -> None:
    if not kept:
        why = "its owner or group has changed, so a server of another user may not be able to read it"
        typer.secho(f"key file {path}: {why}; chown it, or run this command as root", err=True)


def _describe_limits(key: KeyRecord) -> str:
    rate = f"{key.rate_per_s:g}/s, {key.burst} at once" if key.rate_per_s else ""
    daily = f"{key.requests_per_day} a day" if key.requests_per_day else ""
    return "; ".join(limit for limit in (rate, daily) if limit) or "none"


def _describe_validity(key: KeyRecord, now: datetime) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
    if key.expires_at is None:
        return "valid"
    return f"valid until {key.expires_at:%Y-%m-%d %H:%M}" if now < key.expires_at else "expired"
