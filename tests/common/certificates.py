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


class Authority:
    """A CA of the test's own.

    Args:
        folder: for its files and those of the certificates that it issues.

    Attributes:
        certificate: the file that others trust.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key, self.certificate = folder / "ca.key.pem", folder / "ca.pem"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-keyout", str(self._key), "-out", str(self.certificate), "-days", "1"]
        made += ["-subj", "/CN=authority", "-addext", "basicConstraints=critical,CA:TRUE"]
        subprocess.run(made, check=True, capture_output=True)

    def issue(self, name: str, alternatives: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Make a key and a certificate; return their files.

        Args:
            name: the common name.
            alternatives: the names that it is valid for, as OpenSSL writes them.

        """
        key, certificate = self._folder / f"{name}.key.pem", self._folder / f"{name}.pem"
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        made = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        made += ["-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}"]
        subprocess.run(made, check=True, capture_output=True)
        extensions.write_text(
            f"subjectAltName={alternatives}\nbasicConstraints=critical,CA:FALSE\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
        )
        signed = ["openssl", "x509", "-req", "-in", str(request), "-out", str(certificate)]
        signed += ["-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"]
        signed += ["-days", "1", "-extfile", str(extensions)]
        subprocess.run(signed, check=True, capture_output=True)
        key.chmod(0o600)
        return key, certificate
