"""A limit shared in blocks: no request waits, and each process exceeds the limit by at most a block."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.fleet.blocks import Block, block_of_quota, block_of_rate


def test_blocks_of_all_processes_together_are_a_fiftieth_of_the_limit() -> None:
    assert block_of_quota(10_000, 1) == 200
    assert block_of_quota(10_000, 4) == 50
    assert block_of_quota(10, 4) == 1
    assert block_of_rate(1.0, 1000, 4) == 5
    assert block_of_rate(1000.0, 10, 4) == 50, "enough for the time that the next one takes"
    assert block_of_rate(0.1, 1, 100) == 1


def test_a_request_is_admitted_on_credit_until_the_first_block_arrives() -> None:
    block = Block()
    assert [block.take(2.0, 0.0) for _ in range(2)] == [0.0, 0.0]
    assert block.take(2.0, 0.0) > 0
    assert block.wanted(5.0, 0.0) == 7.0
    block.receive(7.0, 0.0, 1.0)
    assert [block.take(0.0, 1.0) for _ in range(5)] == [0.0] * 5
    assert block.take(0.0, 1.0) > 0


def test_a_share_of_the_remaining_limit_is_credited_for_a_second_only() -> None:
    block = Block()
    block.receive(1.0, 0.0, 10.0, share=30.0)
    assert [block.take(2.0, 10.5) for _ in range(31)] == [0.0] * 31
    assert block.take(2.0, 10.5) > 0
    late = Block()
    late.receive(1.0, 0.0, 10.0, share=30.0)
    assert [late.take(2.0, 12.0) for _ in range(3)] == [0.0] * 3
    assert late.take(2.0, 12.0) > 0


def test_an_exhausted_limit_is_neither_fetched_nor_credited_until_it_refills() -> None:
    block = Block()
    block.receive(0.0, 3.0, 10.0)
    assert block.take(2.0, 11.0) == 2.0
    assert block.wanted(5.0, 11.0) == 0.0
    assert block.take(2.0, 13.0) == 0.0
    assert block.wanted(5.0, 13.0) == 6.0


@given(st.integers(1, 1000), st.integers(1, 8), st.lists(st.integers(0, 7), min_size=1, max_size=3000))
def test_no_order_of_requests_gets_more_than_the_limit_and_a_block_of_each_process(
    allowed: int, processes: int, asked: list[int]
) -> None:
    blocks, size, left, passed = [Block() for _ in range(processes)], block_of_quota(allowed, processes), allowed, 0
    for number, process in enumerate(asked):
        block = blocks[process % processes]
        passed += block.take(size, 0.0) == 0.0
        wanted = block.wanted(size, 0.0)
        if wanted and number % 3:  # some blocks arrive late
            granted = max(-min(0.0, block.left), min(wanted, max(0, left)))
            left -= int(granted)
            block.receive(granted, 0.0 if granted >= wanted else 1.0, 0.0)
    assert passed <= allowed + processes * size
