"""Stored results and jobs, over a real socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.web.replies import Files, Serve, check_problem, poll
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until


def stored_pictures(folder: Path) -> list[Path]:
    return list((folder / "results").glob("??/*.png"))  # not those that are being written


def test_a_saved_result_can_be_fetched_with_its_sidecar(serve: Serve, files: Files, tmp_path: Path) -> None:
    running = serve()
    with running.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"quality": "80"}, headers={"X-Request-ID": "r1"})
        location = response.headers["location"]
        stored = client.get(location)
        assert stored.content == response.content
        assert stored.headers["content-type"] == "image/png"
        sidecar = client.get(location, headers={"Accept": "application/json"}).json()
        assert sidecar["request_id"] == "r1"
        assert sidecar["model"] == "photos/1"
        assert sidecar["options"]["quality"] == 80
        wait_until(lambda: len(stored_pictures(tmp_path)) == 1)
        assert client.get(location).content == response.content


def test_an_unsaved_result_has_no_location(serve: Serve, files: Files, tmp_path: Path) -> None:
    running = serve()
    with running.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"save": "false"})
        json = client.post(
            "/v1/inpaint", files=files, data={"save": "no"}, headers={"Accept": "application/json"}
        ).json()
    assert "location" not in response.headers
    assert json["result_url"] is None
    with running.client() as client:  # pictures are stored in the order of their replies
        saved = client.post("/v1/inpaint", files=files).headers["location"].rpartition("/")[2]
    wait_until(lambda: any(saved in path.name for path in stored_pictures(tmp_path)))
    assert len(stored_pictures(tmp_path)) == 1


@pytest.mark.parametrize(
    "path", ["/v1/results/none", f"/v1/results/{'0' * 32}", "/v1/results/..%2F..%2Fetc", "/v1/jobs/x"]
)
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_what_was_never_stored_is_not_found(server: Running, path: str, accept: str) -> None:
    with server.client() as client:
        check_problem(client.get(path, headers={"Accept": accept}), 404, "not_found")


def test_an_asynchronous_request_is_a_job_that_can_be_polled_to_its_result(server: Running, files: Files) -> None:
    with server.client() as client:
        direct = client.post("/v1/inpaint", files=files).content
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert accepted.status_code == 202
        assert accepted.headers["preference-applied"] == "respond-async"
        job = poll(client, accepted.headers["location"])
        assert job["status"] == "succeeded"
        assert client.get(job["result_url"]).content == direct


def test_no_cache_keeps_the_state_of_a_job(server: Running, files: Files) -> None:
    with server.client() as client:
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        location = accepted.headers["location"]
        states = [client.get(location), client.delete(location)]
        assert [state.headers.get("cache-control") for state in states] == 2 * ["no-store"]


def test_a_job_that_fails_says_why(server: Running, mask: bytes) -> None:
    with server.client() as client:
        accepted = client.post(
            "/v1/inpaint", files={"image": b"GIF89a nonsense", "mask": mask}, headers={"Prefer": "respond-async"}
        )
        job = poll(client, accepted.headers["location"])
    assert job["status"] == "failed"
    assert job["problem"]["status"] == 415


def test_a_job_can_be_cancelled_and_frees_its_slot(serve: Serve, files: Files) -> None:
    running = serve(fake_batch_ms=0)
    with running.client() as client:
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert client.delete(accepted.headers["location"]).status_code == 200
        assert poll(client, accepted.headers["location"])["status"] in ("cancelled", "succeeded")
        wait_until(lambda: "retouch_requests_in_flight 0.0" in client.get("/metrics").text)


def test_a_job_without_saving_would_have_no_result(server: Running, files: Files) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"save": "false"}, headers={"Prefer": "respond-async"})
        check_problem(response, 422, "job_needs_save")


def test_on_a_server_that_saves_on_request_alone_a_job_must_ask_for_it(serve: Serve, files: Files) -> None:
    later = {"Prefer": "respond-async"}
    with serve(save=False).client() as client:
        refused = client.post("/v1/inpaint", files=files, headers=later)
        assert "save=true" in check_problem(refused, 422, "job_needs_save")["detail"]
        assert client.post("/v1/inpaint", files=files, data={"save": "true"}, headers=later).status_code == 202


def test_a_client_that_has_a_result_already_gets_304(server: Running, files: Files) -> None:
    with server.client() as client:
        location = client.post("/v1/inpaint", files=files).headers["location"]
        image, sidecar = client.get(location), client.get(location, headers={"Accept": "application/json"})
        assert image.headers["etag"] != sidecar.headers["etag"]
        again = client.get(location, headers={"If-None-Match": f'"other", W/{image.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", image.headers["etag"])
        assert client.get(location, headers={"If-None-Match": sidecar.headers["etag"]}).status_code == 200
        gone = f"/v1/results/{'0' * 32}"
        assert client.get(gone, headers={"If-None-Match": f'"{"0" * 32}"'}).status_code == 404
