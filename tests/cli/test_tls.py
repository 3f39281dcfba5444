"""P4Runtime over TLS, with the options of simple_switch_grpc, from gRPC's own client."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from certificates import make_certificate
from finsy.proto import p4r, p4r_grpc
from pacing_switch import Switch
from virtual_switch import binary

TIMEOUT_S = 60
SAID = "gRPC with TLS at "


@dataclass(frozen=True)
class Party:
    """A server's or client's key and certificate, which it signed itself."""

    key: Path
    certificate: Path

    @classmethod
    def make(cls, folder: Path, name: str) -> Party:
        """Make both."""
        return cls(*make_certificate(folder / name, name))

    @property
    def serves(self) -> list[str]:
        """Options of a switch that is this party."""
        files = ["--grpc-server-cert", str(self.certificate), "--grpc-server-key", str(self.key)]
        return ["--grpc-server-ssl", *files]


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Party]:
    folder = tmp_path_factory.mktemp("parties")
    return {name: Party.make(folder, name) for name in ("switch", "controller", "stranger")}


def serving(options: Sequence[str]) -> Switch:
    """A switch without ports."""
    return Switch(options=options, binary=binary())


def said(switch: Switch) -> list[str]:
    """The lines that a switch has printed."""
    return switch.log.read_text().splitlines()


def version(channel: grpc.Channel) -> str:
    """Ask for the version of the API."""
    with channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        answer = stub.Capabilities(p4r.CapabilitiesRequest(), timeout=TIMEOUT_S)
        return str(answer.p4runtime_api_version)


def trusting(server: Party, client: Party | None = None) -> grpc.ChannelCredentials:
    """The credentials of a client that trusts only `server` and may present `client`."""
    return grpc.ssl_channel_credentials(
        server.certificate.read_bytes(),
        client.key.read_bytes() if client else None,
        client.certificate.read_bytes() if client else None,
    )


def test_tls_and_nothing_else(parties: dict[str, Party]) -> None:
    with serving(parties["switch"].serves) as switch:
        assert SAID in said(switch)[-1]
        trusted = trusting(parties["switch"])
        assert version(grpc.secure_channel(switch.grpc_address, trusted)).startswith("1.")
        for channel in (
            grpc.insecure_channel(switch.grpc_address),
            grpc.secure_channel(switch.grpc_address, trusting(parties["stranger"])),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                version(channel)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_clients_show_who_they_are(parties: dict[str, Party]) -> None:
    options = [*parties["switch"].serves, "--grpc-server-with-client-auth"]
    options += ["--grpc-server-cacert", str(parties["controller"].certificate)]
    with serving(options) as switch:
        known = trusting(parties["switch"], parties["controller"])
        assert version(grpc.secure_channel(switch.grpc_address, known)).startswith("1.")
        for client in (None, parties["stranger"]):
            channel = grpc.secure_channel(switch.grpc_address, trusting(parties["switch"], client))
            with pytest.raises(grpc.RpcError) as refused:
                version(channel)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_what_is_missing_or_wrong_is_named(parties: dict[str, Party], tmp_path: Path) -> None:
    party, other = parties["switch"], parties["stranger"]
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    empty.chmod(0o600)
    open_to_all = tmp_path / "open.pem"
    open_to_all.write_bytes(party.key.read_bytes())
    open_to_all.chmod(0o644)
    cert, key = ["--grpc-server-cert", str(party.certificate)], ["--grpc-server-key"]
    for options, named in (
        (cert, "needs --grpc-server-cert and --grpc-server-key"),
        ([*cert, *key, "/nowhere.pem"], "--grpc-server-key: cannot open /nowhere.pem"),
        ([*cert, *key, str(empty)], "gRPC server: TLS: "),
        ([*cert, *key, str(open_to_all)], f"chmod 600 {open_to_all}"),
        ([*cert, *key, str(other.key)], "gRPC server: TLS: "),
        (
            [*cert, *key, str(party.key), "--grpc-server-with-client-auth"],
            "needs --grpc-server-cacert",
        ),
    ):
        command = [str(binary()), "--no-p4", "--grpc-server-addr", "127.0.0.1:0"]
        command += ["--grpc-server-ssl", *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert ended.returncode == 1
        assert named in ended.stderr
        assert "panicked" not in ended.stderr


def test_files_without_tls_are_ignored_and_told(parties: dict[str, Party]) -> None:
    options = [*parties["switch"].serves[1:], "--grpc-server-with-client-auth"]
    with serving([*options, "--grpc-server-cacert", "x.pem"]) as switch:
        assert said(switch)[0] == (
            "pacing_switch: ignored: --grpc-server-cert, --grpc-server-key, "
            "--grpc-server-with-client-auth, --grpc-server-cacert"
        )
        assert version(grpc.insecure_channel(switch.grpc_address)).startswith("1.")
