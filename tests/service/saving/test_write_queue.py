from __future__ import annotations

from service.saving.write_queue import GATHER_S, MAX_GROUP_BYTES, UnsavedResult, WriteQueue


def queue(*waiting: UnsavedResult, max_group_size: int = 4) -> WriteQueue:
    queue = WriteQueue(max_group_size)
    for one in waiting:
        queue.append(one)
    return queue


def waits(name: str, size: int = 1, *, failed: bool = False) -> UnsavedResult:
    return UnsavedResult(name, size, 0.0, failed=failed)


def taken(queue: WriteQueue) -> list[list[str]]:
    groups = []
    while group := queue.take_group():
        groups.append([waiting.id for waiting in group])
    assert len(queue) == 0
    return groups


def test_as_many_as_wait_go_together_in_order_up_to_the_most() -> None:
    assert taken(queue(*map(waits, "abcdef"))) == [["a", "b", "c", "d"], ["e", "f"]]


def test_an_empty_queue_gives_none() -> None:
    assert queue().take_group() == []


def test_large_results_do_not_fill_the_memory_together() -> None:
    half = MAX_GROUP_BYTES // 2
    assert taken(queue(waits("a", half), waits("b", half), waits("c", half))) == [["a", "b"], ["c"]]


def test_a_result_larger_than_the_bound_goes_alone() -> None:
    assert taken(queue(waits("a"), waits("b", 2 * MAX_GROUP_BYTES), waits("c"))) == [["a"], ["b"], ["c"]]


def test_a_failed_result_is_retried_alone_and_delays_no_other() -> None:
    assert taken(queue(waits("a"), waits("b", failed=True), waits("c"), waits("d"))) == [["a"], ["b"], ["c", "d"]]


def test_a_group_waits_for_what_is_coming_but_not_for_long() -> None:
    gathering = queue(*map(waits, "ab"))
    assert gathering.next_group_due_in_s(0.04, coming=1, free_items=9) == GATHER_S - 0.04
    assert gathering.next_group_due_in_s(GATHER_S + 1, coming=1, free_items=9) == 0


def test_a_group_goes_at_once_when_nothing_is_coming_or_it_is_full_or_was_refused_before() -> None:
    assert queue(waits("a")).next_group_due_in_s(0.0, coming=0, free_items=9) == 0
    assert queue(*map(waits, "abcd"), max_group_size=4).next_group_due_in_s(0.0, coming=9, free_items=9) == 0
    assert queue(waits("a", failed=True)).next_group_due_in_s(0.0, coming=9, free_items=9) == 0


def test_a_group_does_not_wait_once_it_is_as_large_as_the_space_that_is_left() -> None:
    gathering = queue(*map(waits, "ab"))
    assert gathering.next_group_due_in_s(0.0, coming=1, free_items=3) == GATHER_S
    assert gathering.next_group_due_in_s(0.0, coming=1, free_items=2) == 0
    assert gathering.next_group_due_in_s(0.0, coming=1, free_items=0) == 0
