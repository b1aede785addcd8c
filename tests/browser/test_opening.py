"""Opening the page: behind a proxy's prefix, under a host name without HTTPS, and while the server starts."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import CHROMIUM, ROOT, SWITCHES, OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded, noise
from tests.browser.test_gallery import REFUSED
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

PREFIX = "/behind"
PASSED_ON = ("Content-Type", "Content-Security-Policy", "ETag", "X-Seed")
PHOTOGRAPHS = (PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
COPY_A_PICTURE = """async () => {
    const canvas = new OffscreenCanvas(40, 30);
    canvas.getContext("2d").fillRect(0, 0, 20, 30);
    const blob = await canvas.convertToBlob();
    await navigator.clipboard.write([new ClipboardItem({"image/png": blob})]);
}"""
CARRIED = """files => {
    const carried = new DataTransfer();
    for (const [name, bytes] of Object.entries(files)) carried.items.add(new File([new Uint8Array(bytes)], name));
    return carried;
}"""
DECODE_LATER = """() => {
    const decode = createImageBitmap;
    const gate = new Promise(resolve => { globalThis.goOn = resolve; });
    globalThis.createImageBitmap = (...what) => gate.then(() => decode(...what));
}"""
HEIC: dict[str, object] = {"name": "1.heic", "mimeType": "image/heic", "buffer": b"\0\0\0\x18ftypheic"}
COMPILED_MS = 180_000
"""Longest time in which a busy machine compiles the larger model."""


@pytest.fixture
def behind(url: str) -> Iterator[str]:
    """URL of a proxy that forwards paths under `PREFIX` to the server, and answers 404 otherwise."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
            address = url.rstrip("/") + self.path.removeprefix(PREFIX)
            reply = httpx.request(self.command, address, content=body, headers=headers, timeout=60)
            self.send_response(reply.status_code)
            for name in PASSED_ON:
                if name in reply.headers:
                    self.send_header(name, reply.headers[name])
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        def log_message(self, *_: object) -> None:
            """Discard the server's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}{PREFIX}/"
    server.shutdown()


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[str]:
    """URL of a server that has loaded a model that translates, a default, and still compiles one that fills."""
    models = tmp_path / "models"
    models.mkdir()
    for name in ("facades", "photos-large"):
        (models / name).symlink_to(ROOT / "models" / name)
    command = [ROOT / ".venv/bin/retouch", "serve"]
    server = ServedProcess(tmp_path, command=command, engine="auto", models_dir=models)
    try:
        server.start(ready=False)
        wait_until(lambda: httpx.get(f"{server.url}/v1/models").json()["models"] != [], COMPILED_MS / 1000)
        assert httpx.get(f"{server.url}/readyz").status_code == 503, "all models were there at once"
        yield f"{server.url}/"
    finally:
        server.kill()


def test_nothing_can_be_pressed_before_the_script_is_there(browser: Browser, url: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/app.js", hold)
        page.goto(url, wait_until="commit")
        wait_until(lambda: page.evaluate("document.readyState") == "interactive")
        assert page.locator(":is(button, select, input:not([type=file])):visible:enabled").count() == 0
        held[0].continue_()
        expect(page.locator("#open-first")).to_be_enabled()
        expect(page.locator("#undo")).to_be_disabled()  # there is nothing to undo


def test_without_javascript_the_page_says_what_it_needs(browser: Browser, url: str) -> None:
    """Playwright's own option stops scripts, but does not show the content of `noscript`."""
    switches = [*SWITCHES, "--blink-settings=scriptEnabled=false"]
    with browser.browser_type.launch(executable_path=CHROMIUM, args=switches) as without:
        page = without.new_page()
        page.goto(url)
        assert page.locator("noscript p").bounding_box()["height"] > 10
        assert page.inner_text("noscript") == "This page needs JavaScript."


def test_no_name_that_modules_share_is_a_global_of_the_browser(browser: Browser) -> None:
    """All modules are joined into one function, where such a name would hide the browser's object from all of them."""
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "service/web/page/static").rglob("*.js"))
    names = set(re.findall(r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)", code, re.M))
    with browser.new_context() as context:  # an empty page, as the ids of elements become globals, too
        found = context.new_page().evaluate("names => names.filter(name => name in globalThis)", sorted(names))
    assert set(found) <= {"History"}  # a constructor that the page does not use


def test_it_loads_fills_and_saves_behind_a_prefix(open_tab: OpenTab, behind: str) -> None:
    tab = open_tab(behind).open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.fill()
    assert tab.saved().size == (256, 341)
    tab.page.click("#code")
    assert f"{behind}v1/inpaint" in tab.page.inner_text("#code-curl")


def test_photographs_are_dropped_and_what_is_none_is_named(tab: Tab) -> None:
    dropped = {path.name: list(path.read_bytes()) for path in PHOTOGRAPHS}
    refused = ({"notes.txt": [65, 66]}, "notes.txt cannot be opened: damaged")
    for files, said in (refused, (dropped, "2 photographs are open")):
        data = tab.page.evaluate_handle(CARRIED, files)
        for kind in ("dragover", "drop"):
            tab.page.dispatch_event("#empty", kind, {"dataTransfer": data})
        tab.says(said)
    expect(tab.page.locator("#strip li")).to_have_count(2)
    assert "dropping" not in (tab.page.get_attribute("#stage", "class") or "")


def test_a_picture_of_another_page_that_is_dropped_as_a_link_is_not_passed_over(tab: Tab) -> None:
    data = tab.page.evaluate_handle(
        """() => {
            const carried = new DataTransfer();
            carried.setData("text/uri-list", "https://images.example/cat.jpg");
            return carried;
        }"""
    )
    tab.page.dispatch_event("#empty", "drop", {"dataTransfer": data})
    tab.says("That is a link, not a file: save the picture first, then open it.")


@pytest.mark.parametrize("kind", ["GIF", "AVIF", "BMP"])
def test_a_format_that_only_the_browser_reads_is_opened_as_png(tab: Tab, kind: str) -> None:
    pixels = np.asarray(Image.new("RGB", (60, 40), (30, 140, 220)))
    tab.open(encoded(pixels, f"sky.{kind.lower()}", kind))
    tab.says(f"sky.png is open. sky.{kind.lower()} was converted to PNG; an animation becomes its first frame.")
    tab.collect().brush(10)
    tab.drag(((20, 20), (30, 20)))
    tab.fill()
    saved = tab.saved()
    assert saved.size == (60, 40)
    assert np.abs(np.asarray(saved.convert("RGB"))[:8].astype(int) - pixels[:8]).max() <= 3


@pytest.mark.parametrize("kind", ["PNG", "WebP", "GIF"])
def test_of_an_animation_the_first_frame_is_opened(tab: Tab, kind: str) -> None:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("#00f", "#f00")]
    name = f"dancing.{kind.lower()}"
    tab.open(encoded(frames[0], name, kind, save_all=True, append_images=frames[1:], lossless=True))
    tab.says(f"{name} was converted to PNG; an animation becomes its first frame.")
    assert tab.saved().convert("RGB").getpixel((10, 10)) == (0, 0, 255)
    tab.page.click("#close")
    tab.open(encoded(frames[0], f"still.{kind.lower()}", kind, save_all=True))


def test_a_folder_that_is_dropped_is_refused_by_its_name(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    tab.drop(tmp_path / "holiday", (200, 200))
    tab.says("holiday cannot be read: a folder, or no longer there")


def test_a_photograph_that_leaves_the_disk_stays_open(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "gone.jpg"
    shutil.copy(PICTURES / "dress.jpg", file)
    tab.open(file).collect()
    tab.drag(((100, 150), (140, 150)))
    file.unlink()
    tab.fill()
    assert tab.saved().size == (256, 341)


def test_a_picture_is_pasted(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, permissions=["clipboard-read", "clipboard-write"])
    tab.page.evaluate(COPY_A_PICTURE)
    tab.page.keyboard.press("Control+v")
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", "Picture image.png, 40 by 30 pixels")


def test_what_is_pasted_or_dropped_while_a_dialog_is_open_changes_nothing_behind_it(
    open_tab: OpenTab, url: str
) -> None:
    tab = open_tab(url, permissions=["clipboard-read", "clipboard-write"]).open(PICTURES / "dress.jpg")
    shown = tab.page.get_attribute("#surface", "aria-label")
    tab.page.evaluate(COPY_A_PICTURE)
    tab.page.click("#help")
    tab.page.keyboard.press("Control+v")
    data = tab.page.evaluate_handle(CARRIED, {"skirt.jpg": list((PICTURES / "skirt.jpg").read_bytes())})
    tab.page.dispatch_event("#help-dialog", "drop", {"dataTransfer": data})
    tab.page.wait_for_timeout(1000)
    assert tab.page.get_attribute("#surface", "aria-label") == shown
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("Control+v")
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", "Picture image.png, 40 by 30 pixels")


def test_the_page_works_over_plain_http_under_a_name(serve: Serve, open_tab: OpenTab) -> None:
    """Such a page is not a secure context, in which parts of `crypto` are missing; its gallery is hidden."""
    served = serve(public_host="images.example")
    tab = open_tab(served.url.replace("127.0.0.1", "images.example") + "/", expected=REFUSED)
    assert tab.page.locator("#tab-results").is_hidden()
    assert tab.page.evaluate("isSecureContext") is False
    tab.open(PICTURES / "dress.jpg")


def test_a_stroke_painted_while_the_models_come_is_filled_when_they_are_there(open_tab: OpenTab, starting: str) -> None:
    tab = open_tab(starting, expected=REFUSED).open(PICTURES / "dress.jpg")
    tab.drag(((100, 150), (140, 150)))
    tab.says("No model is ready yet.")
    expect(tab.page.locator("#status")).to_contain_text("Filled.", timeout=COMPILED_MS)
    assert tab.page.locator("#fill").is_disabled(), "something was left to fill"


def test_a_photograph_is_painted_while_the_models_come_and_filled_when_they_are_there(
    open_tab: OpenTab, starting: str
) -> None:
    tab = open_tab(starting, expected=REFUSED)
    expect(tab.page.locator("#tab-translate")).to_be_visible()
    assert tab.page.get_attribute("#tab-inpaint", "aria-selected") == "true"
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    assert tab.page.locator("#fill").is_disabled()
    assert tab.page.inner_text("#fill") == "No model yet"
    tab.page.click("#tab-translate")
    tab.page.set_input_files("#translate-form input", PICTURES / "facade_labels.png")
    expect(tab.page.locator("#tab-inpaint")).to_be_visible()
    expect(tab.page.locator("#fill")).to_be_enabled(timeout=COMPILED_MS)
    chosen = tab.page.locator("#translate-form input")
    assert chosen.evaluate("input => input.files.length") == 1, "a chosen file went away when a model came"
    tab.page.click("#tab-inpaint")
    tab.fill()


def test_what_is_being_opened_is_named_for_as_long_as_it_takes(tab: Tab) -> None:
    tab.page.evaluate(DECODE_LATER)
    tab.page.set_input_files("#pick-pictures", PICTURES / "dress.jpg")
    expect(tab.page.locator("#status")).to_have_text("Opening dress.jpg…")
    tab.page.evaluate("goOn()")
    tab.says("dress.jpg is open.")


def test_what_cannot_be_opened_is_named_though_others_are_open(tab: Tab) -> None:
    tab.open(encoded(noise(40, 40), "0.png"), HEIC, encoded(noise(40, 40), "2.png"))
    tab.says("2 photographs are open. 1.heic cannot be opened: damaged, or in a format that this browser does not ")
    tab.says("know. Save a copy as JPEG or PNG.")
    expect(tab.page.locator("#status")).to_have_class("wrong")


def test_all_that_cannot_be_opened_is_named_once_for_each_reason(tab: Tab, tmp_path: Path) -> None:
    tab.page.evaluate(DECODE_LATER)
    for name in ("0.jpg", "gone.jpg"):
        shutil.copy(PICTURES / "dress.jpg", tmp_path / name)
    for name in ("1.heic", "3.heic"):
        (tmp_path / name).write_text("of another kind")
    tab.page.set_input_files("#pick-pictures", [tmp_path / name for name in ("0.jpg", "1.heic", "gone.jpg", "3.heic")])
    (tmp_path / "gone.jpg").unlink()
    tab.page.evaluate("goOn()")
    tab.says("0.jpg is open. 1.heic and 3.heic cannot be opened: damaged, or in a format that this browser does not ")
    tab.says("Save a copy as JPEG or PNG. gone.jpg cannot be read: a folder, or no longer there.")


def test_of_many_that_cannot_be_opened_the_first_are_named_and_the_others_counted(tab: Tab) -> None:
    tab.page.set_input_files("#pick-pictures", [{**HEIC, "name": f"{i}.heic"} for i in range(12)])
    tab.says("0.heic, 1.heic, 2.heic, 3.heic, 4.heic and 7 more cannot be opened: damaged")
