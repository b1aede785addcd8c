"""No webhook goes to an internal address, however it is written and whatever a name resolves to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from service.core.errors import InvalidOption
from service.jobs.delivery.client import CheckedResolver
from service.jobs.webhook_targets import Destinations, with_usual_address

STRANGE_HOSTS = (
    *("127.0.0.%31", "localhos%74", "example.com\\.org", "a;b", "a+b", "a,b", "[2606:4700::1111]a.com"),
    *("[2606:4700::1111]]", "$(id)", "a`b", "{a}", "a|b", "a*b.com"),
)
"""Hosts that some URL parsers accept, and read differently."""


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook?x=1",
        "https://a_service.xn--bcher-kva.example./",
        "https://example.com:8443/",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]/",
    ],
)
def test_public_https_urls_are_allowed(url: str) -> None:
    Destinations().check(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "https://", "https:///x", "ftp://example.com", "http://example.com", "file:///etc/passwd"),
        *(
            "https://user:pass@example.com",
            "https://user@example.com",
            "https://exa mple.com",
            "https://[::1",
            "https://a:b/",
        ),
        *(
            "https://127.0.0.1/",
            "https://10.1.2.3",
            "https://192.168.0.1",
            "https://172.16.0.1",
            "https://169.254.169.254",
        ),
        *("https://0.0.0.0", "https://100.64.0.1", "https://224.0.0.1", "https://127.1", "https://2130706433"),
        *("https://0x7f000001", "https://0177.0.0.1", "https://[::1]", "https://[::]", "https://[fd00::1]"),
        *("https://[fe80::1]", "https://[::ffff:10.0.0.1]", "https://[64:ff9b::a00:1]", "https://[2002:a00:1::]"),
        *("https://[64:ff9b:1::a00:1]", "https://[::10.0.0.1]", "https://[::ffff:0:10.0.0.1]"),
        *("https://127.0.0.1.", "https://127.1.", "https://0x7f.1", "https://017700000001", "https://0"),
        *("https://localhost/", "https://LOCALHOST", "https://localhost.:8443/", "https://a.b.localhost/x"),
        *("https://[ff02::1]", "https://ex\u00e4mple.com", "https://example.com/\n", "https://e.com/" + "x" * 2048),
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Destinations().check(url)
    assert refused.value.code == "webhook_refused"


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("example.com/hook", "has no host"),
        ("https:///hook", "has no host"),
        ("https://[::1", "is not a valid URL"),
        ("https://example.com:b/", "an invalid port"),
        ("https://example.com:0/", "an invalid port"),
        ("https://exa mple.com/", "percent-encode"),
        ("https://ex\u00e4mple.com/", "percent-encode"),
        *((f"https://{host}/", "neither a name nor an address") for host in STRANGE_HOSTS),
        ("https://example.com/" + "x" * 2048, "longer than 2048 characters"),
    ],
)
def test_an_unusable_url_is_refused_with_the_reason_and_the_expected_form(url: str, wrong: str) -> None:
    with pytest.raises(InvalidOption, match=f"^`webhook` .*{wrong}") as refused:
        Destinations().check(url)
    assert "; send an address like https://HOST/PATH" in str(refused.value)


def test_a_list_of_hosts_allows_these_alone() -> None:
    listed = Destinations(("Hooks.example.com", "*.example.org"))
    listed.check("https://hooks.example.com/a")
    listed.check("https://a.b.example.org/a")
    for url in (
        "https://example.com",
        "https://example.org",
        "https://evil-example.org",
        "https://x.hooks.example.com",
    ):
        with pytest.raises(InvalidOption, match="does not send to"):
            listed.check(url)


def test_a_private_network_can_be_allowed() -> None:
    Destinations(private=True).check("http://10.0.0.1:8080/hook")


@pytest.mark.parametrize(
    ("url", "usual"),
    [
        ("http://127.1:8080/a?b#c", "http://127.0.0.1:8080/a?b#c"),
        ("http://0x7f.1", "http://127.0.0.1"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0177.0.0.1./", "http://127.0.0.1/"),
        ("https://Example.com:8443/A", "https://Example.com:8443/A"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("http://127.1.example/", "http://127.1.example/"),
    ],
)
def test_an_address_is_sent_to_in_its_usual_notation(url: str, usual: str) -> None:
    Destinations(private=True).check(url)
    assert with_usual_address(url) == usual


def found(*addresses: str) -> list[Any]:
    return [(socket.AF_INET6 if ":" in one else socket.AF_INET, 0, 0, "", (one, 443)) for one in addresses]


async def test_a_name_is_resolved_to_the_addresses_that_were_checked() -> None:
    async def resolve(host: str, port: int, family: int) -> list[Any]:
        return found("93.184.215.14", "2606:4700::1111")

    resolver = CheckedResolver(Destinations(), resolve)
    assert [one["host"] for one in await resolver.resolve("example.com", 443)] == ["93.184.215.14", "2606:4700::1111"]
    await resolver.close()


@pytest.mark.parametrize("inner", ["127.0.0.1", "10.0.0.1", "::1", "::ffff:192.168.1.1", "fe80::1%eth0"])
async def test_a_name_that_resolves_to_an_internal_address_is_refused_at_every_attempt(inner: str) -> None:
    answers = [found("93.184.215.14"), found("93.184.215.14", inner)]

    async def rebinding(host: str, port: int, family: int) -> list[Any]:
        return answers.pop(0)

    resolver = CheckedResolver(Destinations(), rebinding)
    await resolver.resolve("example.com", 443)
    with pytest.raises(OSError, match="not public"):
        await resolver.resolve("example.com", 443)


async def test_a_name_that_resolves_to_an_internal_address_is_refused_at_submission() -> None:
    async def resolve(host: str, port: int, family: int) -> list[Any]:
        return found("93.184.215.14", "10.0.0.1")

    with pytest.raises(InvalidOption, match=r"not public; send a public one, or .* --webhook-private$") as refused:
        await Destinations().check_name("https://example.com/", resolve)
    assert refused.value.code == "webhook_refused"
    await Destinations(private=True).check_name("https://example.com/", resolve)


@pytest.mark.parametrize("failure", [socket.gaierror(socket.EAI_AGAIN, "later"), asyncio.TimeoutError()])
async def test_a_name_that_cannot_be_resolved_now_is_checked_at_delivery(failure: Exception) -> None:
    async def resolve(host: str, port: int, family: int) -> list[Any]:
        raise failure

    await Destinations().check_name("https://example.com/", resolve)
