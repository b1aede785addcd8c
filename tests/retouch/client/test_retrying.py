from __future__ import annotations

import httpx
import pytest

from retouch.client.retrying import RetryPolicy, pause_of_a_restart

MIDDLE = 0.5
"""The random draw that leaves a pause unchanged."""


def refused(status: int = 503, *, retryable: bool | None = True, retry_after: str | None = None) -> httpx.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    if retryable is None:
        return httpx.Response(status, headers=headers, text="a proxy's words")
    return httpx.Response(status, headers=headers, json={"code": "any", "detail": "any", "retryable": retryable})


@pytest.mark.parametrize(
    ("response", "tries", "expected_s"),
    [
        pytest.param(refused(retry_after="3"), 1, 3.0, id="as asked"),
        pytest.param(refused(retry_after="0"), 8, 0.0, id="last try"),
        pytest.param(refused(retry_after="0"), 9, None, id="no more tries"),
        pytest.param(refused(retry_after="300"), 1, 300.0, id="the longest of an overload"),
        pytest.param(refused(retry_after="301"), 1, None, id="longer than any overload"),
        pytest.param(refused(), 1, 0.5, id="busy without a time"),
        pytest.param(refused(), 3, 2.0, id="busy without a time, third try"),
        pytest.param(refused(), 8, 60.0, id="never longer than a minute by itself"),
        pytest.param(refused(retry_after="Fri, 31 Dec 1999 23:59:59 GMT"), 2, 1.0, id="a date"),
        pytest.param(refused(500), 2, 1.0, id="a failed batch"),
        pytest.param(refused(500), 3, None, id="a failed batch, twice again"),
        pytest.param(refused(504, retry_after="2"), 8, 2.0, id="no capacity before the deadline"),
        pytest.param(refused(422, retryable=False), 1, None, id="the caller's error"),
        pytest.param(refused(503, retryable=False, retry_after="1"), 1, None, id="the server knows better"),
        pytest.param(refused(502, retryable=None), 1, 0.5, id="a proxy"),
        pytest.param(refused(404, retryable=None), 1, None, id="another server"),
        pytest.param(httpx.Response(502, text="[" * 100_000), 1, 0.5, id="nested too deeply"),
    ],
)
def test_a_refusal_is_answered_with_the_pause_that_it_asks_for(
    response: httpx.Response, tries: int, expected_s: float | None
) -> None:
    assert RetryPolicy(retries=8).pause_after_refusal(response, tries, MIDDLE) == expected_s


def test_a_request_without_a_reply_is_retried_twice_at_most_or_as_configured() -> None:
    pauses = [RetryPolicy(retries=8).pause_after_silence(tries, MIDDLE) for tries in (1, 2, 3)]
    assert pauses == [0.5, 1.0, None]
    assert RetryPolicy(retries=1).pause_after_silence(2, MIDDLE) is None
    assert RetryPolicy(unexplained=0).pause_after_silence(1, MIDDLE) is None


def test_a_restart_is_waited_for_in_pauses_of_up_to_five_seconds_however_often() -> None:
    pauses = [pause_of_a_restart(None, tries, MIDDLE) for tries in (1, 2, 4, 5, 5000)]
    assert pauses == [0.5, 1.0, 4.0, 5.0, 5.0]
    assert pause_of_a_restart(refused(retry_after="9"), 5000, MIDDLE) == 9.0
    assert pause_of_a_restart(refused(retry_after="0"), 2, MIDDLE) == 1.0
    assert pause_of_a_restart(refused(502, retryable=None), 1, MIDDLE) == 0.5
    for other in (refused(429), refused(500), refused(503, retryable=False), refused(404, retryable=None)):
        assert pause_of_a_restart(other, 1, MIDDLE) is None


@pytest.mark.parametrize("numbers", [{"retries": -1}, {"unexplained": -1}])
def test_a_policy_of_fewer_than_no_retries_is_none(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(numbers))} is -1; pass a number from 0"):
        RetryPolicy(**numbers)


def test_clients_without_a_retry_after_do_not_retry_together() -> None:
    pauses = [RetryPolicy().pause_after_silence(1, draw) for draw in (0.0, 0.25, 0.999)]
    assert pauses == pytest.approx([0.375, 0.4375, 0.62475])
    assert RetryPolicy().pause_after_refusal(refused(retry_after="2"), 1, 0.9) == 2.0
