"""Clients without rights: packets pass, the controller controls, and refusals are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flood_namespace import CHANGES, FRAMES
from namespaces import told_inside

INSIDE = Path(__file__).with_name("flood_namespace.py")


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the switch under floods in a namespace of its own; return its figures."""
    return told_inside(INSIDE, tmp_path_factory.mktemp("flooded"))


def test_every_packet_passes_and_every_change_is_made(flooded: dict[str, Any]) -> None:
    assert flooded["primary"] == 0
    assert flooded["before"] == flooded["meanwhile"] == FRAMES
    assert flooded["elsewhere"]["refused"] == [], CHANGES
    assert flooded["status"] == 0, flooded["stderr"]
    assert "panicked" not in flooded["stderr"]
    drops = {port["port"]: port["drops"] for port in flooded["statistics"]["ports"]}
    assert all(cause == "pruned" for port in drops.values() for cause in port), drops


def test_a_client_elsewhere_needs_credentials(flooded: dict[str, Any]) -> None:
    assert flooded["elsewhere"]["refusals"]["no-credentials"] > 0
    assert flooded["elsewhere"]["refusals"]["handshakes-of-address-full"] > 0
    assert flooded["statistics"]["refusals"]["no-credentials"] > 0
    names = {"authority.pem", "authority-key.pem", "client.pem", "client-key.pem", "token"}
    assert flooded["files"] == dict.fromkeys(names, 0o600)


def test_another_user_of_the_machine_is_a_stranger(flooded: dict[str, Any]) -> None:
    if "stranger" not in flooded:
        pytest.skip("not run: another user: needs root")
    assert flooded["stranger"]["refused"] == []
    assert flooded["beside_stranger"] == FRAMES
    refusals = flooded["stranger"]["refusals"]
    assert refusals["outbid"] > 0
    assert refusals["not-primary"] > 0
    assert refusals["trace-of-stranger"] > 0


def test_another_user_of_the_machine_floods_thrifts_port(flooded: dict[str, Any]) -> None:
    if "thrift_stranger" not in flooded:
        pytest.skip("not run: another user: needs root")
    assert flooded["thrift_stranger"]["refused"] == []
    assert flooded["beside_thrift_stranger"] == FRAMES
    refusals = flooded["statistics"]["refusals"]
    assert refusals["thrift-stranger"] > 0
    assert refusals["thrift-malformed"] > 0


def test_another_user_of_the_machine_floods_the_port_of_notifications(
    flooded: dict[str, Any],
) -> None:
    if "notifications_stranger" not in flooded:
        pytest.skip("not run: another user: needs root")
    assert flooded["notifications_stranger"]["refused"] == []
    assert flooded["beside_notifications_stranger"] == FRAMES
    assert flooded["statistics"]["refusals"]["subscriber-not-admitted"] > 0


def test_the_switch_keeps_no_capability(flooded: dict[str, Any]) -> None:
    privileges = flooded["privileges"]
    assert int(privileges["CapEff"], 16) == int(privileges["CapPrm"], 16) == 0
    assert privileges["NoNewPrivs"] == "1"
