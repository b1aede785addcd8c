"""The nginx configuration that docs/operations.md recommends, before a real server."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.harness.processes import started
from benchmarks.requests.proxies import NGINX
from service.auth.links import Links
from tests.serving.bad_request import MASK, PHOTO
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.local_server import serving
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
_PAGE = Path(__file__).parents[2] / "docs/operations.md"
_WHOLE = """daemon off; pid {folder}/nginx.pid; error_log stderr error; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  {recommended}
}}
"""


def recommended(port: int, upstream: str, log: Path) -> str:
    """Return the documentation's block with this test's addresses and without TLS."""
    found = re.search(r"```nginx\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    block = found[1]
    for written, here in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
        ("http://127.0.0.1:8000", upstream),
        ("/var/log/nginx/retouch.log", str(log)),
    ):
        assert block.count(written) == 1, written
        block = block.replace(written, here)
    return block


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """URL of the proxy, under a name that is not one of loopback's."""
    port = free_port()
    public = f"http://images.example:{port}"
    with serving(tmp_path, models_dir=write_photos_and_facades(tmp_path / "models"), public_url=public) as server:
        config = tmp_path / "nginx.conf"
        block = recommended(port, server.url, tmp_path / "access.log")
        config.write_text(_WHOLE.format(folder=tmp_path, recommended=block))
        with started([str(NGINX), "-c", str(config), "-p", str(tmp_path)], port, tmp_path / "nginx.log"):
            wait_until(lambda: _answers(port))
            yield public


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_the_servers_own_page_may_send_although_it_is_on_a_port_of_its_own(url: str) -> None:
    host = url.removeprefix("http://")
    files = {"image": PHOTO, "mask": MASK}
    here = f"http://127.0.0.1:{host.rpartition(':')[2]}"
    own = httpx.post(f"{here}/v1/inpaint", files=files, headers={"Host": host, "Origin": url})
    assert own.status_code == 200, own.text
    other = {"Host": host, "Origin": "http://images.example:1"}
    assert httpx.post(f"{here}/v1/inpaint", files=files, headers=other).status_code == 403


def test_its_log_has_the_paths_of_links_and_not_their_signatures(url: str, tmp_path: Path) -> None:
    link = Links(url, (b"k" * 32,), time.time).url_of("0" * 32)
    host = url.removeprefix("http://")
    here = link.replace(host, f"127.0.0.1:{host.rpartition(':')[2]}")
    assert httpx.get(here, headers={"Host": host}).status_code == 403
    log = tmp_path / "access.log"
    wait_until(lambda: "/shared" in log.read_text())
    assert "signature" not in log.read_text()
