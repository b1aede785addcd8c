"""An engine is closed exactly once, when its last lease ends; and why a version cannot be leased."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.fake import FakeEngine
from engines.repository.listing import VersionFiles, VersionKey
from engines.repository.versions import LeaseCounter, ServedModel, VersionEntry, why_not_found


class CountsCloses(FakeEngine):
    closes = 0

    def close(self) -> None:
        self.closes += 1


def test_retired_engine_is_closed_by_the_last_lease_and_leased_no_more(make_manifest):
    engine = CountsCloses(make_manifest())
    lease_counter = LeaseCounter(ServedModel(engine.manifest, engine))
    assert lease_counter.acquire()
    assert lease_counter.acquire()
    lease_counter.retire()
    assert not lease_counter.acquire()
    lease_counter.release()
    assert engine.closes == 0
    lease_counter.release()
    assert engine.closes == 1


def test_idle_engine_is_closed_when_it_is_retired_and_only_once(make_manifest):
    engine = CountsCloses(make_manifest())
    lease_counter = LeaseCounter(ServedModel(engine.manifest, engine))
    lease_counter.retire()
    lease_counter.retire()
    assert engine.closes == 1


def test_engine_that_was_used_before_is_closed_when_it_is_retired(make_manifest):
    engine = CountsCloses(make_manifest())
    lease_counter = LeaseCounter(ServedModel(engine.manifest, engine))
    assert lease_counter.acquire()
    lease_counter.release()
    lease_counter.retire()
    assert engine.closes == 1


def test_successor_is_leased_for_as_long_as_the_retired_engine_is(make_manifest):
    old, fresh = CountsCloses(make_manifest()), CountsCloses(make_manifest())
    lease_counter, successor = (
        LeaseCounter(ServedModel(old.manifest, old)),
        LeaseCounter(ServedModel(fresh.manifest, fresh)),
    )
    assert lease_counter.acquire()
    assert lease_counter.acquire()
    lease_counter.retire(successor)
    successor.retire()
    lease_counter.release()
    assert (lease_counter.served.current.engine, old.closes, fresh.closes) == (fresh, 0, 0)
    lease_counter.release()
    assert (old.closes, fresh.closes) == (1, 1)


def test_successor_that_is_retired_already_is_not_handed_out(make_manifest):
    old, fresh = CountsCloses(make_manifest()), CountsCloses(make_manifest())
    lease_counter, successor = (
        LeaseCounter(ServedModel(old.manifest, old)),
        LeaseCounter(ServedModel(fresh.manifest, fresh)),
    )
    assert lease_counter.acquire()
    successor.retire()
    lease_counter.retire(successor)
    assert lease_counter.served.current.engine is old
    lease_counter.release()
    assert (old.closes, fresh.closes) == (1, 1)


def test_idle_engine_needs_no_successor(make_manifest):
    old, fresh = CountsCloses(make_manifest()), CountsCloses(make_manifest())
    lease_counter, successor = (
        LeaseCounter(ServedModel(old.manifest, old)),
        LeaseCounter(ServedModel(fresh.manifest, fresh)),
    )
    lease_counter.retire(successor)
    successor.retire()
    assert (old.closes, fresh.closes) == (1, 1)


def test_engine_that_is_retained_outlives_its_leases_and_its_retirement(make_manifest):
    engine = CountsCloses(make_manifest())
    lease_counter = LeaseCounter(ServedModel(engine.manifest, engine))
    assert lease_counter.acquire()
    lease_counter.retire()
    assert lease_counter.served.retain()
    lease_counter.release()
    assert engine.closes == 0
    lease_counter.served.release()
    assert engine.closes == 1
    assert not lease_counter.served.retain()


def test_model_that_nobody_holds_can_be_retained_and_is_never_closed(make_manifest):
    engine = CountsCloses(make_manifest())
    served = ServedModel(engine.manifest, engine)
    assert served.retain()
    served.release()
    assert engine.closes == 0


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (None, "no model tiny; available: other/2, tiny/3; tiny/1 is refused: torn; tiny/2 is refused: too large"),
        (2, "no model tiny/2; available: other/2, tiny/3; tiny/2 is refused: too large"),
        (9, "no model tiny/9; available: other/2, tiny/3"),
    ],
)
def test_the_reason_why_a_model_is_missing_names_only_its_own_refusals(version: int | None, why: str) -> None:
    reasons = {("tiny", 1): "torn", ("tiny", 2): "too large", ("tiny", 3): "", ("other", 1): "old", ("other", 2): ""}
    entries = {}
    for (name, number), reason in reasons.items():
        key, files = VersionKey(name, number), VersionFiles(Path(name), ())
        entries[key] = VersionEntry(key, files, "refused" if reason else "ready", reason=reason)
    assert why_not_found("tiny", version, entries, entries, Path("models")) == why
