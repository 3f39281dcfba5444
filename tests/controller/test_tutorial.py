"""What docs/tutorial.md tells people to paste is pasted, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from controller_harness import ROOT, TARGET, Network, pacing_switch

TUTORIAL = ROOT / "docs" / "tutorial.md"

# Namespaces of its own for networks and their names, so that nothing of this is seen outside.
PRELUDE = """
set -euo pipefail
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"""


def commands() -> str:
    """Return every indented line after the one that builds."""
    lines = [line[4:] for line in TUTORIAL.read_text().splitlines() if line.startswith("    ")]
    assert lines.pop(0) == "make switch"
    return "\n".join(lines)


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: the tutorial is pacing_switch's")
def test_the_tutorial(wires: Network, tmp_path: Path) -> None:
    (tmp_path / "pacing_switch").symlink_to(pacing_switch())
    places = {
        "$PWD/build/venv/bin": str(Path(sys.executable).parent),
        "$PWD/switch/target/release": str(tmp_path),
        "/tmp/pacer-tutorial": f"{tmp_path}/tutorial",  # noqa: S108
    }
    script = PRELUDE + commands()
    for place, here in places.items():
        assert place in script
        script = script.replace(place, here)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "no_proxy": "*", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    received = [
        float(number) * {"K": 1e3, "M": 1e6, "G": 1e9}[unit]
        for number, unit in re.findall(r"([\d.]+) ([KMG])bits/sec +receiver", done.stdout)
    ]
    assert len(received) == 4
    # However busy the machine is, no more than the class's rate arrives (iperf3 prints three
    # digits).
    _, first, second, after_restart = received
    assert 0 < first <= 20.1e6
    assert 0 < second <= 5.05e6
    assert 0 < after_restart <= 5.05e6
    assert done.stdout.count(" 0% packet loss") == 2
    assert 'pacer_class_target_bits_per_second{class="video",switch="s1"} 5e+06' in done.stdout
