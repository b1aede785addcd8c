"""Opens the bucket of the setting `models_url`, and follows it while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.background import run_in_background
from service.remote_models.agreement import Agreement, NoAgreement
from service.remote_models.bucket import ModelBucket
from service.remote_models.follower import Follower
from service.remote_models.local_folder import LocalFolder
from service.saving.storage.s3 import ObjectLocation, open_object_storage, without_keys
from service.telemetry.metrics import Metrics


def parse_models_url(url: str) -> tuple[str, float]:
    """Return the address of the bucket, and the share (0 to 1) of the hosts that must have a version to serve it.

    Raises:
        SettingsInvalid: `url` is not an address, or its query has anything but `share`, a number from 0 to 1.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True) or [("share", "1")]
        ((name, value),) = query
        share = float(value)
    except ValueError:
        name, share = "", -1.0
    if name != "share" or not 0.0 <= share <= 1.0:
        raise SettingsInvalid(
            f"models_url {without_keys(url)!r} is not s3://BUCKET/PREFIX or s3://BUCKET/PREFIX?share=NUMBER, 0 to 1"
        )
    return parts._replace(query="").geturl(), share


def open_model_bucket(url: str, settings: Settings) -> ModelBucket:
    """Open the bucket at a URL without a query, with the same endpoint and credentials as the results' bucket.

    Raises:
        SettingsInvalid: as raised by `open_object_storage`.
    """
    return ModelBucket(
        open_object_storage(
            ObjectLocation(
                url, settings.s3_endpoint, timeout_s=settings.upload_timeout_s, setting="models_url", large=True
            )
        )
    )


@asynccontextmanager
async def following_models(
    settings: Settings, metrics: Metrics, agreement: Agreement | None, clock: Callable[[], float]
) -> AsyncIterator[None]:
    """Follow the bucket of `models_url`, if it is set, while the block runs.

    Args:
        settings: the server's configuration.
        metrics: gets a gauge of how long the bucket has not been readable.
        agreement: the agreement of the hosts that share a ledger; None: each version is served at once.
        clock: monotonic clock, in seconds.

    Raises:
        SettingsInvalid: as raised by `parse_models_url` and `open_model_bucket`.
    """
    if not settings.models_url:
        yield
        return
    url, _ = parse_models_url(settings.models_url)
    folder = LocalFolder(settings.models_dir)
    bucket = open_model_bucket(url, settings)
    follower = Follower(bucket, folder, agreement or NoAgreement(), clock)
    metrics.watch(metrics.make_models_failing(), lambda: follower.failing_s)
    async with run_in_background(_follow(follower, settings.model_poll_s)):
        try:
            yield
        finally:
            bucket.close()


async def _follow(follower: Follower, every_s: float) -> None:
    while True:
        await asyncio.to_thread(follower.follow)
        await asyncio.sleep(every_s)
