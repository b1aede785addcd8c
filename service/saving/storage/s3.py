"""Results in S3-compatible storage: the objects of contract.py under a bucket's prefix.

The client (obstore, which wraps the Rust crate object_store) does HTTP, TLS and signing on its own threads without the
GIL, so uploads do not slow the event loop. It does not retry; the result store does, and keeps the result on disk
meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from service.core.settings import SettingsInvalid
from service.saving.storage.contract import SUFFIXES, Storage, StoredObject, encode_sidecar, object_name
from service.saving.storage.s3_credentials import shared_credentials

_DAY_S = 86_400
_DEFAULT_REGION = "us-east-1"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_BUCKET = re.compile(r"(?i:s3)://[^/?#@:\[\]]+(/[^?#]*)?")
_ENDPOINT = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Location of the bucket; its region is AWS_REGION, AWS_DEFAULT_REGION, or us-east-1.

    url: `s3://BUCKET/PREFIX`.
    endpoint: URL of a server other than AWS; if empty, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else AWS.
    timeout_s: time limit of a request in seconds; with `large`, of a pause within an answer.
    setting: name of the setting with the URL, for errors.
    large: whether objects may be so large that a transfer takes longer than `timeout_s`.
    """

    url: str
    endpoint: str = ""
    timeout_s: float = 30.0
    setting: str = "results_url"
    large: bool = False


def open_object_storage(location: ObjectLocation, environ: Mapping[str, str] = os.environ) -> ObjectStorage:
    """Open the storage of a URL without sending a request.

    Raises:
        SettingsInvalid: the URL is not `s3://BUCKET/PREFIX`, the endpoint is not `http(s)://HOST:PORT`, the client is
            not installed, or a credentials file is wrong.
    """
    check_bucket(location.url, location.setting)
    parts = urlsplit(location.url)
    endpoints = {"s3_endpoint": location.endpoint} | {name: environ.get(name, "") for name in _ENDPOINT_VARIABLES}
    setting, endpoint = next(((name, value) for name, value in endpoints.items() if value), ("", ""))
    check_endpoint(endpoint, setting)
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
    try:
        s3_store = importlib.import_module("obstore.store").S3Store
    except ImportError as error:
        raise SettingsInvalid(
            f"{location.setting} needs the S3 client; install this checkout with its extra `s3`"
        ) from error
    keys = shared_credentials(environ, lambda: datetime.now(timezone.utc))
    client = s3_store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        region=region,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": "5s",
            "timeout": f"{_DAY_S if location.large else location.timeout_s}s",
            "read_timeout": f"{location.timeout_s}s",
        },
        retry_config={"max_retries": 0},
        **({"endpoint": endpoint} if endpoint else {}),
        **({"credential_provider": keys} if keys else {}),
    )
    return ObjectStorage(client, importlib.import_module("obstore"))


def check_bucket(url: str, setting: str = "results_url") -> None:
    """Check the address of a bucket.

    Raises:
        SettingsInvalid: `url` is not `s3://BUCKET/PREFIX`.
    """
    if not _BUCKET.fullmatch(url):
        raise SettingsInvalid(
            f"{setting} {without_keys(url)!r} is not s3://BUCKET/PREFIX; keys belong in the environment"
        )


def check_endpoint(endpoint: str, setting: str = "s3_endpoint") -> None:
    """Check the address of S3-compatible storage; empty: AWS.

    Raises:
        SettingsInvalid: `endpoint` is not `http(s)://HOST:PORT`.
    """
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        raise SettingsInvalid(f"{setting}: {without_keys(endpoint)!r} is not http(s)://HOST:PORT")


def without_keys(url: str) -> str:
    """Return a URL for errors, with all text before the last `@` removed, as it may be a key."""
    return re.sub(r"(?s).*@", "…@", url)


class ObjectStorage(Storage):
    """Results in a bucket."""

    def __init__(self, client: Any, obstore: Any) -> None:
        self._client = client
        self._obstore = obstore

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        """See `Storage`."""
        result_id, media_type = sidecar["id"], sidecar["media_type"]
        self.put(object_name(result_id, SUFFIXES[media_type]), body, media_type)
        self.put(object_name(result_id, ".json"), encode_sidecar(sidecar), "application/json")

    def entries(self) -> Iterator[StoredObject]:
        """See `Storage`."""
        return self.entries_under(None)

    def entries_under(self, folder: str | None) -> Iterator[StoredObject]:
        """List all objects in a folder, with their full names; None: in all folders. Raises as `entries` does."""
        stream = iter(self._obstore.list(self._client, prefix=folder))
        while (page := _call_with_plain_errors(lambda: next(stream, None))) is not None:
            yield from (StoredObject(one["path"], one["size"], one["last_modified"].timestamp()) for one in page)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        try:
            _call_with_plain_errors(lambda: self._obstore.delete(self._client, name))
        except FileNotFoundError:
            return

    def load(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return bytes(_call_with_plain_errors(lambda: self._obstore.get(self._client, name).bytes()))
        except FileNotFoundError:
            return None

    def load_in_chunks(self, name: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield an object in chunks of at least that size (the last may be smaller), each as soon as it has arrived.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the storage is failing or not reachable.
        """
        found = _call_with_plain_errors(lambda: self._obstore.get(self._client, name))
        stream = iter(found.stream(min_chunk_size=chunk_bytes))
        while (chunk := _call_with_plain_errors(lambda: next(stream, None))) is not None:
            yield bytes(chunk)

    def put(self, name: str, data: bytes | Path, media_type: str) -> None:
        """Store one object atomically, replacing one of the same name; `data`: bytes, or a file, sent in parts.

        Raises:
            OSError: the storage is full, failing or not reachable.
        """
        _call_with_plain_errors(
            lambda: self._obstore.put(self._client, name, data, attributes={"Content-Type": media_type})
        )


def _call_with_plain_errors(call: Callable[[], Any]) -> Any:
    """Call the client, and reduce its errors to one line without the server's reply, which may contain keys.

    Raises:
        FileNotFoundError: there is no such object.
        OSError: any other error.
    """
    try:
        return call()
    except (FileNotFoundError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:  # errors of the client and of credentials; Rust's PanicException is not an Exception
        line = str(error).partition("\n")[0].partition(": <")[0]
        raise OSError(f"{type(error).__name__}: {line}") from None
