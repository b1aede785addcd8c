"""Reverse proxies before a server: Caddy as docker/ configures it, plain Caddy, and nginx."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.harness.inputs import ROOT
from benchmarks.harness.processes import Server, started
from tests.serving.ports import free_port

CADDY = Path(sys.executable).with_name("caddy")
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")

_PLAIN_CADDY = "{\n\tadmin off\n}\nhttp://localhost:%d {\n\treverse_proxy 127.0.0.1:%d\n}\n"
_NGINX = """daemon off; pid %(folder)s/nginx.pid; error_log stderr error; worker_processes 1;
events { worker_connections 2048; }
http {
  access_log off;
  client_body_temp_path %(folder)s/body; proxy_temp_path %(folder)s/proxy; fastcgi_temp_path %(folder)s/fastcgi;
  uwsgi_temp_path %(folder)s/uwsgi; scgi_temp_path %(folder)s/scgi;
  map $http_upgrade $asked { default upgrade; '' ''; }
  upstream retouch { server 127.0.0.1:%(upstream)d; keepalive 8; }
  server {
    listen 127.0.0.1:%(port)d;
    client_max_body_size 64m;
    keepalive_requests 1000000;
    location / {
      proxy_pass http://retouch;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $asked;
    }
  }
}
"""
"""The usual configuration for servers with WebSocket: `Upgrade` is forwarded."""


@contextlib.contextmanager
def shipped_caddy(upstream: int, folder: Path) -> Iterator[Server]:
    """Start Caddy with docker/Caddyfile, on plain HTTP."""
    port = free_port()
    config = folder / "Caddyfile"
    here = f"{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {port}\n"
    config.write_text((ROOT / "docker/Caddyfile").read_text().replace("{\n", here, 1))
    environ = {"RETOUCH_DOMAIN": f"http://localhost:{port}", "RETOUCH_UPSTREAM": f"127.0.0.1:{upstream}"}
    with _caddy(config, port, environ) as server:
        yield server


@contextlib.contextmanager
def plain_caddy(upstream: int, folder: Path) -> Iterator[Server]:
    """Start Caddy with the shortest configuration; it forwards `Upgrade`."""
    port = free_port()
    config = folder / "plain.Caddyfile"
    config.write_text(_PLAIN_CADDY % (port, upstream))
    with _caddy(config, port, {}) as server:
        yield server


@contextlib.contextmanager
def nginx(upstream: int, folder: Path) -> Iterator[Server]:
    """Start nginx; it forwards `Upgrade` and streams bodies."""
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX % {"folder": folder, "upstream": upstream, "port": port})
    with started([str(NGINX), "-c", str(config), "-p", str(folder)], port, folder / "nginx.log") as server:
        yield server


def _caddy(config: Path, port: int, environ: dict[str, str]) -> AbstractContextManager[Server]:
    places = {name: str(config.parent) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME")}
    command = [str(CADDY), "run", "--config", str(config), "--adapter", "caddyfile"]
    return started(command, port, config.with_suffix(".log"), {**environ, **places})


PROXIES: dict[str, tuple[bool, Callable[[int, Path], AbstractContextManager[Server]]]] = {
    "Caddy, docker/Caddyfile": (CADDY.exists(), shipped_caddy),
    "Caddy, Upgrade passed on": (CADDY.exists(), plain_caddy),
    "nginx, Upgrade passed on": (NGINX is not None, nginx),
}
"""By name: whether the proxy is installed, and the function that starts it."""
