"""Who is let in: a limit on requests in flight, and a prediction that turns away what could not be answered in time."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.admission.retry_book import LocalRetryBook, RetryBook
from service.admission.service_rate import ServiceRate
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow
from tests.fakes.clock import Clock

PATIENT = AdmissionRequest(60.0)


def paced(service_s: float) -> ServiceRate:
    service_rate = ServiceRate(1)
    if service_s:
        service_rate.learn([(1, service_s)], 1e-9)
    return service_rate


def admission_of(max_requests: int = 100, service_s: float = 0.0, clock: Clock | None = None, max_uploads: int = 1024):
    return Admission(max_requests, max_uploads, clock=clock or Clock(), service_rate=paced(service_s))


def enter(stack: ExitStack, admission: Admission, count: int, flow: Flow = ANYONE, allowed_s: float = 1e6) -> None:
    for _ in range(count):
        admission.count_in_flight(stack.enter_context(admission.admit(AdmissionRequest(allowed_s, flow=flow))))


def fail_inside(admission: Admission, body_is_read: bool) -> None:
    with admission.admit(PATIENT) as admitted:
        if body_is_read:
            admission.count_in_flight(admitted)
        raise ValueError("bad")


def refused(admission: Admission, ask: AdmissionRequest) -> ServiceError:
    with pytest.raises(ServiceError) as refusal, admission.admit(ask):
        pass
    return refusal.value


def is_let_in(admission: Admission, ask: AdmissionRequest) -> bool:
    try:
        with admission.admit(ask) as admitted:
            admission.count_in_flight(admitted)
    except ServiceError:
        return False
    return True


def test_bodies_share_the_memory_that_there_is_for_them() -> None:
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


def test_a_body_larger_than_all_that_there_is_memory_for_is_let_in_alone() -> None:
    admission = Admission(10, max_bodies_bytes=100, clock=Clock())
    with admission.admit(PATIENT) as large:
        admission.count_body_bytes(large, 90)
        admission.count_body_bytes(large, 90)
        with pytest.raises(Overloaded), admission.admit(PATIENT) as other:
            admission.count_body_bytes(other, 1)


def test_a_place_is_held_for_as_long_as_the_request_is_inside() -> None:
    admission = admission_of(2)
    with admission.admit(PATIENT) as admitted:
        assert (admission.uploading, admission.in_flight) == (1, 0)
        admission.count_in_flight(admitted)
        assert (admission.uploading, admission.in_flight) == (0, 1)
    assert (admission.uploading, admission.in_flight, admission.waiting) == (0, 0, {})


def test_a_place_is_given_back_when_the_request_fails() -> None:
    admission = admission_of(2)
    for body_is_read in (False, True):
        with pytest.raises(ValueError, match="bad"):
            fail_inside(admission, body_is_read)
    assert (admission.uploading, admission.in_flight, admission.waiting) == (0, 0, {})


def test_slow_uploads_take_no_place_and_lengthen_no_prediction() -> None:
    admission = admission_of(1, service_s=10.0, max_uploads=3)
    with ExitStack() as uploads:
        for _ in range(3):
            uploads.enter_context(admission.admit(AdmissionRequest(1.0, is_clients_deadline=True)))
        assert admission.predicted_wait_s() == 0
        assert "3 uploads" in str(refused(admission, PATIENT))
    with admission.admit(AdmissionRequest(1.0, is_clients_deadline=True)) as admitted:
        admission.count_in_flight(admitted)
        assert admission.predicted_wait_s() == 10


def test_a_house_that_filled_while_a_body_was_read_refuses_it() -> None:
    admission = admission_of(1)
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second:
        admission.count_in_flight(first)
        with pytest.raises(Overloaded):
            admission.count_in_flight(second)
    assert (admission.uploading, admission.in_flight) == (0, 0)


def test_whom_a_filled_house_refuses_after_the_body_has_an_appointment_as_it_is_told() -> None:
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
        assert isinstance(refused(admission, AdmissionRequest(5.0, is_clients_deadline=True)), DeadlineExceeded)


def test_a_server_that_begins_to_drain_refuses_bodies_that_are_being_read() -> None:
    admission = admission_of(10)
    with admission.admit(PATIENT) as admitted:
        admission.draining.set()
        with pytest.raises(ShuttingDown):
            admission.count_in_flight(admitted)


def test_a_full_house_refuses_and_says_when_there_will_be_room() -> None:
    admission = admission_of(10, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, PATIENT)
        assert isinstance(refusal, Overloaded)
        assert refusal.retry_after_s == 1
        assert admission.in_flight == 10


@pytest.mark.parametrize(
    ("is_clients_deadline", "error"),
    [pytest.param(True, DeadlineExceeded, id="the client's own: 504"), pytest.param(False, Overloaded, id="ours: 503")],
)
def test_a_queue_longer_than_the_deadline_refuses_at_arrival(
    is_clients_deadline: bool, error: type[ServiceError]
) -> None:
    admission = admission_of(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, AdmissionRequest(2.0, is_clients_deadline))
        assert isinstance(refusal, error)
        assert refusal.retry_after_s is not None
        assert 3 <= refusal.retry_after_s <= 5


def test_a_queue_shorter_than_the_deadline_lets_in() -> None:
    admission = admission_of(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        assert is_let_in(admission, AdmissionRequest(7.0, is_clients_deadline=True))


def test_an_empty_house_lets_in_whatever_it_learned() -> None:
    assert is_let_in(admission_of(10, 100.0), AdmissionRequest(0.1, is_clients_deadline=True))


def test_a_draining_server_refuses_with_another_code_than_a_full_one() -> None:
    admission = admission_of(10)
    admission.draining.set()
    assert isinstance(refused(admission, PATIENT), ShuttingDown)


def test_a_quiet_client_is_let_in_where_a_busy_one_is_not() -> None:
    admission = admission_of(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50, Flow("busy"))
        assert not is_let_in(admission, AdmissionRequest(2.0, flow=Flow("busy")))
        assert is_let_in(admission, AdmissionRequest(2.0, flow=Flow("quiet")))


def test_a_higher_priority_is_let_in_where_the_normal_one_is_not() -> None:
    admission = admission_of(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50)
        assert not is_let_in(admission, AdmissionRequest(2.0))
        assert is_let_in(admission, AdmissionRequest(2.0, flow=Flow("", 8)))


def test_a_house_full_of_one_client_has_a_few_places_for_others() -> None:
    admission = admission_of(8)
    with ExitStack() as stack:
        enter(stack, admission, 8, Flow("busy"))
        enter(stack, admission, 2, Flow("quiet"))
        assert not is_let_in(admission, AdmissionRequest(60.0, flow=Flow("busy")))
        assert not is_let_in(admission, AdmissionRequest(60.0, flow=Flow("quiet")))
        assert admission.in_flight == 10


def test_who_comes_back_when_told_to_is_let_in_before_newcomers() -> None:
    clock = Clock()
    admission = admission_of(40, 0.1, clock)
    with ExitStack() as stack:
        with ExitStack() as crowd:
            enter(crowd, admission, 40)
            refusals = []
            for name in range(5):
                refusals.append(refused(admission, AdmissionRequest(60.0, request_id=str(name))))
                clock.now += 0.06
        enter(stack, admission, 35)
        pause_s = refusals[4].retry_after_s
        assert pause_s is not None
        clock.now += pause_s - 0.06
        assert not is_let_in(admission, AdmissionRequest(60.0, request_id="new"))
        assert is_let_in(admission, AdmissionRequest(60.0, request_id="4"))


def test_what_is_kept_for_those_who_do_not_come_back_is_a_part_only() -> None:
    clock = Clock()
    admission = admission_of(40, 0.1, clock)
    with ExitStack() as stack:
        with ExitStack() as crowd:
            enter(crowd, admission, 40)
            for name in range(400):
                refused(admission, AdmissionRequest(60.0, request_id=str(name)))
                clock.now += 0.01
        clock.now += 1
        enter(stack, admission, 30)
        assert not is_let_in(admission, PATIENT)


def test_retry_after_is_never_less_than_a_second() -> None:
    admission = admission_of(10, 0.001)
    with ExitStack() as stack:
        enter(stack, admission, 1)
        assert admission.retry_after_s() == 1


@dataclass
class SharedLoad:
    """One front end's view of a server with several."""

    inside: list[int]
    index: int
    engines: int = 1
    retry_book: RetryBook = field(default_factory=LocalRetryBook)

    @property
    def in_flight_elsewhere(self) -> int:
        return sum(count for index, count in enumerate(self.inside) if index != self.index)

    def publish(self, in_flight: int) -> None:
        self.inside[self.index] = in_flight


def test_the_places_of_a_house_are_those_of_all_its_front_ends_together() -> None:
    inside = [0, 0]
    front_ends = [Admission(4, server_load=SharedLoad(inside, index)) for index in range(2)]
    with ExitStack() as stack:
        enter(stack, front_ends[0], 3)
        enter(stack, front_ends[1], 1)
        assert inside == [3, 1]
        for front_end in front_ends:
            assert isinstance(refused(front_end, PATIENT), Overloaded)
    assert inside == [0, 0]
    with front_ends[1].admit(PATIENT):
        pass


def test_a_queue_is_as_long_as_the_engines_need_for_the_requests_of_all_front_ends() -> None:
    inside = [0, 6]
    admission = Admission(100, service_rate=paced(0.1), clock=Clock(), server_load=SharedLoad(inside, 0))
    with ExitStack() as stack:
        enter(stack, admission, 2)
        alone = Admission(100, service_rate=paced(0.1), clock=Clock())
        enter(stack, alone, 2)
        assert admission.predicted_wait_s() == pytest.approx(4 * alone.predicted_wait_s())
        two_gpus = Admission(100, service_rate=paced(0.1), clock=Clock(), server_load=SharedLoad(inside, 0, engines=2))
        enter(stack, two_gpus, 2)
        assert two_gpus.predicted_wait_s() == pytest.approx(2 * alone.predicted_wait_s())


def test_large_bodies_leave_an_eighth_of_the_memory_to_small_ones() -> None:
    admission = Admission(10, max_bodies_bytes=80 << 20, clock=Clock())
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second, admission.admit(PATIENT) as small:
        admission.count_body_bytes(first, 60 << 20)
        with pytest.raises(Overloaded):
            admission.count_body_bytes(second, 11 << 20)
        admission.count_body_bytes(small, 8 << 20)
        assert admission.bodies_bytes == 68 << 20


def test_requests_of_large_pictures_take_no_places_and_nobody_waits_behind_them() -> None:
    clock, inside = Clock(), [0, 0]
    admission = Admission(4, clock=clock, service_rate=paced(5.0), server_load=SharedLoad(inside, 0))
    with ExitStack() as stack:
        for number in range(4):
            admitted = stack.enter_context(admission.admit(AdmissionRequest(1e6, flow=Flow(str(number)))))
            admission.count_in_flight(admitted)
            admission.mark_large(admitted)
            admission.mark_large(admitted)
        assert (admission.in_flight, admission.large_in_flight, admission.waiting, inside) == (4, 4, {}, [0, 0])
        assert admission.predicted_wait_s(Flow("quiet")) == 0
        assert is_let_in(admission, AdmissionRequest(0.1, flow=Flow("quiet")))
    assert (admission.in_flight, admission.large_in_flight, admission.waiting, inside) == (0, 0, {}, [0, 0])


def test_how_fast_large_pictures_are_answered_says_nothing_about_others() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock, service_rate=ServiceRate(1))
    with ExitStack() as stack:
        enter(stack, admission, 5)
        for _ in range(20):
            with admission.admit(PATIENT) as admitted:
                admission.count_in_flight(admitted)
                admission.mark_large(admitted)
                clock.now += 10.0
        assert admission.service_rate.request_s(clock.now) == 0


def test_beyond_a_whole_house_of_large_pictures_they_take_places_like_others() -> None:
    admission = admission_of(2)
    with ExitStack() as stack:
        for _ in range(3):
            admitted = stack.enter_context(admission.admit(PATIENT))
            admission.count_in_flight(admitted)
            admission.mark_large(admitted)
        assert (admission.in_flight, admission.large_in_flight, admission.ordinary) == (3, 2, 1)
    assert (admission.in_flight, admission.large_in_flight, admission.waiting) == (0, 0, {})


def test_a_request_that_left_is_not_set_apart_any_more() -> None:
    admission = admission_of(2)
    with admission.admit(PATIENT) as admitted:
        admission.count_in_flight(admitted)
    admission.mark_large(admitted)
    assert (admission.in_flight, admission.large_in_flight, admission.waiting) == (0, 0, {})
