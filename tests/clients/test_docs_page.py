"""`/docs` in a real browser: every call can be tried out on the fresh page after choosing only the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import PICTURES
from playwright.sync_api import Browser, Locator, Page, expect

FILES = {
    "inpaint": {"image": PICTURES / "dress.jpg", "mask": PICTURES / "dress_mask.png"},
    "translate": {"image": PICTURES / "facade_labels.png"},
}
CALLS = {
    "pictures-inpaint": "200",
    "pictures-translate": "200",
    "pictures-generate": "200",
    "jobs-get_job": "404",  # the example id does not exist
    "jobs-cancel_job": "404",
    "results-get_result": "404",
    "results-list_results": "200",
    "results-get_thumbnail": "404",
    "results-delete_result": "404",
    "models-list_models": "200",
    "models-get_model": "200",
    "models-get_version": "200",
    "operations-livez": "200",
    "operations-readyz": "200",
    "operations-metrics": "200",
}


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The documentation page; an error on its console fails the test."""
    opened = browser.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(f"{url}/docs")
    yield opened
    opened.close()
    assert [error for error in errors if "404" not in error] == []


def opened(page: Page, call: str) -> Locator:
    """Open a call's block, ready to be executed."""
    block = page.locator(f"#operations-{call}")
    block.locator(".opblock-summary-control").click()
    block.locator(".try-out__btn").click()
    for name, path in FILES.get(call.partition("-")[2], {}).items():
        block.locator(f'tr[data-property-name="{name}"] input[type=file]').set_input_files(path)
    return block


def executed(block: Locator) -> str:
    """Execute the call and return the reply's status."""
    block.locator("button.execute").click()
    status = block.locator(".live-responses-table .response .response-col_status")
    expect(status).not_to_be_empty(timeout=60_000)
    return status.inner_text().split()[0]


def test_every_call_of_the_document_is_tried(document: dict[str, Any]) -> None:
    calls = [call for path in document["paths"].values() for call in path.values()]
    calls = [call for call in calls if "default" not in call["responses"]]  # foreign APIs take files in base64
    assert {f"{call['tags'][0]}-{call['operationId']}" for call in calls} == set(CALLS)


@pytest.mark.parametrize(("call", "status"), CALLS.items())
def test_a_call_executes_as_the_page_opens(page: Page, call: str, status: str) -> None:
    block = opened(page, call)
    assert executed(block) == status, block.locator(".live-responses-table").inner_text()


@pytest.mark.parametrize("call", ["pictures-inpaint", "pictures-translate"])
def test_the_picture_is_shown(page: Page, call: str) -> None:
    block = opened(page, call)
    executed(block)
    shown = block.locator(".live-responses-table img")
    expect(shown).to_be_visible()
    assert shown.evaluate("image => image.naturalWidth") > 0


def test_it_executes_with_every_empty_value_sent_too(page: Page) -> None:
    block = opened(page, "pictures-inpaint")
    for field in block.locator("tr[data-property-name] input[type=text]").all():
        field.fill("")
    for box in block.locator('.parameter__empty_value_toggle input[type="checkbox"]').all():
        if box.is_enabled():
            box.check()
    assert executed(block) == "200", block.locator(".live-responses-table").inner_text()
