"""What a person sees who prints a result or a job."""

from __future__ import annotations

import pytest

from retouch.client import AsyncRetouch, Picture, Retouch

ID = "0123456789abcdef0123456789abcdef"


def test_a_printed_picture_does_not_show_its_file() -> None:
    assert repr(Picture(b"\x89PNG", "image/png", "/v1/results/1")) == (
        "Picture(media_type='image/png', url='/v1/results/1')"
    )


@pytest.mark.parametrize(("client", "printed"), [(Retouch, f"Job('{ID}')"), (AsyncRetouch, f"AsyncJob('{ID}')")])
def test_a_printed_job_shows_its_id(client: type[Retouch | AsyncRetouch], printed: str) -> None:
    assert repr(client().job(ID)) == printed
