"""To which addresses webhooks may be sent: anybody who may enqueue chooses the URL, and a worker is often within a network
that trusts it.

An address is public if it's global unicast by the registries of special-purpose addresses (IANA, RFC 6890), after whatever it
has embedded was taken out: packets to those go to the address inside.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Address", "AllowedReceivers", "is_public", "meant"]

Address = IPv4Address | IPv6Address

# Written out, since what `ipaddress` says of some of them differs between versions of Python.
_NOT_PUBLIC_4 = [
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers, and clouds have services there
        "127.0.0.0/8",  # this machine
        "168.63.129.16/32",  # Azure's machines find the platform's own services there, and nowhere else
        "169.254.0.0/16",  # this link: the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # measurements
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # many at once
        "240.0.0.0/4",  # reserved, and everybody at once
    )
]
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments, with Teredo, whose tunnels end anywhere
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # answers for nobody's names
        "3fff::/20",  # documentation
    )
]
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
# The last 64 bits of a tunnel's end within a site (ISATAP, RFC 5214): 0000:5efe or 0200:5efe, and an IPv4 address.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


def meant(address: Address) -> Address:
    """The address that is reached: of one that has an IPv4 address embedded (mapped, NAT64, 6to4), that one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _MAPPED or address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether it's an address of one machine that anybody can reach."""
    reached = meant(address)
    if isinstance(reached, IPv4Address):
        return reached.is_global and not any(reached in network for network in _NOT_PUBLIC_4)
    if reached not in _GLOBAL_UNICAST_6 or not reached.is_global or any(reached in network for network in _NOT_PUBLIC_6):
        return False
    inside = int(reached) >> 32 & 0xFFFF_FFFF
    return inside not in _ISATAP or is_public(IPv4Address(int(reached) & 0xFFFF_FFFF))


class AllowedReceivers:
    """Receivers that a worker may send to although their addresses aren't public.

    Arguments:
        allowed: Networks, addresses, or names of hosts, which may have a port: `10.1.0.0/16`, `hooks.internal:8080`.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._hosts: set[str] = set()
        for each in allowed:
            try:
                self._networks.append(ip_network(each))
            except ValueError:
                self._hosts.add(each.lower())

    def may_reach(self, host: str, port: int, address: Address) -> bool:
        """Whether a message may be sent to an address that a host's name leads to."""
        if is_public(address) or host in self._hosts or f"{host}:{port}" in self._hosts:
            return True
        reached = meant(address)
        return any(reached in network for network in self._networks if network.version == reached.version)

    def among(self, host: str, port: int, addresses: Iterable[str]) -> list[str]:
        """Those of the addresses of a host to which a message may be sent: each once, in order, as they're written."""
        allowed: dict[str, None] = {}
        for each in addresses:
            try:
                address = ip_address(each)
            except ValueError:
                continue
            if getattr(address, "scope_id", None) is None and self.may_reach(host, port, address):
                allowed[str(address)] = None
        return list(allowed)
