"""The files that a browser loads for the page, as `make page` built them, with their headers."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE_PATHS = ("/", "/page/app.js", "/page/page.css", "/page/icon.svg")
"""The page's paths; none needs a key, as the page asks for one itself."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_BUILT = Path(__file__).parent / "built"


@dataclass(frozen=True)
class PageFile:
    """One file of the page."""

    body: bytes
    media_type: str

    @property
    def compressed(self) -> bytes:
        """The body as gzip; equal bodies give equal bytes."""
        return gzip.compress(self.body, 9, mtime=0)


def page_files() -> dict[str, PageFile]:
    """Read the page's files, by path."""
    return {
        "/": PageFile((_BUILT / "index.html").read_bytes(), "text/html"),
        "/page/app.js": PageFile((_BUILT / "app.js").read_bytes(), "text/javascript"),
        "/page/page.css": PageFile((_BUILT / "page.css").read_bytes(), "text/css"),
        "/page/icon.svg": PageFile((_BUILT / "icon.svg").read_bytes(), "image/svg+xml"),
    }


@dataclass(frozen=True)
class Representation:
    """The bytes of a file as a client accepts them, with the headers of its reply."""

    body: bytes
    media_type: str
    headers: Mapping[str, str]


def representations(file: PageFile) -> tuple[Representation, Representation]:
    """Return the file uncompressed and as gzip. Browsers cache both, but revalidate them each time."""

    def made(body: bytes, encoding: Mapping[str, str]) -> Representation:
        headers = {
            "Content-Security-Policy": CSP,
            "Cache-Control": "no-cache",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "Vary": "Accept-Encoding",
        }
        return Representation(body, file.media_type, {**headers, **encoding})

    return made(file.body, {}), made(file.compressed, {"Content-Encoding": "gzip"})
