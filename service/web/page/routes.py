"""The routes of the page. All of its URLs are relative, so that it works behind a path prefix of a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fastapi import APIRouter, Request, Response

from service.web.page.files import PAGE_PATHS, Representation, page_files, representations
from service.web.request_headers import etag_matches, joined_lines, preferred_types


def page_router() -> APIRouter:
    """Make the routes; the files are read once per process, so changes need a restart."""
    found = _found()
    router = APIRouter(include_in_schema=False)

    async def page_file(request: Request) -> Response:
        plain, compressed = found[request.scope["route"].path]
        accepted = preferred_types(joined_lines(request.headers, "accept-encoding"))
        chosen = compressed if "gzip" in accepted else plain
        if etag_matches(joined_lines(request.headers, "if-none-match"), chosen.headers["ETag"]):
            return Response(status_code=304, headers=dict(chosen.headers))
        return Response(chosen.body, media_type=chosen.media_type, headers=dict(chosen.headers))

    for path in PAGE_PATHS:
        router.add_api_route(path, page_file, methods=["GET"])
    return router


@cache  # joining and compressing the scripts takes as long as the rest of a server's start
def _found() -> Mapping[str, tuple[Representation, Representation]]:
    return {path: representations(file) for path, file in page_files().items()}
