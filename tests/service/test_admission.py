"""Who is let in: a bounded house, and a prediction that turns away what could not be answered in time."""

from __future__ import annotations

import pytest

from service.admission import Admission
from service.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown


def busy(inside: int, service_s: float, max_requests: int = 100) -> Admission:
    return Admission(max_requests, inside=inside, service_s=service_s)


def test_a_place_is_held_for_as_long_as_the_request_is_inside() -> None:
    admission = Admission(2)
    with admission.admit(60, asked_by_client=False):
        assert admission.inside == 1
    assert admission.inside == 0


def test_a_place_is_given_back_when_the_request_fails() -> None:
    admission = Admission(2)
    with pytest.raises(ValueError, match="bad"), admission.admit(60, asked_by_client=False):
        raise ValueError("bad")
    assert admission.inside == 0


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
    admission = Admission(10, draining=True)
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
