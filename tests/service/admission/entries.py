"""Admission that a test enters, fails in and is refused by."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from service.admission.admission import Admission, Ask
from service.admission.service_rate import Pace
from service.core.errors import ServiceError
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
