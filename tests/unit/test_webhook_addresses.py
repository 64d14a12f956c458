"""To which addresses webhooks may be sent."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from aioqueue.worker._addresses import AllowedReceivers, is_public

PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "193.0.6.139",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
)
PUBLIC += ("2002:808:808::1",)

NOT_PUBLIC = (
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1",
    "172.31.255.255 192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.7 203.0.113.9",
    "224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255",
    ":: ::1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::808:808 100::1",
    "2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1",
    "2002:7f00:1::1 2002:a9fe:a9fe::1 2002:a00:1::1",
    "3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 ff0e::1 4000::1",
    "2a00:1450::5efe:7f00:1 2a00:1450::200:5efe:a00:1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", [each for line in NOT_PUBLIC for each in line.split()])
def test_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


def test_allowed_by_network_address_host_and_port() -> None:
    allowed = AllowedReceivers(["10.1.0.0/16", "192.168.1.7", "fd00::/8", "hooks.internal", "localhost:8080"])

    def may(host: str, port: int, address: str) -> bool:
        return allowed.among(host, port, [address]) == [address]

    assert may("any.example", 443, "10.1.2.3")
    assert may("any.example", 443, "fd00::1")
    assert may("any.example", 443, "192.168.1.7")
    assert may("hooks.internal", 443, "10.9.9.9")
    assert may("localhost", 8080, "127.0.0.1")
    assert not may("localhost", 8081, "127.0.0.1")
    assert not may("other.internal", 443, "10.9.9.9")
    assert not may("hooks.internal.evil.example", 443, "10.9.9.9")
    assert allowed.among("any.example", 443, ["::ffff:10.1.2.3"]) == [str(ip_address("::ffff:10.1.2.3"))]


def test_of_several_only_those_that_are_allowed_once_in_order() -> None:
    found = ["127.0.0.1", "8.8.8.8", "fe80::1%eth0", "nonsense", "2606:4700:4700::1111", "8.8.8.8"]
    assert AllowedReceivers().among("two.example", 443, found) == ["8.8.8.8", "2606:4700:4700::1111"]
    assert AllowedReceivers(["fe80::/10"]).among("two.example", 443, ["fe80::1%eth0"]) == []  # which link isn't known
