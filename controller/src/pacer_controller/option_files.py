"""Files that options name: certificates, keys and secrets, checked before anything starts."""

import ssl
from pathlib import Path

from pacer_controller.config import ConfigError
from pacer_controller.secret_files import flaw

MIN_SECRET = 16


def check_private(
    option: str, path: Path, *, group_may_read: bool = True, in_own_folder: bool = False
) -> None:
    """Check that a file is fit for a secret, by the rule of `secret_files.flaw`.

    Raises:
        ConfigError: it is unfit, or cannot be read at all.

    """
    try:
        reason = flaw(path, path.stat(), group_may_read=group_may_read, in_own_folder=in_own_folder)
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    if reason is not None:
        raise ConfigError(f"{option} {path}: {reason}")


def secret(option: str, path: Path | None, least: int = MIN_SECRET) -> str | None:
    """Read a secret of one line.

    Raises:
        ConfigError: it is unreadable, readable by others, too short, or not one line of visible
            ASCII.

    """
    if path is None:
        return None
    check_private(option, path)
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}: {error}") from None
    if len(text) < least or not all("!" <= letter <= "~" for letter in text):
        raise ConfigError(
            f"{option} {path}: want one line of at least {least} visible ASCII characters, "
            "such as `openssl rand -hex 32` prints"
        )
    return text


def check_pair(option: str, certificate: Path | None, key: Path | None) -> None:
    """Check that a certificate and a key are given together, and fit.

    Raises:
        ConfigError: one is missing, or they do not fit.

    """
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise ConfigError(f"{option}-cert and {option}-key must be given together")
    check_private(f"{option}-key", key)
    try:
        # With a password OpenSSL does not ask for one at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            certificate, key, password=""
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{option}-key {key}: it is not the key of {certificate}") from None
        raise ConfigError(
            f"{option}-cert {certificate}, {option}-key {key}: want a certificate and its key, "
            f"unencrypted, in PEM ({error.reason or error})"
        ) from None
    except OSError as error:
        raise ConfigError(f"{option}-cert {certificate}: {error.strerror}") from None


def check_authority(option: str, authority: Path | None) -> None:
    """Check a file of CA certificates.

    Raises:
        ConfigError: the file has no certificate.

    """
    if authority is None:
        return
    try:
        ssl.create_default_context(cafile=str(authority))
    except ssl.SSLError as error:
        raise ConfigError(
            f"{option} {authority}: want certificates in PEM ({error.reason or error})"
        ) from None
    except OSError as error:
        raise ConfigError(f"{option} {authority}: {error.strerror}") from None
