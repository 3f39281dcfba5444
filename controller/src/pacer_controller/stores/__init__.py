"""Desired state and events: in a file for one controller, or in etcd for any number.

- `base`: the interface of a store.
- `sqlite`: a file, for one controller (`migrations`: its schema).
- `etcd`: a cluster, for any number.
"""

import logging
import re
from pathlib import Path

from pacer_controller.addresses import is_loopback
from pacer_controller.stores.base import (
    EVENTS_KEPT,
    SWITCHES,
    Entry,
    Event,
    StaleError,
    Status,
    Store,
    StoreError,
    SwitchSettings,
    UncertainError,
    Written,
)
from pacer_controller.stores.sqlite import MEMORY, SqliteStore

__all__ = [
    "EVENTS_KEPT",
    "MEMORY",
    "SWITCHES",
    "Entry",
    "Event",
    "SqliteStore",
    "StaleError",
    "Status",
    "Store",
    "StoreError",
    "SwitchSettings",
    "UncertainError",
    "Written",
    "open_store",
]

_LOG = logging.getLogger(__name__)

_ETCD = re.compile(r"etcd://(?:(?P<user>[^@/]+)@)?(?P<members>[^/]+)(?P<prefix>/[^?#]*)?")
_MEMBER = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")


async def open_store(
    url: str,
    *,
    authority: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    lease_s: int | None = None,
) -> Store:
    """Open a store.

    Args:
        url: `sqlite:PATH`, or `etcd://[USER@]HOST:PORT[,HOST:PORT...][/PREFIX]`.
        authority: the certificate of the authority that signed the certificates of etcd's members,
            PEM.
        certificate: the controller's certificate for etcd, PEM.
        key: the certificate's private key, PEM.
        password: the password of etcd's user.
        lease_s: the time to live of the controller's lease in etcd, in seconds.

    Raises:
        StoreError: the URL is not valid, the password would be sent in clear, or the store cannot
            be used.

    """
    kind, _, path = url.partition(":")
    if kind == "sqlite" and path:
        return SqliteStore(path)
    found = _ETCD.fullmatch(url)
    members = found["members"].split(",") if found is not None else []
    if found is None or not all(_MEMBER.fullmatch(member) for member in members):
        raise StoreError(
            f"store {url!r}: want sqlite:PATH or etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"
        )
    if authority is None and certificate is None:
        _check_clear(url, members, password)
    # Imported only if needed: the import of etcd's messages takes a noticeable time.
    from pacer_controller.stores.etcd.client import Access
    from pacer_controller.stores.etcd.leases import LEASE_S
    from pacer_controller.stores.etcd.store import EtcdStore

    access = Access(members, authority, certificate, key, found["user"], password)
    prefix = (found["prefix"] or "/pacer").rstrip("/") + "/"
    return await EtcdStore.open(access, prefix, lease_s or LEASE_S)


def _check_clear(url: str, members: list[str], password: str | None) -> None:
    """Check a store without TLS.

    Raises:
        StoreError: the password would be sent in clear to another machine.

    """
    hosts = [member.rpartition(":")[0].strip("[]") for member in members]
    if all(map(is_loopback, hosts)):
        return
    if password is not None:
        raise StoreError(
            f"store {url!r}: the password would be sent in clear over the network: give --store-ca"
        )
    _LOG.warning("store %s: without TLS, whoever reaches etcd may change every switch", url)
