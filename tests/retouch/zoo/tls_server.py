"""A server of generated files on loopback, with certificates for several hosts from its own authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOSTS = ("files.example", "cdn.example")


@dataclass
class Answer:
    """The server's answer to a URL: a file, a redirect, or something broken."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Content-Length, if not the body's length; -1 for none."""
    stops_at: int | None = None
    ranges: bool = False


@dataclass
class FileServer:
    """A running server: its answers by URL, and the requests that it has received."""

    port: int
    context: ssl.SSLContext
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        return dict.fromkeys((*HOSTS, "stranger.example"), ("127.0.0.1", self.port))


@contextmanager
def file_server(folder: Path) -> Iterator[FileServer]:
    authority = _write_certificates(folder)
    server = _Server(("127.0.0.1", 0), _Handler)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.pem")
    server.socket = server_context.wrap_socket(server.socket, server_side=True)
    served = FileServer(server.server_address[1], ssl.create_default_context(cafile=str(authority)))
    server.served = served  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Log nothing: clients that refuse a certificate or an answer hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        served: FileServer = self.server.served  # type: ignore[attr-defined]
        url = f"https://{self.headers['Host']}{self.path}"
        served.requests.append((url, self.headers.get("Range")))
        answer = served.answers.get(url, Answer(status=404))
        body, status, headers = answer.body, answer.status, dict(answer.headers)
        if answer.ranges and (span := self.headers.get("Range")):
            begin = int(span.removeprefix("bytes=").rstrip("-"))
            headers.setdefault("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
            body, status = body[begin:], 206
        self.send_response(status)
        if answer.length != -1:
            self.send_header("Content-Length", str(len(body) if answer.length is None else answer.length))
        for name, content in headers.items():
            self.send_header(name, content)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[: answer.stops_at])
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Discard the server's log."""


def _write_certificates(folder: Path) -> Path:
    """Write server.pem (key, certificate) and authority.pem; returns the latter."""
    now = dt.datetime.now(dt.timezone.utc)
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a test")])

    def signed(name: x509.Name, of: Any, *extensions: tuple[Any, bool]) -> bytes:
        builder = x509.CertificateBuilder(issuer_name=root_name, subject_name=name, public_key=of.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(root_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    identifier = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
    usage = x509.KeyUsage(*[index in {0, 5, 6} for index in range(9)])
    root = signed(
        root_name, root_key, (x509.BasicConstraints(ca=True, path_length=0), True), (identifier, False), (usage, True)
    )
    names = [*map(x509.DNSName, HOSTS), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    leaf = signed(x509.Name([]), key, (x509.SubjectAlternativeName(names), True), (issuer, False))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + leaf)
    (folder / "authority.pem").write_bytes(root)
    return folder / "authority.pem"
