"""Keys and certificates for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Make a key and a certificate of 127.0.0.1 that it signed; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "1"]
    made += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    # A certificate that may sign others is not accepted from a client.
    made += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(made, check=True, capture_output=True)
    return key, certificate
