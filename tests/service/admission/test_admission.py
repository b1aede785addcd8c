"""Admission by the number of requests in flight and by a predicted wait that must fit the deadline."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown
from tests.fakes.clock import Clock
from tests.service.admission.entries import PATIENT, admission_of, enter, is_admitted, refused


def fail_inside(admission: Admission, body_is_read: bool) -> None:
    with admission.admit(PATIENT) as admitted:
        if body_is_read:
            admission.count_in_flight(admitted)
        raise ValueError("bad")


def test_bodies_share_the_memory_for_bodies() -> None:
    admission = Admission(10, max_bodies_bytes=100, clock=Clock())
    with admission.admit(PATIENT) as first:
        admission.count_body_bytes(first, 60)
        admission.count_in_flight(first)
        with admission.admit(PATIENT) as second:
            admission.count_body_bytes(second, 40)
            with pytest.raises(Overloaded) as refusal:
                admission.count_body_bytes(second, 1)
            assert refusal.value.retry_after_s
        assert admission.bodies_bytes == 60, "the refused one's are free again"
    assert admission.bodies_bytes == 0


def test_a_body_above_the_memory_limit_is_admitted_if_it_is_the_only_one() -> None:
    admission = Admission(10, max_bodies_bytes=100, clock=Clock())
    with admission.admit(PATIENT) as large:
        admission.count_body_bytes(large, 90)
        admission.count_body_bytes(large, 90)
        with pytest.raises(Overloaded), admission.admit(PATIENT) as other:
            admission.count_body_bytes(other, 1)


def test_a_request_is_in_flight_until_it_ends() -> None:
    admission = admission_of(2)
    with admission.admit(PATIENT) as admitted:
        assert (admission.uploading, admission.in_flight) == (1, 0)
        admission.count_in_flight(admitted)
        assert (admission.uploading, admission.in_flight) == (0, 1)
    assert (admission.uploading, admission.in_flight, admission.waiting) == (0, 0, {})


def test_a_failed_request_is_not_in_flight_any_more() -> None:
    admission = admission_of(2)
    for body_is_read in (False, True):
        with pytest.raises(ValueError, match="bad"):
            fail_inside(admission, body_is_read)
    assert (admission.uploading, admission.in_flight, admission.waiting) == (0, 0, {})


def test_slow_uploads_neither_count_as_in_flight_nor_lengthen_predictions() -> None:
    admission = admission_of(1, service_s=10.0, max_uploads=3)
    with ExitStack() as uploads:
        for _ in range(3):
            uploads.enter_context(admission.admit(AdmissionRequest(1.0, deadline_from_client=True)))
        assert admission.predicted_wait_s() == 0
        assert "3 uploads" in str(refused(admission, PATIENT))
    with admission.admit(AdmissionRequest(1.0, deadline_from_client=True)) as admitted:
        admission.count_in_flight(admitted)
        assert admission.predicted_wait_s() == 10


def test_a_server_that_became_full_while_a_body_was_read_refuses_it() -> None:
    admission = admission_of(1)
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second:
        admission.count_in_flight(first)
        with pytest.raises(Overloaded):
            admission.count_in_flight(second)
    assert (admission.uploading, admission.in_flight) == (0, 0)


def test_a_client_refused_after_its_body_has_a_reservation_at_its_retry_after() -> None:
    clock, late = Clock(), AdmissionRequest(60.0, request_id="late")
    admission = admission_of(1, 0.1, clock)
    with admission.admit(PATIENT) as first, admission.admit(late) as second:
        admission.count_in_flight(first)
        with pytest.raises(Overloaded, match="X-Request-ID") as refusal:
            admission.count_in_flight(second)
    clock.now += refusal.value.retry_after_s or 0.0
    assert admission.reservations.redeem(late.retry_key, clock.now)


def test_the_wait_for_the_decoders_counts_too() -> None:
    admission = Admission(10, codec_wait_s=lambda: 7.0, clock=Clock())
    with ExitStack() as stack:
        enter(stack, admission, 1)
        assert isinstance(refused(admission, AdmissionRequest(5.0, deadline_from_client=True)), DeadlineExceeded)


def test_a_server_that_begins_to_drain_refuses_bodies_that_are_being_read() -> None:
    admission = admission_of(10)
    with admission.admit(PATIENT) as admitted:
        admission.draining.set()
        with pytest.raises(ShuttingDown):
            admission.count_in_flight(admitted)


def test_a_full_server_refuses_with_a_retry_after() -> None:
    admission = admission_of(10, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, PATIENT)
        assert isinstance(refusal, Overloaded)
        assert refusal.retry_after_s == 1
        assert admission.in_flight == 10


@pytest.mark.parametrize(
    ("deadline_from_client", "error"),
    [pytest.param(True, DeadlineExceeded, id="the client's own: 504"), pytest.param(False, Overloaded, id="ours: 503")],
)
def test_a_request_that_would_miss_its_deadline_is_refused_at_arrival(
    deadline_from_client: bool, error: type[ServiceError]
) -> None:
    admission = admission_of(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, AdmissionRequest(2.0, deadline_from_client))
        assert isinstance(refusal, error)
        assert refusal.retry_after_s is not None
        assert 3 <= refusal.retry_after_s <= 5


def test_a_request_that_would_meet_its_deadline_is_admitted() -> None:
    admission = admission_of(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        assert is_admitted(admission, AdmissionRequest(7.0, deadline_from_client=True))


def test_an_idle_server_admits_whatever_it_has_measured() -> None:
    assert is_admitted(admission_of(10, 100.0), AdmissionRequest(0.1, deadline_from_client=True))


def test_a_draining_server_refuses_with_another_code_than_a_full_one() -> None:
    admission = admission_of(10)
    admission.draining.set()
    assert isinstance(refused(admission, PATIENT), ShuttingDown)


def test_retry_after_is_never_less_than_a_second() -> None:
    admission = admission_of(10, 0.001)
    with ExitStack() as stack:
        enter(stack, admission, 1)
        assert admission.retry_after_s() == 1
