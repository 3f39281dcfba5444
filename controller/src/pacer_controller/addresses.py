"""Addresses of machines."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether packets to a host, a name or an address without a port, stay on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
