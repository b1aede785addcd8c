"""An engine is closed exactly once, by whoever lets go of it last."""

from __future__ import annotations

from engines.fake import FakeEngine
from engines.served import Holder, ServedModel


class CountsCloses(FakeEngine):
    closes = 0

    def close(self) -> None:
        self.closes += 1


def test_retired_engine_is_closed_by_the_last_lease_and_leased_no_more(make_manifest):
    engine = CountsCloses(make_manifest())
    holder = Holder(ServedModel(engine.manifest, engine))
    assert holder.acquire()
    assert holder.acquire()
    holder.retire()
    assert not holder.acquire()
    holder.release()
    assert engine.closes == 0
    holder.release()
    assert engine.closes == 1


def test_idle_engine_is_closed_when_it_is_retired_and_only_once(make_manifest):
    engine = CountsCloses(make_manifest())
    holder = Holder(ServedModel(engine.manifest, engine))
    holder.retire()
    holder.retire()
    assert engine.closes == 1


def test_engine_that_was_used_before_is_closed_when_it_is_retired(make_manifest):
    engine = CountsCloses(make_manifest())
    holder = Holder(ServedModel(engine.manifest, engine))
    assert holder.acquire()
    holder.release()
    holder.retire()
    assert engine.closes == 1
