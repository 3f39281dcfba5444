"""Switches whose P4Runtime server uses TLS."""

import functools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from certificates import make_certificate
from test_live import CLASS

from controller_harness import Controller, Network, Switch, eventually


def test_a_switch_that_wants_to_know_its_controllers(
    network: Network, start_controller: Callable[..., Controller], tmp_path: Path
) -> None:
    key, certificate = make_certificate(tmp_path / "switch")
    own_key, own_certificate = make_certificate(tmp_path / "controller")
    options = ["--grpc-server-ssl", "--grpc-server-with-client-auth"]
    options += ["--grpc-server-cert", str(certificate), "--grpc-server-key", str(key)]
    switch = Switch(network, None, *options, "--grpc-server-cacert", str(own_certificate))
    switch.start()
    try:
        trusting = ["--switch-ca", str(certificate)]
        known = [*trusting, "--switch-cert", str(own_certificate), "--switch-key", str(own_key)]
        place = f"{switch.address}{switch.options}"
        plain = start_controller("--switch", f"s1={place}")
        unknown = start_controller("--switch", f"s1=tls:{place}", *trusting)
        controller = start_controller("--switch", f"s1=tls:{place}", *known)
        controller.wait_connected()
        told = controller.put(CLASS, {"rate": "5Mbit"})
        assert told.json()["state"] == "applied"
        for other in (plain, unknown):
            seen = eventually(functools.partial(_told, other), "why there is no connection")
            assert seen["state"] == "pending"
    finally:
        switch.kill()


def _told(controller: Controller) -> dict[str, str] | None:
    seen: dict[str, str] = controller.get("/v1/switches/s1")
    return seen if seen["last_error"] else None


_CALL = """
import sys
import pacer_controller.server
import grpc
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials())
try:
    channel.unary_unary("/a/b")(b"", timeout=30)
except grpc.RpcError as error:
    print(error.code())
"""


def test_grpc_writes_no_lines_of_its_own(tmp_path: Path) -> None:
    """It writes one for each handshake that fails, several a second."""
    key, certificate = make_certificate(tmp_path)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        command = [sys.executable, "-c", _CALL, f"127.0.0.1:{port}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    finally:
        server.stop(None)
    assert run.stdout == "StatusCode.UNAVAILABLE\n"
    assert run.stderr == ""
