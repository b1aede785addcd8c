"""What a job was sent, on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.errors import NotReady, ServiceError
from service.jobs.request_files import KeptOrders
from tests.fakes.descriptors import no_descriptors_left
from tests.service.jobs.processes import ORDER

JOB = "1" * 32


def test_a_request_that_cannot_be_read_now_is_not_lost(tmp_path: Path) -> None:
    """The job waits for it until its deadline: it was accepted, and the files are there."""
    kept = KeptOrders(tmp_path)
    kept.keep(JOB, ORDER)
    with no_descriptors_left(), pytest.raises(NotReady, match="Too many open files") as refused:
        kept.find(JOB)
    assert refused.value.code == "storage_unavailable"
    assert kept.find(JOB) == ORDER


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", None])
def test_a_request_that_is_damaged_or_gone_is_lost(tmp_path: Path, content: bytes | None) -> None:
    kept = KeptOrders(tmp_path)
    kept.keep(JOB, ORDER)
    path = tmp_path / ".jobs" / JOB / "order.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ServiceError, match="send it again") as lost:
        kept.find(JOB)
    assert lost.value.code == "order_lost"
