"""Reads metrics of a server."""

from __future__ import annotations

from benchmarks.harness.raw_http import Client


async def metrics_page(client: Client) -> str:
    """Return the page of metrics, /metrics.

    Raises:
        ConnectionError: the server cannot be reached, or answers with an error.
    """
    reply = await client.get("/metrics")
    if reply.status != 200:
        raise ConnectionError(f"/metrics was answered {reply.status} {reply.code}")
    return reply.body.decode()


def total_in(page: str, metric: str) -> float:
    """Return the sum of a metric over its labels, from a page of Prometheus metrics; 0 if the page lacks the metric."""
    named = (line for line in page.splitlines() if line.startswith((f"{metric} ", f"{metric}{{")))
    return sum(float(line.rpartition(" ")[2]) for line in named)
