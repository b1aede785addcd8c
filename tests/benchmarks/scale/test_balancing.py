from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.balancing import BALANCINGS, Balancing, LeastRequests, ModelAffinity, RoundRobin
from tests.benchmarks.scale.fleets import BATCHES, simulated, unlimited


def _with_nodes(rule: str, count: int) -> Balancing:
    balancing = BALANCINGS[rule](random.Random(1))
    for node in range(count):
        balancing.add(node)
    return balancing


@pytest.mark.parametrize("rule", BALANCINGS)
def test_a_node_that_was_removed_is_not_chosen_and_counts_stay_right(rule: str) -> None:
    balancing, rng, sent = _with_nodes(rule, 5), random.Random(2), Counter[int]()
    for step in range(500):
        if step == 200:
            balancing.remove(3)
            del sent[3]
        if step == 300:
            balancing.add(9)
        node = balancing.choose(rng.randrange(4))
        sent[node] += 1
        if rng.random() < 0.8:
            balancing.ended(node)
            sent[node] -= 1
    balancing.ended(3)  # its last answer arrives after its removal
    assert balancing.outstanding == {node: sent[node] for node in (0, 1, 2, 4, 9)}


def test_round_robin_takes_each_node_in_turn() -> None:
    balancing = _with_nodes("round robin", 3)
    assert isinstance(balancing, RoundRobin)
    assert Counter(balancing.choose() for _ in range(9)) == {0: 3, 1: 3, 2: 3}


def test_least_requests_takes_a_node_with_the_fewest() -> None:
    balancing, rng = _with_nodes("least requests", 7), random.Random(3)
    assert isinstance(balancing, LeastRequests)
    for _ in range(300):
        fewest = min(balancing.outstanding.values())
        node = balancing.choose()
        assert balancing.outstanding[node] == fewest + 1
        if rng.random() < 0.9:
            balancing.ended(rng.choice([other for other, count in balancing.outstanding.items() if count]))


def test_model_affinity_keeps_a_model_on_few_nodes_and_none_a_quarter_above_the_mean() -> None:
    balancing = _with_nodes("model affinity", 10)
    assert isinstance(balancing, ModelAffinity)
    first = {model: balancing.choose(model) for model in range(40)}
    for node in first.values():
        balancing.ended(node)
    assert len(set(first.values())) > 5
    assert all(balancing.choose(model) == first[model] or balancing.outstanding[first[model]] for model in range(40))
    for _ in range(960):
        balancing.choose(0)
    assert max(balancing.outstanding.values()) <= 125 + 1


def test_knowing_what_was_sent_beats_chance() -> None:
    traffic = Traffic(0.85 * 10 * BATCHES.capacity_per_s, 12.0)
    p99 = {rule: simulated(unlimited(BATCHES, 10, balancing=rule), traffic).latency_s(0.99) for rule in BALANCINGS}
    assert p99["least requests"] < p99["two choices"] < p99["random"]
    assert p99["least requests"] < 0.8 * p99["random"]


def test_least_requests_spares_slow_nodes_where_turns_do_not() -> None:
    traffic = Traffic(0.75 * 10 * BATCHES.capacity_per_s, 12.0)
    p99 = {
        rule: simulated(unlimited(BATCHES, 10, balancing=rule, uneven=0.6), traffic).latency_s(0.99)
        for rule in ("round robin", "least requests")
    }
    assert p99["least requests"] < p99["round robin"]


def test_affinity_makes_fuller_batches_of_several_models() -> None:
    traffic = replace(Traffic(0.6 * 10 * BATCHES.capacity_per_s, 10.0), models=8)
    batches = {
        rule: simulated(unlimited(BATCHES, 10, balancing=rule), traffic).mean_batch
        for rule in ("least requests", "model affinity")
    }
    assert batches["model affinity"] > 1.2 * batches["least requests"]
