"""The routes of stored results. To fetch a result its id suffices; listing, thumbnails and deletion need its owner."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from service.app import Service
from service.auth.exposure import is_loopback
from service.auth.links import LINK_PATH
from service.core.errors import InvalidOption, NotFound, NotReady, ServiceError
from service.core.flow import Flow, owner_of
from service.gallery.deletion import gone, no_result
from service.gallery.thumbnails import MEDIA_TYPE
from service.intake.request_metadata import single_value
from service.web import openapi
from service.web.request_headers import etag_matches, joined_lines, wants_json
from service.web.results.byte_range import wanted_range
from service.web.results.listing import ResultsQuery, ResultsReply, results_reply


def _refuse_repeats(request: Request) -> None:
    """Refuse a query parameter that is given more than once.

    Raises:
        InvalidOption: a parameter is repeated; the message names it.
    """
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in counts.items():
        if count > 1:
            raise InvalidOption(f"`{name[:80]}` is given {count} times in the address; give it once")


router = APIRouter()
gallery_router = APIRouter(dependencies=[Depends(_refuse_repeats)])
"""Routes that exist only if results have owners, or if only this machine can send requests."""
link_router = APIRouter(dependencies=[Depends(_refuse_repeats)])
"""The route of links, which exists only if the server has a public URL; it checks a signature and needs no key."""
_Id = Annotated[
    str,
    Path(
        description="Id of the result, from its `Location`: 32 hexadecimal digits.",
        json_schema_extra={"example": 32 * "0"},
    ),
]
_Expires = Annotated[str, Query(description="Time at which the link expires, in seconds since 1970, as in the link.")]
_Signature = Annotated[str, Query(description="Signature of the server, as in the link.")]
_FOR_EVER = "private, max-age=31536000, immutable"
"""Cache-Control of a result, which never changes; a DELETE of the same URL removes it from the client's cache."""
_ASK_AGAIN = "private, no-cache"
"""Cache-Control of a thumbnail, or of a result behind a link: caches must revalidate it with its entity tag, because it
may have been deleted or the link may have expired."""


@router.get("/v1/results/{result_id}", summary="Get a result", tags=["results"], **openapi.result_route())
async def get_result(request: Request, result_id: _Id) -> Response:
    """Get a stored image, or a range of its bytes. With `Accept: application/json` get its description (sidecar)."""
    service: Service = request.state.service
    as_json = wants_json(joined_lines(request.headers, "accept"))
    etag = f'"{result_id}{".json" if as_json else ""}"'  # a result never changes: its id identifies its bytes
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept", "ETag": etag}
    unchanged = etag_matches(joined_lines(request.headers, "if-none-match"), etag)
    if as_json or unchanged:
        if (sidecar := await service.results.sidecar(result_id)) is not None:
            shown = {name: value for name, value in sidecar.items() if name != "owner"}
            return Response(status_code=304, headers=headers) if unchanged else JSONResponse(shown, headers=headers)
    elif (found := await service.results.image(result_id)) is not None:
        return _picture(request, *found, headers)
    raise await _missing_error(request, result_id)


@link_router.get(LINK_PATH, summary="Get a result by a link", tags=["results"], **openapi.result_route(link=True))
async def get_shared_result(
    request: Request, result_id: _Id, expires: _Expires = "", signature: _Signature = ""
) -> Response:
    """Get a stored image by a signed link, without an API key.

    OpenAI's `response_format=url` makes such links. They can be used for an hour.
    """
    service: Service = request.state.service
    if service.links is None:
        raise no_result(result_id)
    service.links.check(result_id, expires, signature)
    headers = {"Cache-Control": _ASK_AGAIN, "ETag": f'"{result_id}"'}
    if etag_matches(joined_lines(request.headers, "if-none-match"), headers["ETag"]):
        if await service.results.sidecar(result_id) is not None:
            return Response(status_code=304, headers=headers)
    elif (found := await service.results.image(result_id)) is not None:
        return _picture(request, *found, headers)
    raise await _missing_error(request, result_id, linked=True)


def _picture(request: Request, body: bytes, media_type: str, headers: dict[str, str]) -> Response:
    headers = {**headers, "Accept-Ranges": "bytes"}
    asked = single_value(request.headers, "Range") if request.method == "GET" else None
    part = wanted_range(asked, single_value(request.headers, "If-Range"), headers["ETag"], len(body))
    if part is None:
        return Response(body, media_type=media_type, headers=headers)
    return Response(part.cut(body), 206, {**headers, "Content-Range": part.content_range}, media_type)


@gallery_router.get(
    "/v1/results",
    summary="List results",
    tags=["results"],
    response_model=ResultsReply,
    **openapi.uncached_route("A page of results.", "cursor_invalid"),
)
async def list_results(request: Request, query: Annotated[ResultsQuery, Query()]) -> Response:
    """List the results that belong to the key of the request, newest first.

    Send `next_cursor` as `cursor` to get the next page. On a server without keys this works on its own machine only,
    and lists the results that were made without a key.
    """
    service: Service = request.state.service
    page = await service.gallery.listing.page(query.of(_owner(request)))
    return JSONResponse(results_reply(page).model_dump(), headers={"Cache-Control": "no-store"})


@gallery_router.get(
    "/v1/results/{result_id}/thumbnail", summary="Get a thumbnail", tags=["results"], **openapi.thumbnail()
)
async def get_thumbnail(request: Request, result_id: _Id) -> Response:
    """Get a stored image as WebP, at most 320 pixels wide and high."""
    service: Service = request.state.service
    _owner(request)
    etag = f'W/"{result_id}.thumbnail"'
    headers = {"Cache-Control": _ASK_AGAIN, "ETag": etag}
    if etag_matches(joined_lines(request.headers, "if-none-match"), etag.removeprefix("W/")):
        if await service.results.sidecar(result_id) is not None:
            return Response(status_code=304, headers=headers)
    elif (made := await service.gallery.thumbnails.get(result_id, Flow(request.state.client.id))) is not None:
        return Response(made, media_type=MEDIA_TYPE, headers=headers)
    raise await _missing_error(request, result_id)


@gallery_router.delete(
    "/v1/results/{result_id}", summary="Delete a result", tags=["results"], **openapi.deleted_result()
)
async def delete_result(request: Request, result_id: _Id) -> Response:
    """Delete a result that belongs to the key of the request. Nobody can fetch it any more."""
    service: Service = request.state.service
    whole = await service.gallery.deletion.delete(result_id, _owner(request))
    service.metrics.results_deleted.inc()
    return Response(status_code=204 if whole else 202)


def _owner(request: Request) -> str:
    """Return the owner of this client's results.

    Raises:
        NotFound: the client has no key and, according to a proxy, is not on this machine.
    """
    kind, _, address = request.state.client.id.partition(":")
    if kind == "address" and not is_loopback(address):
        raise NotFound("no such path; GET /docs lists them")
    return owner_of(request.state.client.id)


async def _missing_error(request: Request, result_id: str, *, linked: bool = False) -> ServiceError:
    """Return the error for a result that no longer exists.

    The status is 410 for a deleted result's owner and for holders of a link to it, otherwise 404.
    """
    service: Service = request.state.service
    row = await service.results.known(result_id)
    if row is not None and row.deleted and (linked or row.owner == owner_of(request.state.client.id)):
        return gone(result_id)
    if row is not None and row.saved and not row.deleted:  # retention, or another program, has removed its files
        with suppress(ServiceError):
            await service.results.forget(result_id)
    if row is not None and not row.saved and not row.deleted and service.settings.ledger_url:
        why = f"result {result_id} is still on the host that made it; try again later"
        return NotReady(why, code="storage_unavailable", retry_after_s=1)
    return no_result(result_id)
