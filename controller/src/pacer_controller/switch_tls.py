"""TLS towards switches: which of them speak it, and with what."""

from dataclasses import dataclass
from pathlib import Path

from finsy import GRPCCredentialsTLS

from pacer_controller.config import TLS_PREFIX

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class SwitchTls:
    """Files in PEM; they are read at each attempt to connect, so that they can be renewed.

    Attributes:
        authority: who signed the switches' certificates; None: one that gRPC knows.
        certificate: ours, for switches that ask for one.
        key: its private key.

    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> GRPCCredentialsTLS:
        """Read the files.

        Raises:
            OSError: one cannot be read, or is too large.

        """
        return GRPCCredentialsTLS(
            cacert=_content(self.authority),
            cert=_content(self.certificate),
            private_key=_content(self.key),
        )


def _content(path: Path | None) -> bytes | None:
    if path is None:
        return None
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    return content


def endpoint(address: str, tls: SwitchTls) -> tuple[str, GRPCCredentialsTLS | None]:
    """Return HOST:PORT of an address, and with what to speak TLS there; None: a plain connection.

    Raises:
        OSError: a file cannot be read.

    """
    if address.startswith(TLS_PREFIX):
        return address.removeprefix(TLS_PREFIX), tls.credentials()
    return address, None
