"""Adding a published model: licence, download or file, digest, then export or import.

The files are generated and come from a local server; no published address is contacted.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engines.errors import RetouchError
from export.generators import FAMILIES
from export.generators.dcgan import DCGAN, DCGANOptions
from retouch.command_line import app
from retouch.commands.publishing import SAMPLE_PICTURES
from retouch.zoo.adding import (
    Added,
    AddRequest,
    add_model,
    declaration_of,
    downloads_folder,
    find_row,
    require_licence,
    terms_of,
)
from retouch.zoo.download import Downloader
from retouch.zoo.errors import DownloadFailed, FileRefused, LicenceRefused, ZooError
from retouch.zoo.rows import Row
from retouch.zoo.table import published_models
from tests.export.conftest import randomised
from tests.export.foreign.inpainters import carve_layout
from tests.retouch.zoo.tls_server import Answer

URL = "https://files.example/net.onnx"


def row(**changes: object) -> Row:
    facts = {
        "name": "net",
        "file": "net.onnx",
        "about": "a net",
        "source": "https://files.example",
        "command": "import",
    }
    return Row.model_validate({**facts, "url": URL, "licence": "CC0", "training_data": "nothing", **changes})


@pytest.fixture(scope="module")
def graph() -> bytes:
    return carve_layout(32).SerializeToString()


@pytest.fixture
def add(server, tmp_path):
    """Add a model and return what was made; `add.downloads` is the downloads folder."""

    def adding(published: Row, **arguments) -> Added:
        downloader = Downloader(context=server.context, addresses=server.addresses)
        request = AddRequest(
            row=published,
            name=arguments.pop("name", published.name),
            output=tmp_path / "models",
            images=SAMPLE_PICTURES,
            downloads=tmp_path / "downloads",
            downloader=downloader,
            **arguments,
        )
        return add_model(request, lambda step: None)

    return adding


def downloaded(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "downloads").rglob("*") if path.is_file())


@pytest.mark.slow
def test_graph_is_downloaded_checked_and_imported(server, add, tmp_path, graph):
    server.answers[URL] = Answer(graph)
    digest = hashlib.sha256(graph).hexdigest()
    added = add(row(sha256=digest, size=len(graph), options={"composite": "inside"}))
    assert added.sha256 == digest == added.manifest.checkpoint_sha256
    assert (added.manifest.generator, added.manifest.licence, added.manifest.training_data) == (
        "onnx",
        "CC0",
        "nothing",
    )
    assert added.directory == tmp_path / "models" / "net" / "1"
    assert "found: result: output" in added.notes
    assert downloaded(tmp_path) == []


@pytest.mark.slow
def test_graph_of_another_form_than_the_published_one_is_refused_with_what_was_published(add, tmp_path, graph):
    path = tmp_path / "fixed.onnx"
    path.write_bytes(graph)
    pipeline = find_row("migan-onnx")
    with pytest.raises(FileRefused) as refused:
        add(pipeline, file=path, trust=True)
    assert str(refused.value).startswith(f"{path} is refused as migan-onnx ({pipeline.about}): ")
    assert "the graph computes 32×32 only" in str(refused.value)
    assert path.exists()
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_checkpoint_given_as_a_file_is_exported(server, add, tmp_path):
    path = tmp_path / "generator.pth"
    torch.save(randomised(DCGAN().build(DCGANOptions(nz=4, ngf=2)), 1).state_dict(), path)
    by_hand = row(command="export", generator="dcgan", file="generator.pth", url=None, get_by_hand="ask", licence="")
    added = add(by_hand, file=path, trust=True)
    assert (added.manifest.generator, added.manifest.licence) == ("dcgan", "not stated")
    assert any("largest activation" in note for note in added.notes)
    assert path.exists()
    assert server.requests == []


def test_file_of_another_digest_is_refused_and_removed(server, add, tmp_path):
    server.answers[URL] = Answer(b"something else")
    for arguments, known in (
        ({}, {"sha256": "0" * 64}),
        ({"sha256": "1" * 64}, {}),
        ({"trust": True}, {"sha256": "0" * 64}),
    ):
        with pytest.raises(FileRefused, match="another or a damaged file; it was removed"):
            add(row(**known), **arguments)
        assert downloaded(tmp_path) == []


def test_a_folder_for_downloads_that_cannot_be_made_is_named(add, tmp_path):
    (tmp_path / "downloads").write_bytes(b"a file")
    with pytest.raises(DownloadFailed, match=r"downloads/net: cannot be made .*; name another folder with --downloads"):
        add(row())


def test_users_own_file_of_another_digest_stays(add, tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    with pytest.raises(FileRefused, match=r"another or a damaged file$"):
        add(row(sha256="0" * 64), file=tmp_path / "mine")
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("md5", "label"),
    [(None, None), (hashlib.md5(b"content").hexdigest(), "Its MD5 is the published"), ("0" * 32, "Its MD5 is NOT")],
)
def test_without_a_known_digest_the_computed_one_is_printed_and_nothing_published(server, add, tmp_path, md5, label):
    server.answers[URL] = Answer(b"content")
    with pytest.raises(FileRefused, match=f"--sha256 {hashlib.sha256(b'content').hexdigest()}; or --trust") as caught:
        add(row(md5=md5))
    assert (label or "MD5") in str(caught.value) or label is None
    assert ("MD5" in str(caught.value)) == (md5 is not None)
    assert not (tmp_path / "models").exists()
    assert downloaded(tmp_path) == ["net.onnx"]


@pytest.mark.slow
def test_file_of_a_failed_attempt_is_taken_by_the_next(server, add, tmp_path):
    server.answers[URL] = Answer(b"content")
    with pytest.raises(FileRefused, match="or --trust"):
        add(row())
    with pytest.raises(RetouchError, match="not an ONNX file"):
        add(row(), trust=True)
    assert len(server.requests) == 1
    assert downloaded(tmp_path) == ["net.onnx"]


def test_digest_that_contradicts_the_table_is_refused_before_the_download(server, add):
    with pytest.raises(FileRefused, match="is not that of the published file"):
        add(row(sha256="0" * 64), sha256="1" * 64)
    assert server.requests == []


def test_what_only_a_person_can_get_says_how(add):
    with pytest.raises(ZooError, match="cannot be downloaded by a program: ask the author, and give it with --file"):
        add(row(url=None, get_by_hand="ask the author"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "My Model"}, "lower-case letters"),
        ({"sha256": "abc"}, "64 hexadecimal digits"),
        ({"sha256": "é" * 64}, "64 hexadecimal digits"),
    ],
)
def test_what_would_stop_the_last_step_is_found_before_the_download(server, add, arguments, reason):
    with pytest.raises(ZooError, match=reason):
        add(row(), **arguments)
    assert server.requests == []


def test_every_family_of_the_table_is_one_that_export_has():
    families = {published.generator for published in published_models() if published.command == "export"}
    assert families <= set(FAMILIES)


def test_options_of_imported_rows_are_flags_of_import():
    for published in published_models():
        if published.command == "import":
            declaration_of(published)


def test_licence_is_shown_and_must_be_accepted():
    terms = "\n".join(terms_of(row(licence="")))
    assert "licence of the weights: not stated by the source" in terms
    assert f"address (not tried): {URL}" in terms
    with pytest.raises(LicenceRefused, match="give --accept-licence"):
        require_licence(row(), accepted=False)
    with pytest.raises(LicenceRefused, match=r"no licence is stated for net: find out .* then give --accept-licence"):
        require_licence(row(licence=""), accepted=False)


def test_command_shows_the_terms_and_takes_no_address(tmp_path):
    result = CliRunner().invoke(app, ["models", "add", "lama-onnx", "--downloads", str(tmp_path)])
    assert result.exit_code == 1
    assert "licence of the weights: Apache-2.0" in result.stderr
    assert "give --accept-licence" in result.stderr
    assert list(tmp_path.iterdir()) == []
    for name in ("https://files.example/net.onnx", "../big-lama", ""):
        result = CliRunner().invoke(app, ["models", "add", name, "--accept-licence"])
        assert "known models are lama-onnx, " in result.stderr


def test_command_takes_a_file_only_with_the_digest_of_the_table(tmp_path):
    (tmp_path / "mine.onnx").write_bytes(b"mine")
    result = CliRunner().invoke(
        app, ["models", "add", "lama-onnx", "--accept-licence", "--file", str(tmp_path / "mine.onnx"), "--trust"]
    )
    assert result.exit_code == 1
    assert f"its SHA-256 is {hashlib.sha256(b'mine').hexdigest()} instead of 1faef5301d78" in result.stderr


def test_list_has_every_row():
    listed = CliRunner().invoke(app, ["models", "list"], env={"COLUMNS": "200"}).stdout
    assert all(published.name in listed for published in published_models())
    assert "addresses not tried" in listed


def test_names_of_the_table_are_unique_and_addresses_are_of_listed_hosts():
    rows = published_models()
    assert len({published.name for published in rows}) == len(rows)
    assert find_row("lama-onnx").size == 208044816
    for published in rows:
        assert not published.tried
        assert published.url is None or published.hosts[0] in published.url


def test_downloads_lie_in_the_users_cache(monkeypatch, tmp_path):
    assert downloads_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/retouch/downloads")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert downloads_folder({}) == tmp_path / ".cache" / "retouch" / "downloads"
