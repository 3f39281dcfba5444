"""finsy, by itself, with a switch, as docs/tools.md describes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller_harness import COMPILED, DEADLINE_S, TARGET, Network, Switch

PROGRAM = COMPILED / "pacing_switch"
SESSION = Path(__file__).with_name("finsy_session.py")


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: counts of misses are pacing_switch's")
def test_a_session_of_finsy_writes_reads_and_counts(wires: Network) -> None:
    switch = Switch(wires)
    switch.start()
    try:
        files = [str(PROGRAM / name) for name in ("pacer.p4info.txtpb", "pacer.json")]
        ended = subprocess.run(
            [sys.executable, str(SESSION), switch.address, *files, wires.ports[1], wires.ports[2]],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout) == {
            "meter_as_written": True,
            "colours": [1, 1, 1],
            "misses": [2, 120],
            "replicas": 2,
            "left": 0,
        }
    finally:
        switch.kill()
