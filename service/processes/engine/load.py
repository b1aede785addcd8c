"""The load of an engine process, published to the front ends: samples by flow, and the measured time per sample."""

from __future__ import annotations

from dataclasses import dataclass

from service.admission.service_rate import ServiceRate
from service.core.batch_rows import ComputedSample
from service.core.flow import Flow
from service.processes.shared.status_board import StatusRow


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The load of this process. Used on the event loop only.

    row: this process's row of the status board.
    rate: estimate of the time per sample, from the samples of all front ends.
    """

    row: StatusRow
    rate: ServiceRate

    def accepted(self, flow: Flow) -> None:
        """Count a sample that was accepted."""
        self.row.load += 1
        self.row.flows.add(flow, 1)

    def answered(self, flow: Flow) -> None:
        """Count a sample that was answered, computed or not."""
        self.row.load -= 1
        self.row.flows.add(flow, -1)

    def record(self, done: ComputedSample) -> None:
        """Update the time per sample from a computed sample."""
        self.rate.add_measurement([(done.batch_size, done.device_s)], None)
        self.row.sample_s = self.rate.sample_s
