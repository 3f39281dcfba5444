"""Hosts with their offloads on have a VXLAN tunnel through the switch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from namespaces import told_inside

INSIDE = Path(__file__).with_name("tunnel_namespace.py")


@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_what_hosts_send_through_a_tunnel_arrives_unchanged(tmp_path: Path, driver: str) -> None:
    if driver == "af_xdp" and os.geteuid() != 0:
        pytest.skip("not run: VXLAN through AF_XDP ports: needs root")
    told = told_inside(INSIDE, tmp_path, driver)
    if "not_run" in told:
        pytest.skip(f"not run: VXLAN through the switch: {told['not_run']}")
    assert told["status"] == 0, told["stderr"]
    assert told["streams"] == [True, True]
    assert told["datagrams"] == [True, True]
    ports = {port["port"]: port for port in told["statistics"]["ports"]}
    for port in (ports[1], ports[2]):
        # By AF_PACKET hosts hand their frames over whole. By AF_XDP their kernel cuts them.
        assert (port["rx_trains"] > 0) == (driver == "af_packet")
        assert "oversize" not in port["drops"]
    # Port 2 has a rate, so its packets leave one by one.
    assert (ports[1]["tx_trains"] > 0) == (driver == "af_packet")
