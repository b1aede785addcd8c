from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest

from benchmarks.scale.arrivals import FLOODER, Traffic
from benchmarks.scale.balancing import BALANCINGS
from benchmarks.scale.outcome import Outcome
from benchmarks.scale.scaling import Failures, Scaling
from benchmarks.scale.service_times import ServiceTimes
from benchmarks.scale.simulation import Fleet
from tests.benchmarks.scale.fleets import BATCHES, ONE_BY_ONE, simulated, unlimited


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_the_mean_wait_of_one_node_is_that_of_an_m_d_1_queue(load: float) -> None:
    """The Pollaczek-Khinchine formula: mean wait = load · service time / (2 · (1 - load))."""
    outcome = simulated(unlimited(ONE_BY_ONE, 1), Traffic(10 * load, 2_500.0))
    waits = [answer.latency_s - 0.1 for answer in outcome.answers]
    assert mean(waits) == pytest.approx(load * 0.1 / (2 * (1 - load)), rel=0.1)


def test_a_lone_request_takes_its_host_time_and_a_batch_of_one() -> None:
    outcome = simulated(Fleet(BATCHES, 1), Traffic(0.1, 200.0))
    assert {round(answer.latency_s, 6) for answer in outcome.answers} == {0.044}


def test_front_ends_with_a_core_each_make_requests_wait_longer_than_cores_that_all_share() -> None:
    shared = ServiceTimes(0.001, 0.0, 8, host_before_s=0.01, host_after_s=0.01, host_cores=4)
    traffic = Traffic(140.0, 30.0)
    together, apart = (
        simulated(unlimited(times, 1), traffic).latency_s(0.99) for times in (shared, replace(shared, front_ends=4))
    )
    assert apart > 1.5 * together


def test_a_busy_node_answers_full_batches_and_refuses_the_rest() -> None:
    outcome = simulated(Fleet(BATCHES, 1, deadline_s=2.0), Traffic(200.0, 30.0))
    assert outcome.per_s == pytest.approx(BATCHES.capacity_per_s, rel=0.06)
    assert outcome.mean_batch > 7.9
    assert outcome.latency_s(1.0) <= 2.0
    assert outcome.unanswered["refused"] > 3000


def _stormy_fleet(rule: str) -> Fleet:
    """Return a fleet in which nodes die, freeze, start and end, and refused clients return."""
    return Fleet(
        BATCHES,
        6,
        rule,
        proxies=3,
        max_requests=64,
        deadline_s=3.0,
        repeats=2,
        failures=Failures(30.0, frozen=0.5, notice_s=3.0, replace_s=5.0),
        scaling=Scaling(2, 8, 6.0, check_s=2.0, start_s=5.0, hold_s=10.0),
    )


@pytest.mark.parametrize("rule", BALANCINGS)
def test_every_request_is_answered_once_or_given_up_once_in_a_storm(rule: str) -> None:
    fleet = _stormy_fleet(rule)
    traffic = Traffic(150.0, 40.0, wave=0.9, day_s=20.0, flood=(20.0, 30.0, 500.0))
    outcome = simulated(fleet, traffic)
    assert outcome.failures > 3
    assert len({count for _, count in outcome.nodes_over_time}) > 4
    assert outcome.unanswered["refused"] > 0
    assert len(outcome.answers) + sum(outcome.unanswered.values()) == outcome.offered
    assert outcome.offered == len(list(traffic.arrivals(random.Random(1))))


def test_the_same_seed_gives_the_same_answers_and_another_seed_others() -> None:
    fleet = _stormy_fleet("random")
    one, again, other = (simulated(fleet, Traffic(200.0, 10.0), seed) for seed in (1, 1, 2))
    assert one.answers == again.answers
    assert one.answers != other.answers


def test_a_client_that_floods_does_not_starve_the_others() -> None:
    """Each of its requests waits behind one of every other client, by the real admission and order of service."""
    calm = Traffic(40.0, 30.0, clients=10)
    fleet = Fleet(BATCHES, 1, deadline_s=5.0)
    alone, flooded = (simulated(fleet, traffic) for traffic in (calm, replace(calm, flood=(0.0, 30.0, 400.0))))
    honest = flooded.unanswered.total() - flooded.unanswered_of[FLOODER]
    assert flooded.unanswered_of[FLOODER] > 0.8 * 400 * 30
    assert honest <= 0.01 * alone.offered
    assert flooded.latency_s(0.99, flooded.is_from_other_client) < 0.5


def test_a_frozen_node_loses_its_requests_and_clients_that_come_back_are_answered() -> None:
    failures = Failures(30.0, frozen=1.0, notice_s=2.0, replace_s=5.0)
    once = Fleet(BATCHES, 4, "round robin", failures=failures)
    traffic = Traffic(60.0, 60.0)
    gave_up, came_back = simulated(once, traffic), simulated(replace(once, repeats=5), traffic)
    assert gave_up.unanswered["lost"] > 20
    assert came_back.unanswered["lost"] == 0


def test_a_fleet_that_scales_follows_the_load_after_the_delay_and_costs_less() -> None:
    scaling = Scaling(1, 6, 12.0, check_s=5.0, start_s=20.0, hold_s=30.0)
    traffic = Traffic(120.0, 300.0, wave=0.9, day_s=300.0)
    scaled, fixed = (simulated(Fleet(BATCHES, count, scaling=how), traffic) for count, how in ((1, scaling), (6, None)))
    assert max(count for _, count in scaled.nodes_over_time) >= 4
    assert next(at for at, _ in scaled.nodes_over_time if at) >= 25.0
    assert scaled.nodes_over_time[-1][1] <= 3
    assert scaled.node_s < 0.8 * fixed.node_s
    assert fixed.node_s == pytest.approx(6 * fixed.seconds)


def test_costs_are_the_paid_hours_times_the_price() -> None:
    outcome = Outcome(node_s=7200.0, seconds=3600.0)
    assert outcome.cost_of_a_million(3.0) == float("inf")
    done = simulated(unlimited(ONE_BY_ONE, 2), Traffic(10.0, 100.0))
    assert done.cost_of_a_million(3.0) == pytest.approx(2 * done.seconds / 3600 * 3.0 / done.offered * 1e6)
