"""The results in a key's answer, on both kinds of ledger: recorded with the claim, and protected if shared."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from service.ledger.contract import Connections
from service.repeats import idempotency_table
from service.repeats.attempt import result_ids, share_results
from service.repeats.idempotency_table import Claim
from service.saving import index_table

ONE, TWO = "1" * 32, "2" * 32
MINE, OTHER = Claim("key", "print", "me", 100.0), Claim("key", "print", "other", 100.0)


def claim(ledger: Connections, wanted: Claim, *result_ids: str, instead_of: Claim | None = None) -> list[Claim] | None:
    claiming = partial(idempotency_table.claim, wanted=wanted, now=1.0, instead_of=instead_of, result_ids=result_ids)
    return ledger.write(claiming)


def results_of(ledger: Connections, one: Claim) -> list[str]:
    return sorted(ledger.read(partial(idempotency_table.results_of, claimed=one)))


def test_a_claim_records_the_results_that_its_request_will_store(ledger: Connections) -> None:
    assert claim(ledger, MINE, ONE, TWO) == []
    assert claim(ledger, OTHER, "3" * 32) is None
    assert results_of(ledger, MINE) == [ONE, TWO]
    assert ledger.read(partial(idempotency_table.containing, result_id=TWO)) == [MINE]
    ledger.write(partial(idempotency_table.release_unanswered, claimed=MINE))
    assert results_of(ledger, MINE) == []


def test_a_claim_instead_of_a_dead_owners_replaces_its_results(ledger: Connections) -> None:
    claim(ledger, MINE, ONE, TWO)
    assert claim(ledger, OTHER, TWO, instead_of=MINE) == [MINE]
    assert results_of(ledger, OTHER) == [TWO]


def test_a_claim_says_whether_its_results_were_shared(ledger: Connections) -> None:
    claim(ledger, MINE, ONE)
    assert ledger.write(partial(share_results, claim=MINE, ids=[ONE]))
    found = ledger.read(partial(idempotency_table.find, name="key", now=1.0))
    assert found is not None
    assert found.shared
    assert found == replace(MINE, shared=False), "it is the same claim"
    (replaced,) = claim(ledger, OTHER, TWO, instead_of=MINE) or []
    assert replaced.shared


def test_results_that_were_deleted_for_another_claim_are_not_shared(ledger: Connections) -> None:
    claim(ledger, MINE, ONE)
    ledger.write(partial(idempotency_table.release_unanswered, claimed=MINE))
    assert ledger.write(partial(share_results, claim=MINE, ids=[ONE])), "a released key removes none"
    ledger.write(partial(index_table.bury, result_id=ONE, owner="", now=1.0))
    assert not ledger.write(partial(share_results, claim=MINE, ids=[ONE]))


def test_a_claim_that_is_left_keeps_its_results_for_the_request_that_takes_it_over(ledger: Connections) -> None:
    claim(ledger, MINE, ONE)
    for _ in range(2):  # the first answer may be lost
        assert ledger.write(partial(idempotency_table.leave, claimed=MINE)), "it is there no more"
    left = ledger.read(partial(idempotency_table.find, name="key", now=1.0))
    assert left is not None
    assert (left.is_left, left.claimed_by, left.done) == (True, "me", False)
    assert results_of(ledger, left) == [ONE]
    assert ledger.read(partial(idempotency_table.unanswered_of, owner="me")) == []
    assert result_ids(left, 2) == result_ids(MINE, 2)
    assert not ledger.write(partial(idempotency_table.mark_answered, claimed=MINE))
    assert claim(ledger, OTHER, ONE, instead_of=left) == [left]
    assert ledger.read(partial(idempotency_table.find, name="key", now=1.0)) == OTHER


def test_a_claim_whose_answer_is_recorded_is_not_left(ledger: Connections) -> None:
    claim(ledger, MINE, ONE)
    ledger.write(partial(idempotency_table.mark_answered, claimed=MINE))
    assert not ledger.write(partial(idempotency_table.leave, claimed=MINE))
    assert ledger.read(partial(idempotency_table.find, name="key", now=1.0)) == replace(MINE, done=True)


def test_a_claim_that_was_left_twice_is_taken_over_only_by_who_has_seen_the_last(ledger: Connections) -> None:
    again = replace(MINE, expires_at=101.0)
    claim(ledger, MINE, ONE)
    ledger.write(partial(idempotency_table.leave, claimed=MINE))
    stale = ledger.read(partial(idempotency_table.find, name="key", now=1.0))
    assert claim(ledger, again, TWO, instead_of=stale) == [stale]
    ledger.write(partial(idempotency_table.leave, claimed=again))
    assert claim(ledger, OTHER, ONE, instead_of=stale) is None
    latest = ledger.read(partial(idempotency_table.find, name="key", now=1.0))
    assert claim(ledger, OTHER, TWO, instead_of=latest) == [latest]


def test_results_are_shared_also_after_their_claim_was_left(ledger: Connections) -> None:
    claim(ledger, MINE, ONE)
    ledger.write(partial(idempotency_table.leave, claimed=MINE))
    assert ledger.write(partial(share_results, claim=MINE, ids=[ONE]))
    left = ledger.read(partial(idempotency_table.find, name="key", now=1.0))
    assert left is not None
    assert left.shared
