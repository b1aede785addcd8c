"""The query parameters of a list of results, and its reply."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from service.core.schemas import ModelRef
from service.gallery.listing import ListQuery, ResultPage, Status
from service.saving.index_table import ResultRow

MAX_PAGE_SIZE = 100
_WITHOUT_ITS_PLUS = re.compile(r":\d\d[\d:.,]{0,16} \d\d:?\d\d\Z")
"""Matches the end of a time with a space before its zone, which was a `+` before the URL was decoded."""
_BEGINNING = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
"""Matches the beginning of a date and time; pydantic also reads numbers, as seconds or, if large, milliseconds."""


def _check_written_time(time: Any) -> Any:
    if isinstance(time, str) and not _BEGINNING.match(time):
        raise ValueError("send a date and time as RFC 3339 with a time zone, such as 2026-11-23T07:00:00Z")
    if isinstance(time, str) and _WITHOUT_ITS_PLUS.search(time):
        raise ValueError("in an address + is a space: write the + of a time zone as %2B, UTC as Z")
    return time


_Moment = Annotated[AwareDatetime, BeforeValidator(_check_written_time)]


class ResultsQuery(BaseModel):
    """Optional query parameters of GET /v1/results."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: ModelRef | None = Field(None, description="Only results of this model, as `name` or `name/version`.")
    created_from: _Moment | None = Field(None, description="Only results made at this time or later (RFC 3339).")
    created_before: _Moment | None = Field(None, description="Only results made before this time (RFC 3339).")
    status: Status | None = Field(
        None, description="Only results that are `saved`, or still on the way to their final place (`saving`)."
    )
    limit: int = Field(50, ge=1, le=MAX_PAGE_SIZE, description="Largest number of results on a page.")
    cursor: str | None = Field(
        None, max_length=256, description="`next_cursor` of the previous page. Send the same filter with it."
    )

    def of(self, owner: str) -> ListQuery:
        """Return the query for the results of an owner."""
        return ListQuery(
            owner=owner,
            limit=self.limit,
            model=self.model,
            created_from=None if self.created_from is None else self.created_from.timestamp(),
            created_before=None if self.created_before is None else self.created_before.timestamp(),
            status=self.status,
            cursor=self.cursor,
        )


class ListedResult(BaseModel):
    """One stored result."""

    model_config = ConfigDict(protected_namespaces=())

    id: str = Field(description="Id of the result, 32 hexadecimal digits.")
    created: str = Field(description="Time at which it was made (RFC 3339).")
    status: Literal["saving", "saved"] = Field(
        description="`saving`: on the way to its final place. `saved`: there. Both can be fetched."
    )
    model: str = Field(description="Model that computed it, as `name/version`.")
    media_type: str | None = Field(description="Media type, such as `image/png`; null if it is not known.")
    bytes: int | None = Field(description="Size of the file in bytes; null if it is not known.")
    width: int | None = Field(description="Width in pixels; null if it is not known.")
    height: int | None = Field(description="Height in pixels; null if it is not known.")
    url: str = Field(description="Path of the image.")
    thumbnail_url: str = Field(description="Path of its thumbnail.")


class ResultsReply(BaseModel):
    """A page of results, newest first."""

    results: list[ListedResult] = Field(description="The results of this page.")
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last one.")


def results_reply(page: ResultPage) -> ResultsReply:
    """Return the reply with a page."""
    return ResultsReply(results=[_listed(row) for row in page.rows], next_cursor=page.next_cursor)


def _listed(row: ResultRow) -> ListedResult:
    url = f"/v1/results/{row.id}"
    return ListedResult(
        id=row.id,
        created=datetime.fromtimestamp(row.created_at, timezone.utc).isoformat(timespec="milliseconds"),
        status="saved" if row.saved else "saving",
        model=row.model,
        media_type=row.facts.get("media_type"),
        bytes=row.facts.get("bytes"),
        width=row.facts.get("width"),
        height=row.facts.get("height"),
        url=url,
        thumbnail_url=f"{url}/thumbnail",
    )
