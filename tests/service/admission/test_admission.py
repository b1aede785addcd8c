"""Who is let in: a bounded house, and a prediction that turns away what could not be answered in time."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from service.admission.admission import Admission, Ask
from service.admission.retry_book import Book, OwnBook
from service.admission.service_rate import Pace
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow
from tests.fakes.clock import Clock

PATIENT = Ask(60.0)


def paced(service_s: float) -> Pace:
    pace = Pace(1)
    if service_s:
        pace.learn([(1, service_s)], 1e-9)
    return pace


def house(max_requests: int = 100, service_s: float = 0.0, clock: Clock | None = None, max_uploads: int = 1024):
    return Admission(max_requests, max_uploads, clock=clock or Clock(), pace=paced(service_s))


def enter(stack: ExitStack, admission: Admission, count: int, flow: Flow = ANYONE, allowed_s: float = 1e6) -> None:
    for _ in range(count):
        admission.arrive(stack.enter_context(admission.admit(Ask(allowed_s, flow=flow))))


def fail_inside(admission: Admission, body_is_read: bool) -> None:
    with admission.admit(PATIENT) as place:
        if body_is_read:
            admission.arrive(place)
        raise ValueError("bad")


def refused(admission: Admission, ask: Ask) -> ServiceError:
    with pytest.raises(ServiceError) as refusal, admission.admit(ask):
        pass
    return refusal.value


def is_let_in(admission: Admission, ask: Ask) -> bool:
    try:
        with admission.admit(ask) as place:
            admission.arrive(place)
    except ServiceError:
        return False
    return True


def test_bodies_share_the_memory_that_there_is_for_them() -> None:
    admission = Admission(10, max_bodies_bytes=100, clock=Clock())
    with admission.admit(PATIENT) as first:
        admission.hold(first, 60)
        admission.arrive(first)
        with admission.admit(PATIENT) as second:
            admission.hold(second, 40)
            with pytest.raises(Overloaded) as refusal:
                admission.hold(second, 1)
            assert refusal.value.retry_after_s
        assert admission.bodies_bytes == 60, "the refused one's are free again"
    assert admission.bodies_bytes == 0


def test_a_body_larger_than_all_that_there_is_memory_for_is_let_in_alone() -> None:
    admission = Admission(10, max_bodies_bytes=100, clock=Clock())
    with admission.admit(PATIENT) as large:
        admission.hold(large, 90)
        admission.hold(large, 90)
        with pytest.raises(Overloaded), admission.admit(PATIENT) as other:
            admission.hold(other, 1)


def test_a_place_is_held_for_as_long_as_the_request_is_inside() -> None:
    admission = house(2)
    with admission.admit(PATIENT) as place:
        assert (admission.uploading, admission.inside) == (1, 0)
        admission.arrive(place)
        assert (admission.uploading, admission.inside) == (0, 1)
    assert (admission.uploading, admission.inside, admission.waiting) == (0, 0, {})


def test_a_place_is_given_back_when_the_request_fails() -> None:
    admission = house(2)
    for body_is_read in (False, True):
        with pytest.raises(ValueError, match="bad"):
            fail_inside(admission, body_is_read)
    assert (admission.uploading, admission.inside, admission.waiting) == (0, 0, {})


def test_slow_uploads_take_no_place_and_lengthen_no_prediction() -> None:
    admission = house(1, service_s=10.0, max_uploads=3)
    with ExitStack() as uploads:
        for _ in range(3):
            uploads.enter_context(admission.admit(Ask(1.0, asked_by_client=True)))
        assert admission.predicted_wait_s() == 0
        assert "3 uploads" in str(refused(admission, PATIENT))
    with admission.admit(Ask(1.0, asked_by_client=True)) as place:
        admission.arrive(place)
        assert admission.predicted_wait_s() == 10


def test_a_house_that_filled_while_a_body_was_read_refuses_it() -> None:
    admission = house(1)
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second:
        admission.arrive(first)
        with pytest.raises(Overloaded):
            admission.arrive(second)
    assert (admission.uploading, admission.inside) == (0, 0)


def test_whom_a_filled_house_refuses_after_the_body_has_an_appointment_as_it_is_told() -> None:
    clock, late = Clock(), Ask(60.0, request_id="late")
    admission = house(1, 0.1, clock)
    with admission.admit(PATIENT) as first, admission.admit(late) as second:
        admission.arrive(first)
        with pytest.raises(Overloaded, match="X-Request-ID") as refusal:
            admission.arrive(second)
    clock.now += refusal.value.retry_after_s or 0.0
    assert admission.appointments.redeem(late.who, clock.now)


def test_the_wait_for_the_decoders_counts_too() -> None:
    admission = Admission(10, codec_wait_s=lambda: 7.0, clock=Clock())
    with ExitStack() as stack:
        enter(stack, admission, 1)
        assert isinstance(refused(admission, Ask(5.0, asked_by_client=True)), DeadlineExceeded)


def test_a_server_that_begins_to_drain_refuses_bodies_that_are_being_read() -> None:
    admission = house(10)
    with admission.admit(PATIENT) as place:
        admission.draining.set()
        with pytest.raises(ShuttingDown):
            admission.arrive(place)


def test_a_full_house_refuses_and_says_when_there_will_be_room() -> None:
    admission = house(10, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, PATIENT)
        assert isinstance(refusal, Overloaded)
        assert refusal.retry_after_s == 1
        assert admission.inside == 10


@pytest.mark.parametrize(
    ("asked_by_client", "error"),
    [pytest.param(True, DeadlineExceeded, id="the client's own: 504"), pytest.param(False, Overloaded, id="ours: 503")],
)
def test_a_queue_longer_than_the_deadline_refuses_at_arrival(asked_by_client: bool, error: type[ServiceError]) -> None:
    admission = house(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        refusal = refused(admission, Ask(2.0, asked_by_client))
        assert isinstance(refusal, error)
        assert refusal.retry_after_s is not None
        assert 3 <= refusal.retry_after_s <= 5


def test_a_queue_shorter_than_the_deadline_lets_in() -> None:
    admission = house(100, 0.5)
    with ExitStack() as stack:
        enter(stack, admission, 10)
        assert is_let_in(admission, Ask(7.0, asked_by_client=True))


def test_an_empty_house_lets_in_whatever_it_learned() -> None:
    assert is_let_in(house(10, 100.0), Ask(0.1, asked_by_client=True))


def test_a_draining_server_refuses_with_another_code_than_a_full_one() -> None:
    admission = house(10)
    admission.draining.set()
    assert isinstance(refused(admission, PATIENT), ShuttingDown)


def test_a_quiet_client_is_let_in_where_a_busy_one_is_not() -> None:
    admission = house(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50, Flow("busy"))
        assert not is_let_in(admission, Ask(2.0, flow=Flow("busy")))
        assert is_let_in(admission, Ask(2.0, flow=Flow("quiet")))


def test_a_higher_priority_is_let_in_where_the_normal_one_is_not() -> None:
    admission = house(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50)
        assert not is_let_in(admission, Ask(2.0))
        assert is_let_in(admission, Ask(2.0, flow=Flow("", 8)))


def test_a_house_full_of_one_client_has_a_few_places_for_others() -> None:
    admission = house(8)
    with ExitStack() as stack:
        enter(stack, admission, 8, Flow("busy"))
        enter(stack, admission, 2, Flow("quiet"))
        assert not is_let_in(admission, Ask(60.0, flow=Flow("busy")))
        assert not is_let_in(admission, Ask(60.0, flow=Flow("quiet")))
        assert admission.inside == 10


def test_who_comes_back_when_told_to_is_let_in_before_newcomers() -> None:
    clock = Clock()
    admission = house(40, 0.1, clock)
    with ExitStack() as stack:
        with ExitStack() as crowd:
            enter(crowd, admission, 40)
            refusals = []
            for name in range(5):
                refusals.append(refused(admission, Ask(60.0, request_id=str(name))))
                clock.now += 0.06
        enter(stack, admission, 35)
        pause_s = refusals[4].retry_after_s
        assert pause_s is not None
        clock.now += pause_s - 0.06
        assert not is_let_in(admission, Ask(60.0, request_id="new"))
        assert is_let_in(admission, Ask(60.0, request_id="4"))


def test_what_is_kept_for_those_who_do_not_come_back_is_a_part_only() -> None:
    clock = Clock()
    admission = house(40, 0.1, clock)
    with ExitStack() as stack:
        with ExitStack() as crowd:
            enter(crowd, admission, 40)
            for name in range(400):
                refused(admission, Ask(60.0, request_id=str(name)))
                clock.now += 0.01
        clock.now += 1
        enter(stack, admission, 30)
        assert not is_let_in(admission, PATIENT)


def test_retry_after_is_never_less_than_a_second() -> None:
    admission = house(10, 0.001)
    with ExitStack() as stack:
        enter(stack, admission, 1)
        assert admission.retry_after_s() == 1


@dataclass
class SharedHouse:
    """One front end's view of a house that others share."""

    inside: list[int]
    index: int
    engines: int = 1
    book: Book = field(default_factory=OwnBook)

    @property
    def others(self) -> int:
        return sum(count for index, count in enumerate(self.inside) if index != self.index)

    def tell(self, inside: int) -> None:
        self.inside[self.index] = inside


def test_the_places_of_a_house_are_those_of_all_its_front_ends_together() -> None:
    inside = [0, 0]
    front_ends = [Admission(4, house=SharedHouse(inside, index)) for index in range(2)]
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
    admission = Admission(100, pace=paced(0.1), clock=Clock(), house=SharedHouse(inside, 0))
    with ExitStack() as stack:
        enter(stack, admission, 2)
        alone = Admission(100, pace=paced(0.1), clock=Clock())
        enter(stack, alone, 2)
        assert admission.predicted_wait_s() == pytest.approx(4 * alone.predicted_wait_s())
        two_gpus = Admission(100, pace=paced(0.1), clock=Clock(), house=SharedHouse(inside, 0, engines=2))
        enter(stack, two_gpus, 2)
        assert two_gpus.predicted_wait_s() == pytest.approx(2 * alone.predicted_wait_s())


def test_large_bodies_leave_an_eighth_of_the_memory_to_small_ones() -> None:
    admission = Admission(10, max_bodies_bytes=80 << 20, clock=Clock())
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second, admission.admit(PATIENT) as small:
        admission.hold(first, 60 << 20)
        with pytest.raises(Overloaded):
            admission.hold(second, 11 << 20)
        admission.hold(small, 8 << 20)
        assert admission.bodies_bytes == 68 << 20


def test_requests_of_large_pictures_take_no_places_and_nobody_waits_behind_them() -> None:
    clock, inside = Clock(), [0, 0]
    admission = Admission(4, clock=clock, pace=paced(5.0), house=SharedHouse(inside, 0))
    with ExitStack() as stack:
        for number in range(4):
            place = stack.enter_context(admission.admit(Ask(1e6, flow=Flow(str(number)))))
            admission.arrive(place)
            admission.set_apart(place)
            admission.set_apart(place)
        assert (admission.inside, admission.apart, admission.waiting, inside) == (4, 4, {}, [0, 0])
        assert admission.predicted_wait_s(Flow("quiet")) == 0
        assert is_let_in(admission, Ask(0.1, flow=Flow("quiet")))
    assert (admission.inside, admission.apart, admission.waiting, inside) == (0, 0, {}, [0, 0])


def test_how_fast_large_pictures_are_answered_says_nothing_about_others() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock, pace=Pace(1))
    with ExitStack() as stack:
        enter(stack, admission, 5)
        for _ in range(20):
            with admission.admit(PATIENT) as place:
                admission.arrive(place)
                admission.set_apart(place)
                clock.now += 10.0
        assert admission.pace.request_s(clock.now) == 0


def test_beyond_a_whole_house_of_large_pictures_they_take_places_like_others() -> None:
    admission = house(2)
    with ExitStack() as stack:
        for _ in range(3):
            place = stack.enter_context(admission.admit(PATIENT))
            admission.arrive(place)
            admission.set_apart(place)
        assert (admission.inside, admission.apart, admission.ordinary) == (3, 2, 1)
    assert (admission.inside, admission.apart, admission.waiting) == (0, 0, {})


def test_a_request_that_left_is_not_set_apart_any_more() -> None:
    admission = house(2)
    with admission.admit(PATIENT) as place:
        admission.arrive(place)
    admission.set_apart(place)
    assert (admission.inside, admission.apart, admission.waiting) == (0, 0, {})
