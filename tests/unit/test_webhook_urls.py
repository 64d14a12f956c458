"""Which URLs webhooks take, from a call, a client or a variable, and what is shown of them."""

from __future__ import annotations

import pytest

from aioqueue import Client, ConfigurationError, Registry
from aioqueue.vocabulary._webhook_url import read_webhook_url, webhook_host

registry = Registry()


@registry.job
async def job() -> None: ...


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/in?token=1&x=%20",
        "http://hooks.example",
        "HTTPS://Hooks.Example:8443/",
        "https://[2001:db8::1]:8443/x",
        "http://127.0.0.1:8000/",  # its address is looked at by whoever sends
        "https://xn--bcher-kva.example/",
    ],
)
def test_taken_as_they_are(url: str) -> None:
    assert read_webhook_url(url) == url
    assert job().options(webhook=url).to_new_job().webhook == url


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "hooks.example",
            "ftp://hooks.example/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://",
            "https:///path",
        ),
        *("https://user:password@hooks.example/", "https://hooks.example@evil.example/", "https://@hooks.example/"),
        *("https://hooks.example/#fragment", "https://hooks.example:0/", "https://hooks.example:99999/", "https://h:x/"),
        *(
            "https://hooks.example/\r\nX: 1",
            "https://hooks.example/ x",
            "https://hooks.example\\@evil.example/",
            "https://a\tb/",
        ),
        *("https://bücher.example/", "https://hooks.example/ü", "https://hooks.example/\x00", "https://[::1/", "https://a b/"),
        *("https://hooks.example/" + "x" * 2048, "https://ho{o}ks.example/", "https://[fe80::1%25eth0]/", "https://h%6Foks/"),
    ],
)
def test_refused(url: str) -> None:
    for refusing in (lambda: job().options(webhook=url), lambda: Client(webhook=url)):
        with pytest.raises(ConfigurationError) as caught:
            refusing()
        assert "password" not in str(caught.value).replace("no user and password", "")
    with pytest.raises(ConfigurationError):
        job().options(webhook=7)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Hooks.Example:443/a", "hooks.example"),
        ("http://hooks.example.:80", "hooks.example"),
        ("http://hooks.example:443/", "hooks.example:443"),
        ("https://[2001:DB8::1]:1/", "[2001:db8::1]:1"),
        ("https://user:password@hooks.example/", "hooks.example"),
        ("https://h:nonsense/", "?"),
        ("", "?"),
        ("https://ev\x1bil\n.example/", "ev?il.example"),
    ],
)
def test_whose_limit_counts(url: str, host: str) -> None:
    assert webhook_host(url) == host


def test_a_call_shows_only_the_host() -> None:
    call = job().options(webhook="https://hooks.example/in?token=secret")
    assert "secret" not in repr(call)
    assert "webhook=hooks.example…" in repr(call)
    call.mark_used()


def test_a_call_takes_the_clients_unless_it_says_something_else() -> None:
    mine, other = "https://mine.example/", "https://other.example/"

    def row(call: object) -> str | None:
        return call.to_new_job(webhook=other).webhook

    assert row(job()) == other
    assert row(job().options(webhook=mine)) == mine
    assert row(job().options(webhook=False)) is None
    assert row(job().options(webhook=mine).options(webhook=None)) == other
