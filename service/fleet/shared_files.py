"""Files that every host reads, in the bucket of the results: orders of jobs, and responses to idempotency keys.

`.jobs/ID` is an order, `.replies/ab/NAME-OWNER-EXPIRY` a response; retention and lists ignore both. All methods block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec
import structlog

from engines.manifest import Task
from service.core.errors import NotReady, ServiceError
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.repeats.idempotency_table import Claim
from service.repeats.response_files import DELETED, StoredResponse, decode_response, encode_response
from service.saving.local_disk.own_folders import ORDERS, RESPONSES
from service.saving.storage.contract import is_result_id
from service.saving.storage.s3 import ObjectStorage

_log = structlog.get_logger(__name__)
_BYTES = "application/octet-stream"


class _StoredOrder(msgspec.Struct, frozen=True):
    """An order as one object of the bucket, in MessagePack, so that it is stored whole or not at all."""

    task: Task
    options: dict[str, object]
    files: dict[str, bytes]


_decode_order = msgspec.msgpack.Decoder(_StoredOrder).decode
"""Made with the class: two threads that are the first to decode a class crash the process (msgspec 0.22)."""


@dataclass(frozen=True, slots=True)
class SharedOrders:
    """Orders in the bucket, by the id of their job. See `OrderFiles`."""

    objects: ObjectStorage

    def keep(self, job_id: str, order: Order) -> None:
        """See `OrderFiles`."""
        options = order.options_to_store()
        data = msgspec.msgpack.encode(_StoredOrder(order.task, options, dict(order.files)))
        try:
            self.objects.put(_order_name(job_id), data, _BYTES)
        except OSError as error:
            raise _unavailable_error("a job's request cannot be stored", error) from error

    def find(self, job_id: str) -> Order:
        """See `OrderFiles`."""
        lost = "this job's request is missing from the bucket; send the request again"
        try:
            data = self.objects.load(_order_name(job_id))
        except OSError as error:
            raise _unavailable_error("a job's request cannot be read", error) from error
        try:
            stored = _decode_order(data or b"")
            return Order(stored.task, stored.files, OPTIONS[stored.task].model_validate(stored.options))
        except (ValueError, msgspec.MsgspecError) as error:
            raise ServiceError(lost, code="order_lost") from error

    def older_than(self, moment: float) -> list[str]:
        """See `OrderFiles`."""
        found = [one for one in self.objects.entries_under(ORDERS) if one.modified_at < moment]
        ids = [one.name.rpartition("/")[2] for one in found]
        return [job_id for job_id in ids if is_result_id(job_id)]

    def drop(self, job_id: str) -> None:
        """See `OrderFiles`."""
        try:
            self.objects.delete(_order_name(job_id))
        except OSError as error:
            _log.warning(
                "a finished job's request could not be deleted from the bucket; retrying", job=job_id, error=str(error)
            )


@dataclass(frozen=True, slots=True)
class SharedResponses:
    """Responses in the bucket, by their claim. See `ResponseFiles`.

    Owner and expiry of the claim are part of the name. So a process that lost its claim while it was suspended cannot
    overwrite another's answer, and a write that the bucket carries out late cannot overwrite that of the next claim.
    """

    objects: ObjectStorage
    by_claim: ClassVar[bool] = True

    def keep(self, claim: Claim, response: StoredResponse) -> None:
        """See `ResponseFiles`."""
        try:
            self.objects.put(_response_name(claim), encode_response(response), _BYTES)
        except OSError as error:
            raise _unavailable_error("the answer to an Idempotency-Key cannot be stored", error) from error

    def find(self, claim: Claim) -> StoredResponse | None:
        """See `ResponseFiles`."""
        try:
            data = self.objects.load(_response_name(claim))
        except OSError as error:
            raise _unavailable_error("the answer to this Idempotency-Key cannot be read", error) from error
        return None if data is None else decode_response(data)

    def replace_deleted(self, claim: Claim) -> None:
        """See `ResponseFiles`."""
        if self.find(claim) is not None:
            self.keep(claim, DELETED)

    def drop(self, claim: Claim) -> None:
        """See `ResponseFiles`."""
        self.objects.delete(_response_name(claim))


def _order_name(job_id: str) -> str:
    if not is_result_id(job_id):
        raise ValueError(f"{job_id!r} is not a job id")
    return f"{ORDERS}/{job_id}"


def _response_name(claim: Claim) -> str:
    return f"{RESPONSES}/{claim.name[:2]}/{claim.name}-{claim.owner}-{claim.expires_at!r}"


def _unavailable_error(what: str, error: OSError) -> NotReady:
    return NotReady(f"{what} now ({error.strerror or error}); try again later", code="storage_unavailable")
