"""finsy, by itself, with a switch, as docs/tools.md describes it."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from named_tests import REPO

from controller_harness import COMPILED, DEADLINE_S, TARGET, Network, Switch

PROGRAM = COMPILED / "pacing_switch"
SESSION = Path(__file__).with_name("finsy_session.py")
PAGE = REPO / "docs" / "p4runtime.md"


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


def _program_of_the_page(address: str) -> str:
    """Return the Python program of docs/p4runtime.md, for a switch at `address`."""
    text = PAGE.read_text()
    first, last = "    import asyncio\n", "    asyncio.run(main())\n"
    program = textwrap.dedent(text[text.index(first) : text.index(last) + len(last)])
    return program.replace("127.0.0.1:9559", address)


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: the service is pacing_switch's")
def test_the_program_of_the_page_sets_egress_queues(wires: Network) -> None:
    switch = Switch(wires)
    switch.start()
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _program_of_the_page(switch.address)],
            env=os.environ | {"PYTHONPATH": str(REPO / "switch" / "proto")},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        settings, queues = ended.stdout.split("\n\n")
        assert 'scheduler: "wfq:4:2:1"' in settings
        assert "rate_bps: 10000000" in settings
        assert queues.splitlines() == ["0 0 0 []", "1 0 0 []", "2 0 0 []"]
    finally:
        switch.kill()
