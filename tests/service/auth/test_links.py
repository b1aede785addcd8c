from __future__ import annotations

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from service.auth.links import LINK_S, Links, is_link, open_links, read_secrets
from service.core.errors import Forbidden
from service.core.settings import Settings, SettingsInvalid

ONE, OTHER = "0123456789abcdef" * 2, "f" * 32
MADE_AT = 1_800_000_000.5


def links(*keys: bytes, now: float = MADE_AT) -> Links:
    return Links("https://images.example/shop", keys or (b"k" * 32,), lambda: now)


def parts(url: str) -> tuple[str, str]:
    query = parse_qs(urlsplit(url).query, strict_parsing=True)
    return query["expires"][0], query["signature"][0]


def refusal(checking: Links, result_id: str, expires: str, signature: str) -> str:
    with pytest.raises(Forbidden) as refused:
        checking.check(result_id, expires, signature)
    return refused.value.code


def test_a_link_leads_to_the_public_url_and_opens_its_result_until_it_expires() -> None:
    url = links().url_of(ONE)
    assert url.startswith(f"https://images.example/shop/v1/results/{ONE}/shared?")
    expires, signature = parts(url)
    assert int(expires) == int(MADE_AT) + LINK_S
    links().check(ONE, expires, signature)
    links(now=int(expires) - 0.5).check(ONE, expires, signature)
    assert refusal(links(now=int(expires)), ONE, expires, signature) == "link_expired"


def test_forged_links_are_refused_whether_expired_or_not() -> None:
    expires, signature = parts(links().url_of(ONE))
    late, other = str(int(expires) + 1), "A" if signature[0] != "A" else "B"
    for result_id, until, signed in (
        (OTHER, expires, signature),
        (ONE, late, signature),
        (ONE, f"0{expires}", signature),
        (ONE, f"+{expires}", signature),
        (ONE, f"{expires}\n", signature),
        (ONE, "", ""),
        (ONE, "9" * 400, signature),
        (ONE, "١" * 10, signature),
        (ONE, expires, other + signature[1:]),
        (ONE, expires, f"{signature}="),
        (ONE, expires, signature[:-1]),
        (ONE, expires, "ü" * 43),
        (ONE, expires, "\ud800"),
        (ONE, expires, ""),
    ):
        for now in (MADE_AT, MADE_AT + 10 * LINK_S):
            assert refusal(links(now=now), result_id, until, signed) == "link_invalid"


def test_during_a_rotation_the_first_secret_signs_and_all_are_accepted() -> None:
    before, during, after = links(b"a" * 32), links(b"b" * 32, b"a" * 32), links(b"b" * 32)
    old, new = parts(before.url_of(ONE)), parts(during.url_of(ONE))
    during.check(ONE, *old)
    during.check(ONE, *new)
    after.check(ONE, *new)
    assert refusal(after, ONE, *old) == "link_invalid"


def test_secrets_are_made_once_for_all_processes_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "results" / ".link-secrets"
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(read_secrets, [path] * 64))
    assert len(found) == 1
    assert len(found.pop()[0]) == 32
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_secrets_of_an_operator_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_bytes(b"\n".join(base64.b64encode(key) for key in (b"b" * 32, b"a" * 48)) + b"\n\n")
    assert read_secrets(path) == (b"b" * 32, b"a" * 48)


@pytest.mark.parametrize("content", [b"", b"\n", b"c2hvcnQ=", b"no base64!", "ü".encode(), b"A" * 100_000])
def test_a_file_of_anything_else_stops_the_start_and_is_not_quoted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".link-secrets"
    path.write_bytes(content)
    with pytest.raises(SettingsInvalid, match="secrets") as refused:
        read_secrets(path)
    assert not content.strip() or content.decode() not in str(refused.value)


def test_a_folder_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsInvalid, match=r"\.link-secrets"):
        open_links(Settings(public_url="https://a.example", results_dir=tmp_path / "file"), lambda: 0.0)


def test_without_a_public_url_there_are_no_links_and_no_secrets(tmp_path: Path) -> None:
    assert open_links(Settings(results_dir=tmp_path / "results"), lambda: 0.0) is None
    assert not (tmp_path / "results").exists()


def test_the_secret_is_not_in_a_text_of_the_links() -> None:
    assert "kkk" not in repr(links())


def test_only_reading_one_result_by_its_link_needs_no_key() -> None:
    path = f"/v1/results/{ONE}/shared"
    assert is_link("GET", path)
    assert is_link("HEAD", path)
    assert not any(is_link(method, path) for method in ("DELETE", "POST", "OPTIONS", "get"))
    others = (f"{path}/", f"{path}\n", f"/v1/results/{ONE}", f"/v1/results/{ONE}/thumbnail", f"/x{path}", path.upper())
    assert not any(is_link("GET", other) for other in others)
