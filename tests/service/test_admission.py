"""Who is let in: a bounded house, and a prediction that turns away what could not be answered in time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from service.admission import Admission
from service.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown


def busy(inside: int, service_s: float, max_requests: int = 100) -> Admission:
    return Admission(max_requests, inside=inside, service_s=service_s)


def fail_inside(admission: Admission, body_is_read: bool) -> None:
    with admission.admit(60, asked_by_client=False) as place:
        if body_is_read:
            admission.arrive(place)
        raise ValueError("bad")


def test_a_place_is_held_for_as_long_as_the_request_is_inside() -> None:
    admission = Admission(2)
    with admission.admit(60, asked_by_client=False) as place:
        assert (admission.uploading, admission.inside) == (1, 0)
        admission.arrive(place)
        assert (admission.uploading, admission.inside) == (0, 1)
    assert (admission.uploading, admission.inside) == (0, 0)


def test_a_place_is_given_back_when_the_request_fails() -> None:
    admission = Admission(2)
    for body_is_read in (False, True):
        with pytest.raises(ValueError, match="bad"):
            fail_inside(admission, body_is_read)
    assert (admission.uploading, admission.inside) == (0, 0)


def test_slow_uploads_take_no_place_and_lengthen_no_prediction() -> None:
    admission = Admission(1, max_uploads=3, service_s=10.0)
    with ExitStack() as uploads:
        for _ in range(3):
            uploads.enter_context(admission.admit(1.0, asked_by_client=True))
        assert admission.predicted_wait_s == 0
        with pytest.raises(Overloaded, match="3 uploads"), admission.admit(60, asked_by_client=False):
            pass
    with admission.admit(1.0, asked_by_client=True) as place:
        admission.arrive(place)
        assert admission.predicted_wait_s == 10


def test_a_house_that_filled_while_a_body_was_read_refuses_it() -> None:
    admission = Admission(1)
    with admission.admit(60, asked_by_client=False) as first, admission.admit(60, asked_by_client=False) as second:
        admission.arrive(first)
        with pytest.raises(Overloaded):
            admission.arrive(second)
    assert (admission.uploading, admission.inside) == (0, 0)


def test_the_wait_for_the_decoders_counts_too() -> None:
    admission = Admission(10, codec_wait_s=lambda: 7.0)
    with pytest.raises(DeadlineExceeded), admission.admit(5.0, asked_by_client=True):
        pass


def test_a_server_that_begins_to_drain_refuses_bodies_that_are_being_read() -> None:
    admission = Admission(10)
    with admission.admit(60, asked_by_client=False) as place:
        admission.draining.set()
        with pytest.raises(ShuttingDown):
            admission.arrive(place)


def test_a_full_house_refuses_and_says_when_its_queue_will_be_served() -> None:
    admission = busy(inside=10, service_s=0.5, max_requests=10)
    with pytest.raises(Overloaded) as refusal, admission.admit(60, asked_by_client=False):
        pass
    assert refusal.value.retry_after_s == 5
    assert admission.inside == 10


@pytest.mark.parametrize(
    ("asked_by_client", "error"),
    [pytest.param(True, DeadlineExceeded, id="the client's own: 504"), pytest.param(False, Overloaded, id="ours: 503")],
)
def test_a_queue_longer_than_the_deadline_refuses_at_arrival(asked_by_client: bool, error: type[ServiceError]) -> None:
    with pytest.raises(error) as refusal, busy(10, 0.5).admit(2.0, asked_by_client=asked_by_client):
        pass
    assert refusal.value.retry_after_s == 3


def test_a_queue_shorter_than_the_deadline_lets_in() -> None:
    with busy(10, 0.5).admit(5.0, asked_by_client=True):
        pass


def test_a_draining_server_refuses_with_another_code_than_a_full_one() -> None:
    admission = Admission(10)
    admission.draining.set()
    with pytest.raises(ShuttingDown), admission.admit(60, asked_by_client=False):
        pass


def test_the_service_time_is_learned_from_the_first_request_and_then_smoothed() -> None:
    admission = Admission(10)
    admission.observe(0.2)
    assert admission.service_s == pytest.approx(0.2)
    admission.observe(1.2)
    assert admission.service_s == pytest.approx(0.3)


def test_retry_after_is_never_less_than_a_second() -> None:
    assert busy(1, 0.001).retry_after_s() == 1
