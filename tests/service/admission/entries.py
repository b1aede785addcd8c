"""Builders of an Admission, and functions that enter it, fail in it, or expect its refusal."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.admission.service_rate import ServiceRate
from service.core.errors import ServiceError
from service.core.flow import ANYONE, Flow
from tests.fakes.clock import Clock

PATIENT = AdmissionRequest(60.0)


def paced(service_s: float) -> ServiceRate:
    pace = ServiceRate(1)
    if service_s:
        pace.add_measurement([(1, service_s)], 1e-9)
    return pace


def admission_of(max_requests: int = 100, service_s: float = 0.0, clock: Clock | None = None, max_uploads: int = 1024):
    return Admission(max_requests, max_uploads, clock=clock or Clock(), service_rate=paced(service_s))


def enter(stack: ExitStack, admission: Admission, count: int, flow: Flow = ANYONE, allowed_s: float = 1e6) -> None:
    for _ in range(count):
        admission.count_in_flight(stack.enter_context(admission.admit(AdmissionRequest(allowed_s, flow=flow))))


def refused(admission: Admission, request: AdmissionRequest) -> ServiceError:
    with pytest.raises(ServiceError) as refusal, admission.admit(request):
        pass
    return refusal.value


def is_admitted(admission: Admission, request: AdmissionRequest) -> bool:
    try:
        with admission.admit(request) as admitted:
            admission.count_in_flight(admitted)
    except ServiceError:
        return False
    return True
