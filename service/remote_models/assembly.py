"""Opens the bucket of `models_url`, and follows it while the server runs."""

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
    """Return the address of the bucket, and the share of the hosts that must have a version before it is served.

    Raises:
        SettingsInvalid: it is no address, or there is more in its query than `share`, a number from 0 to 1.
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
    """Open the bucket of an address without a query, with the endpoint and the credentials of the results.

    Raises:
        SettingsInvalid: as `open_object_storage`.
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
    """Follow the bucket of `models_url` beside the block, if there is one.

    Args:
        settings: the server's configuration.
        metrics: shows for how long the bucket could not be read.
        agreement: that of the hosts that share a ledger; None: each version is served at once.
        clock: monotonic, in seconds.

    Raises:
        SettingsInvalid: as `parse_models_url` and `open_model_bucket`.
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
