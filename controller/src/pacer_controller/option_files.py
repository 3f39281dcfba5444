"""Files that options name: certificates, keys and secrets, checked before anything starts."""

import os
import ssl
import stat
from pathlib import Path

from pacer_controller.config import ConfigError

MIN_SECRET = 16


def check_private(option: str, path: Path) -> None:
    """Check that only its owner, or root and a group, can read a secret.

    Raises:
        ConfigError: others can read it, or it cannot be read at all.

    """
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        # A pipe, as a shell's <(command) makes one.
        return
    if found.st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise ConfigError(f"{option} {path}: others may read or change it: chmod 600 {path}")
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{option} {path}: it belongs to another user: chown it")


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
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(f"{option}-cert {certificate}: {error}") from None


def check_authority(option: str, authority: Path | None) -> None:
    """Check a file of CA certificates.

    Raises:
        ConfigError: the file has no certificate.

    """
    if authority is None:
        return
    try:
        ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise ConfigError(f"{option} {authority}: {error}") from None
