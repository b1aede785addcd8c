from __future__ import annotations

import pickle

import httpx
import pytest

from retouch.client.errors import REFUSED_BY_STATUS, JobCancelled, JobFailed, Refused, ReplyInvalid, SeveralPictures
from retouch.client.replies import job_error, read_models, read_result, refusal
from retouch.client.results import JobState, Picture, Result
from service.core.errors import RangeNotSatisfiable, problem_kinds

REQUEST = httpx.Request("POST", "http://server/v1/inpaint")


def test_every_status_of_the_service_has_an_exception_of_its_own() -> None:
    assert set(REFUSED_BY_STATUS) == {kind.status for kind in problem_kinds()}
    assert len({*REFUSED_BY_STATUS.values(), Refused}) == len(REFUSED_BY_STATUS) + 1


@pytest.mark.parametrize("kind", problem_kinds(), ids=lambda kind: kind.__name__)
def test_a_problem_of_the_service_keeps_its_code_and_whether_it_may_pass(kind) -> None:
    raised = kind(1000 if kind is RangeNotSatisfiable else "the reason")
    document = raised.problem("r1", "/v1/inpaint")
    response = httpx.Response(kind.status, json=document, headers={"X-Request-ID": "r1", "Retry-After": "4"})
    error = refusal(response)
    assert type(error) is REFUSED_BY_STATUS[kind.status]
    assert (error.status, error.code, error.retryable) == (kind.status, kind.default_code, kind.retryable)
    assert (error.request_id, error.retry_after_s) == ("r1", 4.0)
    assert str(error) == f"{kind.status} {kind.default_code}: {raised}"


def test_headers_become_the_facts_of_a_result() -> None:
    headers = {
        "Content-Type": "image/webp",
        "X-Model": "photos/4",
        "X-Engine": "openvino/bf16",
        "X-Seed": str(2**63 - 1),
        "X-Mask-Coverage": "0.062500",
        "X-Batch-Size": "3",
        "Server-Timing": "decode;dur=1.5, infer;dur=20",
        "X-Request-ID": "r1",
        "Location": "/v1/results/1",
    }
    result = read_result(httpx.Response(200, content=b"file", headers=headers, request=REQUEST))
    picture = Picture(b"file", "image/webp", "/v1/results/1")
    timings = {"decode": 1.5, "infer": 20.0}
    assert result == Result((picture,), "photos/4", "openvino/bf16", 2**63 - 1, 0.0625, 3, timings, "r1")
    assert (result.bytes, result.url) == (b"file", "/v1/results/1")
    assert pickle.loads(pickle.dumps(result)) == result


def test_several_pictures_come_in_their_order_whatever_bytes_they_hold() -> None:
    bodies = [b"\r\n--edg like \x00\r\n\r\n--", b"", b"third"]
    parts = [
        b"--edge\r\nContent-Type: image/png\r\nLocation: /v1/results/%d\r\n\r\n%s\r\n" % (number, body)
        for number, body in enumerate(bodies)
    ]
    headers = {"Content-Type": "multipart/mixed; boundary=edge"}
    response = httpx.Response(200, content=b"".join(parts) + b"--edge--\r\n", headers=headers, request=REQUEST)
    result = read_result(response)
    assert [picture.bytes for picture in result.pictures] == bodies
    assert [picture.url for picture in result.pictures] == [f"/v1/results/{number}" for number in range(3)]
    with pytest.raises(SeveralPictures, match=r"3 pictures: take them from \.pictures"):
        _ = result.bytes


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(httpx.Response(200, text="hello", request=REQUEST), id="text"),
        pytest.param(httpx.Response(200, content=b"x", request=REQUEST), id="no type"),
        pytest.param(httpx.Response(204, request=REQUEST), id="204"),
        pytest.param(httpx.Response(200, headers={"Content-Type": "image/png"}, request=REQUEST), id="no body"),
        pytest.param(
            httpx.Response(200, content=b"x", headers={"Content-Type": "multipart/mixed"}, request=REQUEST),
            id="multipart without boundary",
        ),
    ],
)
def test_a_reply_without_pictures_is_not_one_of_this_api(response: httpx.Response) -> None:
    with pytest.raises(ReplyInvalid, match=r"http://server/v1/inpaint .* is it a Retouch server\?"):
        read_result(response)


@pytest.mark.parametrize("document", ["[]", "{}", '{"models": [{}]}', '{"models": 7}', "[" * 100_000])
def test_a_list_of_models_that_is_none_is_not_one_of_this_api(document: str) -> None:
    with pytest.raises(ReplyInvalid):
        read_models(httpx.Response(200, text=document, request=REQUEST))


def test_a_job_without_a_result_says_why() -> None:
    problem = {"status": 415, "code": "unsupported_type", "detail": "no picture", "retryable": False}
    failed = job_error(JobState("j1", "failed", "now", (), problem, None))
    assert isinstance(failed, JobFailed)
    assert (failed.status, failed.code, failed.retryable) == (415, "unsupported_type", False)
    assert str(failed) == "job j1 failed: unsupported_type: no picture"
    assert isinstance(job_error(JobState("j1", "cancelled", "now", (), None, None)), JobCancelled)
