"""Checks before the server starts, so that a wrong setup fails at once and not with the first request."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import resource
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog

from service.auth.exposure import check_exposure
from service.auth.keys import KeysInvalid, read_keys
from service.auth.links import open_links
from service.core.addresses import with_port
from service.core.lists_and_folders import listed
from service.core.schemas import MODEL_REF
from service.core.settings import Settings, SettingsInvalid
from service.fleet.assembly import check_ledger, make_ledger_file, make_server
from service.jobs.webhook_signing import read_secrets
from service.ledger.database import Database
from service.remote_models.assembly import open_model_bucket, parse_models_url
from service.saving.assembly import check_storage_settings, open_storage
from service.saving.local_disk.disk_state import INCOMING
from service.saving.local_disk.own_folders import ORDERS, RESPONSES, THUMBNAILS
from service.saving.spool.process_folder import SPOOL
from service.saving.storage.s3 import check_bucket, check_endpoint
from service.telemetry.logs import configure_logs
from service.telemetry.tracing import check_collector, check_tracing

_log = structlog.get_logger(__name__)
_OPEN_FILES = 65_536
_OTHER_OPEN_FILES = 100
"""Files that a process has open besides connections: libraries, sockets, the ledger, results being written."""
_REMEDIES: dict[int | None, str] = {
    errno.EADDRINUSE: "end what listens there, or choose another {flag}",
    errno.EACCES: "choose a {flag} from 1024, or let this user have that one",
}
"""Remedies by error number, for errors that every address of the host would have."""
_ORIGIN = re.compile(r"\*|null|file://|[a-z][a-z0-9+.-]*://[^/?#@A-Z\s]+")
"""Form of an `Origin`; apps whose pages are local files send `file://`."""
_NAME = r"[\w-]+(\.[\w-]+)*"
_WEBHOOK_HOST = re.compile(rf"(\*\.)?{_NAME}", re.ASCII)
_PUBLIC_HOST = re.compile(rf"\*|(\*\.)?{_NAME}\.?|({_NAME}|\[[\da-fA-F:.]+\])(:\d+)?", re.ASCII)
"""Form of a public name; one with a port matches the `Origin` of a page whose proxy sends another `Host`."""
_OWN_FOLDERS = frozenset({SPOOL, INCOMING, ORDERS, RESPONSES, THUMBNAILS})
_RESULTS_FOLDER = re.compile(r"[0-9a-f]{2}")
_PORT_SETTINGS = ("port", "metrics_port", "grpc_port")


def run_preflight(settings: Settings) -> None:
    """Check the settings by themselves and against this machine, and raise this process's limit of open files.

    Raises:
        SettingsInvalid: as `check_values`; or results cannot be saved or models fetched as configured; a package that
            the settings need is missing; the file of keys, of webhook secrets or of link secrets is invalid; or the
            ledger is damaged or cannot be reached.
    """
    check_values(settings)
    check_tracing(settings)
    _check_grpc(settings)
    _check_keys(settings)
    if settings.webhook_secret_file:
        read_secrets(Path(settings.webhook_secret_file))
    configure_logs(settings)
    _warn_of_idle_settings(settings)
    _raise_open_files_limit(settings.max_queue_size)
    open_storage(settings)
    check_folders(settings.results_dir)
    if settings.models_url:
        open_model_bucket(parse_models_url(settings.models_url)[0], settings)
    open_links(settings, time.time)
    ledger = Database(make_server(settings)) if settings.ledger_url else make_ledger_file(settings)
    with ledger:  # only opened as a check: each process opens its own
        pass


def check_values(settings: Settings) -> None:
    """Check the settings by themselves, not against this machine: a command may print those of another machine.

    Raises:
        SettingsInvalid: a public address has no API keys; the address of the trace collector, a bucket, the S3 endpoint
            or the ledger is malformed; a site's name can match no request; the name of a default model is malformed; a
            shared ledger or replies that wait for a bucket are set without a bucket; or two settings have the same
            port.
    """
    check_exposure(settings)
    check_collector(settings.otlp_endpoint)
    _check_sites(settings)
    _check_default_models(settings)
    check_endpoint(settings.s3_endpoint)  # also without --results-url, which may have been forgotten
    check_storage_settings(settings)
    if settings.models_url:
        check_bucket(parse_models_url(settings.models_url)[0], "models_url")
    if settings.ledger_url:
        check_ledger(settings)
    _check_ports_differ(settings)


def check_folders(results_dir: Path) -> None:
    """Check that this user may write to the server's own folders in the results folder.

    Another user may have made them: after a start with sudo they belong to root.

    Raises:
        SettingsInvalid: this user may not write to one of them.
    """
    spools = (results_dir / SPOOL).glob("*")
    for folder in (*results_dir.iterdir(), *spools):
        own = folder.name in _OWN_FOLDERS or folder.parent.name == SPOOL or _RESULTS_FOLDER.fullmatch(folder.name)
        if own and folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise SettingsInvalid(
                f"results_dir: {folder} cannot be written to by this user: run chown -R on {results_dir}, or choose "
                "another with --results-dir"
            )


def check_ports(settings: Settings) -> None:
    """Check that this server can listen on all its ports, so that a second one says so before it opens anything.

    Raises:
        SettingsInvalid: another server listens on a port, this user may not listen on it, the host is not a name or
            address of this machine, or two settings have the same port.
    """
    _check_ports_differ(settings)
    for name in _PORT_SETTINGS:
        if (port := getattr(settings, name)) or name == "port":
            check_address(settings.host, port, name)


def _check_ports_differ(settings: Settings) -> None:
    """Check that no two settings have the same port.

    Raises:
        SettingsInvalid: two settings have the same port.
    """
    used: dict[int, str] = {}
    for name in _PORT_SETTINGS:
        if (port := getattr(settings, name)) and (other := used.setdefault(port, name)) != name:
            raise SettingsInvalid(f"{name} {port} is the {other}, too; choose another --{_dashed(name)}")


def check_address(host: str, port: int, setting: str = "port") -> None:
    """Check that this server can listen on `host` and `port`; `setting` is the name of the port's setting.

    Raises:
        SettingsInvalid: another server listens there, this user may not listen there, or `host` is not a name or
            address of this machine.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with an empty label, or one of over 63 characters
        raise cannot_listen(host, port, setting, error) from error
    failed = [why for one in found if (why := _bind_error(*one)) is not None]
    of_the_port = [why for why in failed if why.errno in _REMEDIES]
    if of_the_port or len(failed) == len(found):  # a host may lack IPv4 or IPv6
        raise cannot_listen(host, port, setting, [*of_the_port, *failed][0])


def _bind_error(family: int, kind: int, protocol: int, _: str, where: Any) -> OSError | None:
    """Bind a socket to one result of `getaddrinfo` and close it; return the error, or None if binding succeeded."""
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server sets it, too
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(where)
    except OSError as error:
        return error
    return None


def cannot_listen(host: str, port: int, setting: str, error: OSError | UnicodeError) -> SettingsInvalid:
    """Return the error that says why the server cannot listen on `host` and `port`, and what to do."""
    number, why = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
    remedy = _REMEDIES.get(number, "give an address of this machine with --host").format(flag=f"--{_dashed(setting)}")
    return SettingsInvalid(f"{setting}: cannot listen on {with_port(host, port)} ({why or error}); {remedy}")


def _dashed(setting: str) -> str:
    return setting.replace("_", "-")


def _check_keys(settings: Settings) -> None:
    """Check the key file, if there is one.

    Raises:
        SettingsInvalid: the file cannot be read, or is not a key file.
    """
    try:
        if settings.keys_file:
            read_keys(Path(settings.keys_file))
    except KeysInvalid as error:
        raise SettingsInvalid(f"keys_file: {error}") from error


def _check_sites(settings: Settings) -> None:
    """Check that names of sites have the form that browsers send or URLs have, because others would never match.

    Raises:
        SettingsInvalid: an origin is not just a scheme and a host, or a name does not have the form of a host.
    """
    for origin in listed(settings.cors_origins):
        if not _ORIGIN.fullmatch(origin):
            raise SettingsInvalid(
                f"cors_origins: {origin!r} is not an origin as browsers send it; write it like https://app.example: "
                "with the scheme, in lower case, without a slash at the end"
            )
    for name in listed(settings.public_host):
        if not (_PUBLIC_HOST.fullmatch(name) or _is_address(name)):
            raise SettingsInvalid(
                f"public_host: {name!r} is not a name as browsers send it; write images.example.com, or *.example.com "
                "for all below it; leave out https:// and what follows the name, and write letters beyond a-z as xn--"
            )
    for name in listed(settings.webhook_hosts):
        if not (_WEBHOOK_HOST.fullmatch(name) or _is_address(name)):
            raise SettingsInvalid(
                f"webhook_hosts: {name!r} is not a host; write hooks.example.com, or *.example.com for all below it: "
                "without https://, a port and what follows"
            )


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _check_default_models(settings: Settings) -> None:
    """Check that each default model's name has a valid form; whether it exists is checked when models are loaded.

    Raises:
        SettingsInvalid: a name is malformed, so every request of its task that names no model would be refused.
    """
    for task, reference in settings.default_models.items():
        if reference and not re.fullmatch(MODEL_REF, reference):
            raise SettingsInvalid(
                f"{task}_model: {reference!r} is not a model name; use NAME or NAME/VERSION, such as photos/5"
            )


def _check_grpc(settings: Settings) -> None:
    """Check what gRPC needs, if it is on.

    Raises:
        SettingsInvalid: grpcio or protobuf is not installed.
    """
    if not settings.grpc_port:
        return
    if not (find_spec("grpc") and find_spec("google") and find_spec("google.protobuf")):
        raise SettingsInvalid("grpc_port needs grpcio and protobuf: install the extra, pip install '.[grpc]'")


def _warn_of_idle_settings(settings: Settings) -> None:
    """Warn of a setting that has no effect with the others; not an error, because hosts may share a settings file."""
    if settings.engine_processes and not settings.workers:
        why, remedy = "one process does everything", "set workers to 1 or more, or leave engine_processes out"
        _log.warning("engine_processes has no effect", reason=why, to_do=remedy)


def _raise_open_files_limit(max_queue_size: int) -> None:
    """Raise the soft limit of open files: each connection needs two, and 1,024 do not suffice to fill the queue.

    If the hard limit is too low for a full queue, log a warning: a process that cannot open files saves nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < (needed := 2 * max_queue_size + _OTHER_OPEN_FILES):
        remedy = f"allow {needed} with ulimit -n, LimitNOFILE= or --ulimit nofile, or lower --max-queue-size"
        _log.warning("too few open files for a full queue", allowed=wanted, to_do=remedy)
