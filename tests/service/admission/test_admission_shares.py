"""How clients, front ends and large pictures share the server's capacity."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.admission.request_order import requests_ahead
from service.admission.reservation_store import LocalReservationStore, ReservationStore
from service.admission.service_rate import ServiceRate
from service.core.errors import DeadlineExceeded, Overloaded
from service.core.flow import Flow
from tests.fakes.clock import Clock
from tests.service.admission.entries import PATIENT, admission_of, enter, is_admitted, paced, refused


def test_a_quiet_client_is_admitted_when_a_busy_one_is_not() -> None:
    admission = admission_of(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50, Flow("busy"))
        assert not is_admitted(admission, AdmissionRequest(2.0, flow=Flow("busy")))
        assert is_admitted(admission, AdmissionRequest(2.0, flow=Flow("quiet")))


def test_a_higher_priority_is_admitted_when_the_normal_one_is_not() -> None:
    admission = admission_of(100, 0.1)
    with ExitStack() as stack:
        enter(stack, admission, 50)
        assert not is_admitted(admission, AdmissionRequest(2.0))
        assert is_admitted(admission, AdmissionRequest(2.0, flow=Flow("", 8)))


def test_a_server_full_of_one_clients_requests_admits_a_few_of_others() -> None:
    admission = admission_of(8)
    with ExitStack() as stack:
        enter(stack, admission, 8, Flow("busy"))
        enter(stack, admission, 2, Flow("quiet"))
        assert not is_admitted(admission, AdmissionRequest(60.0, flow=Flow("busy")))
        assert not is_admitted(admission, AdmissionRequest(60.0, flow=Flow("quiet")))
        assert admission.in_flight == 10


def test_a_client_that_retries_on_time_is_admitted_before_new_ones() -> None:
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
        retry_after_s = refusals[4].retry_after_s
        assert retry_after_s is not None
        clock.now += retry_after_s - 0.06
        assert not is_admitted(admission, AdmissionRequest(60.0, request_id="new"))
        assert is_admitted(admission, AdmissionRequest(60.0, request_id="4"))


def test_only_part_of_the_limit_is_reserved_for_clients_that_do_not_retry() -> None:
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
        assert not is_admitted(admission, PATIENT)


@dataclass
class SharedLoad:
    """One front end's view of the load that several front ends share."""

    counts: list[int]
    index: int
    engines: int = 1
    sample_s: float = 0.0
    spare_cores: int = 0
    large: int = 0
    """Number of large requests in flight, as published last."""
    queued: Mapping[Flow, int] = field(default_factory=dict)
    """Number of samples at the engines, by flow."""
    reservation_store: ReservationStore = field(default_factory=LocalReservationStore)

    @property
    def in_flight_elsewhere(self) -> int:
        return sum(count for index, count in enumerate(self.counts) if index != self.index)

    @property
    def front_ends(self) -> int:
        return len(self.counts)

    def samples_ahead(self, flow: Flow) -> float:
        return requests_ahead(flow, self.queued) / self.engines

    def publish(self, in_flight: int, large: int) -> None:
        self.counts[self.index], self.large = in_flight, large


def test_all_front_ends_of_a_server_share_its_limit() -> None:
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


def test_the_predicted_wait_includes_the_requests_of_all_front_ends() -> None:
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


def busy_elsewhere(**changes: Any) -> Admission:
    """Return the admission of an idle front end; the other one has 40 requests of one client, of 0.1 s each."""
    load = SharedLoad([0, 40], 0, sample_s=0.1, queued={Flow("busy"): 40}, **changes)
    return Admission(100, service_rate=paced(0.0), clock=Clock(), server_load=load)


def test_an_idle_front_end_knows_the_queue_of_the_others() -> None:
    admission = busy_elsewhere()
    assert admission.predicted_wait_s(Flow("busy")) == pytest.approx(4.0)
    late = refused(admission, AdmissionRequest(1.0, deadline_from_client=True, flow=Flow("busy")))
    assert isinstance(late, DeadlineExceeded)
    assert late.retry_after_s == 4
    assert isinstance(refused(admission, AdmissionRequest(4.5, flow=Flow("busy"))), Overloaded)
    assert is_admitted(admission, AdmissionRequest(5.1, flow=Flow("busy")))
    assert admission.retry_after_s() == 4


def test_a_quiet_client_does_not_wait_behind_a_busy_ones_queue_on_another_front_end() -> None:
    admission = busy_elsewhere()
    assert admission.predicted_wait_s(Flow("quiet")) == pytest.approx(0.1)
    assert is_admitted(admission, AdmissionRequest(0.5, deadline_from_client=True, flow=Flow("quiet")))


def test_two_engines_serve_the_queue_of_other_front_ends_in_half_the_time() -> None:
    admission = busy_elsewhere(engines=2)
    assert admission.predicted_wait_s(Flow("busy")) == pytest.approx(2.0)
    assert admission.retry_after_s() == 2


def test_clients_refused_because_of_other_front_ends_retry_one_after_the_other() -> None:
    admission = busy_elsewhere()
    asked = [AdmissionRequest(1.0, flow=Flow("busy"), request_id=str(number)) for number in range(20)]
    pauses = [refused(admission, one).retry_after_s or 0 for one in asked]
    assert pauses[0] == 4
    assert pauses == sorted(pauses)
    assert 20 < pauses[-1] < 30, "twenty of 0.2 s each, as the other front end has as many, in one phase of five"


def test_old_slow_measurements_refuse_no_request_while_the_engines_are_fast() -> None:
    admission = busy_elsewhere()
    admission.service_rate.add_measurement([(1, 100.0)], 100.0)
    assert is_admitted(admission, AdmissionRequest(5.1, flow=Flow("busy")))


def test_large_bodies_leave_an_eighth_of_the_memory_to_small_ones() -> None:
    admission = Admission(10, max_bodies_bytes=80 << 20, clock=Clock())
    with admission.admit(PATIENT) as first, admission.admit(PATIENT) as second, admission.admit(PATIENT) as small:
        admission.count_body_bytes(first, 60 << 20)
        with pytest.raises(Overloaded):
            admission.count_body_bytes(second, 11 << 20)
        admission.count_body_bytes(small, 8 << 20)
        assert admission.bodies_bytes == 68 << 20


def test_large_pictures_do_not_count_towards_the_limit_and_delay_no_others() -> None:
    clock, inside = Clock(), [0, 0]
    load = SharedLoad(inside, 0)
    admission = Admission(4, clock=clock, service_rate=paced(5.0), server_load=load)
    with ExitStack() as stack:
        for number in range(4):
            admitted = stack.enter_context(admission.admit(AdmissionRequest(1e6, flow=Flow(str(number)))))
            admission.count_in_flight(admitted)
            admission.mark_large(admitted)
            admission.mark_large(admitted)
        assert (admission.in_flight, admission.large_in_flight, admission.waiting, inside) == (4, 4, {}, [0, 0])
        assert load.large == 4, "they take cores, of which other front ends must know"
        assert admission.predicted_wait_s(Flow("quiet")) == 0
        assert is_admitted(admission, AdmissionRequest(0.1, flow=Flow("quiet")))
    assert (admission.in_flight, admission.large_in_flight, admission.waiting, inside) == (0, 0, {}, [0, 0])
    assert load.large == 0


def test_the_service_rate_ignores_large_pictures() -> None:
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


def test_a_computed_request_with_long_postprocessing_counts_as_served() -> None:
    """Otherwise the rate would be learned from the ordinary requests alone, which all wait."""
    clock = Clock()
    admission = Admission(100, clock=clock, service_rate=ServiceRate(1))
    with ExitStack() as stack:
        enter(stack, admission, 5)
        for _ in range(20):
            with admission.admit(PATIENT) as admitted:
                admission.count_in_flight(admitted)
                clock.now += 1.0
                admission.mark_large(admitted, computed=True)
                assert admission.ordinary_in_flight == 5
        assert admission.service_rate.request_s(clock.now) == pytest.approx(1.0)


def test_large_pictures_beyond_the_limit_count_like_others() -> None:
    admission = admission_of(2)
    with ExitStack() as stack:
        for _ in range(3):
            admitted = stack.enter_context(admission.admit(PATIENT))
            admission.count_in_flight(admitted)
            admission.mark_large(admitted)
        assert (admission.in_flight, admission.large_in_flight, admission.ordinary_in_flight) == (3, 2, 1)
    assert (admission.in_flight, admission.large_in_flight, admission.waiting) == (0, 0, {})


def test_a_request_that_ended_cannot_be_marked_large() -> None:
    admission = admission_of(2)
    with admission.admit(PATIENT) as admitted:
        admission.count_in_flight(admitted)
    admission.mark_large(admitted)
    assert (admission.in_flight, admission.large_in_flight, admission.waiting) == (0, 0, {})


def test_clients_above_their_share_retry_when_the_excess_of_others_has_been_served() -> None:
    admission = admission_of(8, 10.0)
    with ExitStack() as stack:
        enter(stack, admission, 8, Flow("busy"))
        enter(stack, admission, 2, Flow("quiet"))
        assert refused(admission, AdmissionRequest(1e6, flow=Flow("busy"))).retry_after_s == 20


def test_a_new_request_waits_behind_clients_that_are_expected_to_return() -> None:
    clock = Clock()
    admission = admission_of(40, 0.1, clock)
    with ExitStack() as stack:
        with ExitStack() as crowd:
            enter(crowd, admission, 40)
            for name in range(5):
                refused(admission, AdmissionRequest(60.0, request_id=str(name)))
        clock.now += 1.0
        enter(stack, admission, 10)
        assert not is_admitted(admission, AdmissionRequest(1.5))
        assert is_admitted(admission, AdmissionRequest(1.5, request_id="0"))
