"""A server that follows a bucket serves the versions pushed to it, and keeps serving when it is unreachable."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from retouch.commands.models import models_app
from service.core.settings import SettingsInvalid
from service.remote_models.assembly import parse_models_url
from tests.service.remote_models.conftest import write_version
from tests.serving.backing.s3_server import serving_bucket
from tests.serving.local_server import Serve
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
Files = dict[str, tuple[str, bytes, str]]
URL = "s3://results/models"


def test_what_the_command_pushes_is_served_and_what_it_withdraws_is_not(
    serve: Serve, tmp_path: Path, source: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*arguments: str) -> str:
        done = CliRunner().invoke(models_app, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    def model_of_a_reply() -> str:
        return str(http.post("/v1/inpaint", files=files).headers.get("x-model"))

    with serving_bucket(tmp_path) as s3:
        monkeypatch.setenv("RETOUCH_S3_ENDPOINT", f"http://127.0.0.1:{s3.port}")
        monkeypatch.setenv("RETOUCH_MODELS_DIR", str(source))
        for version in (1, 2):
            write_version(source, version)
        assert command("push", "photos/1", f"--to={URL}").startswith("pushed photos/1: 2 files")
        endpoint = f"http://127.0.0.1:{s3.port}"
        running = serve(models_dir=tmp_path / "fetched", models_url=URL, s3_endpoint=endpoint)
        http: httpx.Client
        with running.client() as http:
            assert model_of_a_reply() == "photos/1"
            command("push", "photos/2", f"--to={URL}")
            wait_until(lambda: model_of_a_reply() == "photos/2")
            command("withdraw", "photos/2", f"--from={URL}")
            wait_until(lambda: model_of_a_reply() == "photos/1")
            assert "retouch_models_failing_seconds 0.0" in http.get("/metrics").text
    with running.client() as http:  # the bucket is down
        wait_until(lambda: "retouch_models_failing_seconds 0.0" not in http.get("/metrics").text)
        assert model_of_a_reply() == "photos/1"


@pytest.mark.parametrize(
    ("url", "share"), [(URL, 1.0), (f"{URL}?share=0.5", 0.5), (f"{URL}?share=0", 0.0), (f"{URL}?share=1", 1.0)]
)
def test_the_share_of_the_hosts_is_part_of_the_address(url: str, share: float) -> None:
    assert parse_models_url(url) == (URL, share)


@pytest.mark.parametrize(
    "query", ["share=", "share=2", "share=-1", "share=all", "nodes=1", "share=1&share=1", "share=nan"]
)
def test_an_address_that_asks_for_something_else_stops_the_start(query: str) -> None:
    with pytest.raises(SettingsInvalid, match="models_url"):
        parse_models_url(f"{URL}?{query}")


def test_the_error_about_an_address_has_no_keys_of_it() -> None:
    with pytest.raises(SettingsInvalid, match="models_url") as refused:
        parse_models_url("s3://user:secret@results/models?share=all")
    assert "secret" not in str(refused.value)
