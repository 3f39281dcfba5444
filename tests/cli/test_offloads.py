"""TCP between hosts whose offloads are on, as the kernel makes interfaces, through pacer.p4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from namespaces import told_inside

INSIDE = Path(__file__).with_name("offloads_namespace.py")
# As the script has them.
BYTES, RATE_BPS = 4_000_000, 200_000_000


@pytest.fixture(scope="module", params=["1", "3"], ids=["1-thread", "3-threads"])
def carried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Transfer bytes through the switch, with so many threads, in namespaces of its own."""
    return told_inside(INSIDE, tmp_path_factory.mktemp("offloads"), request.param)


@pytest.mark.parametrize("how", ["unpaced", "paced"])
def test_all_bytes_arrive(carried: dict[str, Any], how: str) -> None:
    sent, received = carried[how]["sent"], carried[how]["received"]
    assert received == {"bytes": BYTES, "digest": sent["digest"]}


def test_the_class_has_its_rate(carried: dict[str, Any]) -> None:
    assert carried["paced"]["sent"]["seconds"] >= 0.95 * BYTES * 8 / RATE_BPS


@pytest.mark.parametrize("how", ["unpaced", "paced"])
def test_the_offloads_are_on(carried: dict[str, Any], how: str) -> None:
    assert not carried["ethtool"]
    # Only a host whose segmentation is left to its interface sends frames of several segments.
    ports = {port["port"]: port for port in carried[how]["statistics"]["ports"]}
    assert ports[1]["rx_trains"] > 0
    assert not any("oversize" in port["drops"] for port in ports.values())
