"""Totals from a server's metrics, as all benchmarks read them."""

from __future__ import annotations

from benchmarks.harness.metric_totals import total_in

PAGE = """# HELP retouch_spool_items Results in the spool.
# TYPE retouch_spool_items gauge
retouch_spool_items 3.0
retouch_spool_items_lost 40.0
retouch_batch_size_sum{model="photos/5"} 7.0
retouch_batch_size_sum{model="a model"} 1e+02
"""


def test_a_metric_is_summed_over_its_labels() -> None:
    assert total_in(PAGE, "retouch_batch_size_sum") == 107


def test_a_metric_whose_name_begins_alike_is_not_counted() -> None:
    assert total_in(PAGE, "retouch_spool_items") == 3


def test_a_metric_that_is_not_there_is_zero() -> None:
    assert total_in(PAGE, "retouch_queue_depth") == 0
