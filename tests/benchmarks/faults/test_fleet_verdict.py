"""The verdict on a run with faults: a webhook that came twice is excused only if its sender was killed."""

from __future__ import annotations

import pytest

from benchmarks.faults.fleet_clients import Arrival, Record
from benchmarks.faults.fleet_faults import KILL, Fault
from benchmarks.faults.fleet_verdict import traces, verdict

SENT = 100.0
EXCUSED, OTHERWISE = "webhooks_twice_as_their_sender_was_killed_in_between", "webhooks_twice_otherwise"


def fault(begun: float, kind: str = KILL, address: str = "a") -> Fault:
    return Fault(kind, address, begun, begun + 9.0)


@pytest.mark.parametrize(
    ("found", "excused"),
    [
        ([fault(SENT + 0.2)], 1),
        ([fault(SENT - 0.2)], 1),  # killed while the message was on its way
        ([fault(SENT + 2.5)], 0),  # the sender had time to record the delivery before
        ([fault(SENT - 4.0)], 0),  # the sender had been restarted by then
        ([fault(SENT + 0.2, address="b")], 0),
        ([fault(SENT + 0.2, "freeze_a_node")], 0),
        ([], 0),
    ],
)
def test_a_message_that_came_twice_is_excused_only_if_its_sender_was_killed(found: list[Fault], excused: int) -> None:
    record = Record(webhooks={"msg_1": [Arrival(SENT, "a"), Arrival(SENT + 60.0, "b")], "msg_2": [Arrival(SENT, "a")]})
    found_verdict = verdict(record, found, [], [])
    assert (found_verdict[EXCUSED], found_verdict[OTHERWISE]) == (excused, 1 - excused)
    assert sum(line.startswith("webhook twice: msg_1") for line in traces(record, found, [], [])) == 1


def test_a_key_with_two_jobs_and_an_unannounced_job_are_counted_and_traced() -> None:
    record = Record(jobs={"/v1/jobs/1", "/v1/jobs/3"})
    record.jobs_of_key = {"one": {"msg_1", "msg_2"}, "other": {"msg_3"}}
    record.webhooks = {name: [Arrival(SENT, "a")] for name in ("msg_1", "msg_2", "msg_3")}
    found_verdict = verdict(record, [], [], [])
    assert (found_verdict["keys_with_two_jobs"], found_verdict["unannounced_jobs"], found_verdict["jobs"]) == (1, 1, 2)
    assert traces(record, [], [], []) == ["jobs of key one: msg_1 (announced), msg_2 (unannounced)"]
