"""The query parameters of a list of results, and its reply."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from service.core.schemas import ModelRef
from service.gallery.listing import ListQuery, ResultPage, Status
from service.saving.index_table import ResultRow

MOST_A_PAGE = 100
_WITHOUT_ITS_PLUS = re.compile(r":\d\d[\d:.,]{0,16} \d\d:?\d\d\Z")
"""Matches the end of a time with a space before its zone, which was a `+` before the URL was decoded."""


def _refuse_lost_plus(time: Any) -> Any:
    if isinstance(time, str) and _WITHOUT_ITS_PLUS.search(time):
        raise ValueError("in an address + is a space: write the + of a time zone as %2B, UTC as Z")
    return time


_Moment = Annotated[AwareDatetime, BeforeValidator(_refuse_lost_plus)]


class ResultsQuery(BaseModel):
    """Optional query parameters of GET /v1/results."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: ModelRef | None = Field(None, description="`name` or `name/version`")
    created_from: _Moment | None = Field(None, description="made then or later (RFC 3339)")
    created_before: _Moment | None = Field(None, description="made before then (RFC 3339)")
    status: Status | None = Field(None, description="`saving`: promised, on its way to its final place; `saved`: there")
    limit: int = Field(50, ge=1, le=MOST_A_PAGE, description="most results of a page")
    cursor: str | None = Field(
        None, max_length=256, description="`next_cursor` of the page before, with the same filter"
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

    id: str
    created: str = Field(description="RFC 3339")
    status: Literal["saving", "saved"]
    model: str = Field(description="`name/version`")
    media_type: str | None
    bytes: int | None
    width: int | None
    height: int | None
    url: str = Field(description="the picture; its sidecar with `Accept: application/json`")
    thumbnail_url: str


class ResultsReply(BaseModel):
    """A page of results, newest first."""

    results: list[ListedResult]
    next_cursor: str | None = Field(description="of the next page; null on the last one")


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
