"""The commands to paste in docs/tutorial.md and docs/own-program.md work as described."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from controller_harness import ROOT, TARGET, Network, pacing_switch

DOCS = ROOT / "docs"

# Namespaces of its own for networks and their names, so that nothing of this is seen outside.
PRELUDE = """
set -euo pipefail
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"""


def commands(page: str) -> str:
    """Return every indented line of a page."""
    text = (DOCS / page).read_text()
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def pasted(script: str, places: dict[str, str]) -> str:
    """Return the output of a page's commands in their own network; `places` replaces paths."""
    assert all(place in script for place in places)
    # At once: a checkout may itself be in a folder that is replaced.
    anywhere = "|".join(map(re.escape, places))
    script = re.sub(anywhere, lambda found: places[found.group()], script)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "bash", "-c", PRELUDE + script],
        cwd=ROOT,
        env={**os.environ, "no_proxy": "*", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def received_bps(printed: str) -> list[float]:
    """Return the rates in iperf3's receiver lines."""
    return [
        float(number) * {"K": 1e3, "M": 1e6, "G": 1e9}[unit]
        for number, unit in re.findall(r"([\d.]+) ([KMG])bits/sec +receiver", printed)
    ]


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: the tutorial is pacing_switch's")
def test_the_tutorial(wires: Network, tmp_path: Path) -> None:
    (tmp_path / "pacing_switch").symlink_to(pacing_switch())
    build, _, script = commands("tutorial.md").partition("\n")
    assert build == "make switch"
    printed = pasted(
        script,
        {
            "$PWD/build/venv/bin": str(Path(sys.executable).parent),
            "$PWD/switch/target/release": str(tmp_path),
            "/tmp/pacer-tutorial": f"{tmp_path}/tutorial",  # noqa: S108
        },
    )
    received = received_bps(printed)
    assert len(received) == 4
    # However busy the machine is, no more than the class's rate arrives (iperf3 prints three
    # digits).
    _, first, second, after_restart = received
    assert 0 < first <= 20.1e6
    assert 0 < second <= 5.05e6
    assert 0 < after_restart <= 5.05e6
    assert printed.count(" 0% packet loss") == 2
    assert 'pacer_class_target_bits_per_second{class="video",switch="s1"} 5e+06' in printed


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: the page is pacing_switch's")
def test_ones_own_program(wires: Network, tmp_path: Path) -> None:
    printed = pasted(
        commands("own-program.md"),
        {"switch/target/release/pacing_switch": str(pacing_switch()), "/tmp/": f"{tmp_path}/"},  # noqa: S108
    )
    assert " 3 received" in printed
    (smallest_ms,) = re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", printed)
    assert float(smallest_ms) >= 20
    (rate_bps,) = received_bps(printed)
    assert 0 < rate_bps <= 100e6
    assert '"drops"' in printed
