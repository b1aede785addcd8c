from __future__ import annotations

import pytest

from service.admission.late_answer import late_answer_error
from service.core.errors import DeadlineExceeded, Overloaded


@pytest.mark.parametrize(("wanted_s", "told_s"), [(-3.0, 1), (0.0, 1), (0.2, 1), (1.2, 2), (7.0, 7)])
@pytest.mark.parametrize(("from_client", "kind"), [(True, DeadlineExceeded), (False, Overloaded)])
def test_the_time_to_retry_is_rounded_up_and_at_least_a_second(
    wanted_s: float, told_s: int, from_client: bool, kind: type[Exception]
) -> None:
    error = late_answer_error("the queue is long", 9.0, -0.5, wanted_s, deadline_from_client=from_client)
    assert type(error) is kind
    assert error.retry_after_s == told_s
    assert f"0.0 s are left; retry in {told_s} s" in str(error)
