"""TLS towards switches: the switches that use it, and the certificates."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from finsy import GRPCCredentialsTLS

from pacer_controller.config import PLAIN_PREFIX, TLS_PREFIX
from pacer_controller.secret_files import flaw

MAX_FILE_BYTES = 1 << 20

SWITCH_NAME = "pacing-switch"
"""The name in the certificates that `pacing_switch` makes for itself, for any address."""

_ROOTS_FOLDER = Path("/var/lib/pacing-switch")


@dataclass(frozen=True)
class SwitchTls:
    """PEM files, which are read at each attempt to connect, so that they can be renewed.

    Attributes:
        authority: the certificate of the authority that signed the switches' certificates; None:
            an authority that gRPC knows.
        certificate: the controller's certificate, for switches that ask for one.
        key: the certificate's private key.
        name: the name that a switch's certificate must have; empty: that of its address.

    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    name: str = ""

    @property
    def is_given(self) -> bool:
        """Whether there is any file."""
        return self != SwitchTls()

    def credentials(self) -> GRPCCredentialsTLS:
        """Return the credentials from the files.

        Raises:
            OSError: a file cannot be read, is too large, or is a key that other users may read or
                change.

        """
        return GRPCCredentialsTLS(
            cacert=_content(self.authority),
            cert=_content(self.certificate),
            private_key=_content(self.key, secret=True),
            target_name_override=self.name,
        )


def _content(path: Path | None, *, secret: bool = False) -> bytes | None:
    if path is None:
        return None
    try:
        opened = path.open("rb")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from None
    with opened as file:
        reason = flaw(path, os.fstat(file.fileno()), in_own_folder=True) if secret else None
        if reason is not None:
            raise OSError(f"{path} holds a secret: {reason}")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    return content


def made_by_switches() -> SwitchTls | None:
    """Return the client files that switches of this machine have made; None: there are none.

    Switches keep them in a state folder: root's, or the user's own (`pacing_switch --state-dir`).
    """
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folders = [Path(home) / SWITCH_NAME, _ROOTS_FOLDER]
    if os.geteuid() == 0:
        folders.reverse()
    for folder in folders:
        key = folder / "client-key.pem"
        if os.access(key, os.R_OK):
            return SwitchTls(folder / "authority.pem", folder / "client.pem", key, SWITCH_NAME)
    return None


def is_here(host: str) -> bool:
    """Return whether an address is one of this machine's; a name other than localhost is not."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost"
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def endpoint(address: str, tls: SwitchTls) -> tuple[str, GRPCCredentialsTLS | None]:
    """Return HOST:PORT of an address, and its TLS credentials; None: a plain connection.

    Without a prefix, switches on this machine are reached without TLS. Others are reached with the
    client files that switches of this machine have made, if there are any: switches and clients
    share them.

    Raises:
        OSError: a file cannot be read, or is a key that others may read or change.

    """
    if address.startswith(PLAIN_PREFIX):
        return address.removeprefix(PLAIN_PREFIX), None
    if address.startswith(TLS_PREFIX):
        found = None if tls.is_given else made_by_switches()
        return address.removeprefix(TLS_PREFIX), (found or tls).credentials()
    if not is_here(address.rpartition(":")[0]):
        found = made_by_switches()
        if found is not None:
            return address, found.credentials()
    return address, None
