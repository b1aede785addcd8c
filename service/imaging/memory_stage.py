"""The stage `memory` of a request: its share of what decoded pictures may take, and the wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from service.admission.memory_budget import MemoryBudget
from service.admission.memory_shares import Claim
from service.core.items import Call, Timings
from service.imaging.tasks import Weight
from service.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class DecodedMemory:
    """Used on the event loop."""

    budget: MemoryBudget
    metrics: Metrics
    clock: Callable[[], float]

    @asynccontextmanager
    async def held(self, weight: Weight, call: Call, timings: Timings) -> AsyncIterator[None]:
        """Hold what the request's pictures take; the wait is a stage and counted, however it ends.

        Raises:
            DeadlineExceeded, Overloaded: it would last too long.
        """
        if not weight.decoded_bytes:
            yield
            return
        if weight.large and call.on_large is not None:
            call.on_large()
        allowed_s = call.deadline - call.received_at
        claim = Claim(weight.decoded_bytes, call.flow, weight.large, call.deadline, allowed_s)
        asked_at = self.clock()
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.budget.share(claim, own_deadline=call.own_deadline))
            except BaseException:
                timings.ended("memory", self.clock() - asked_at)
                self.metrics.stages_done(timings.stages)  # of a request that is answered its end counts all stages
                raise
            timings.ended("memory", self.clock() - asked_at)
            yield
