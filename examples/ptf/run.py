"""Runs the PTF tests beside it on a switch between two pairs of veth interfaces.

sudo unshare --net PYTHON examples/ptf/run.py PROGRAM.json
"""

import subprocess
import sys
from pathlib import Path

from pacing_switch import Switch
from pacing_switch.wires import make_wires

HERE = Path(__file__).resolve().parent

# PTF has t1 and t2, the switch s1 and s2.
make_wires([("t1", "s1"), ("t2", "s2")])
with Switch(
    sys.argv[1],
    ports={1: "s1", 2: "s2,rate=100mbit"},
    options=["--runtime-json", str(HERE / "entries.json")],
) as switch:
    ptf = [sys.executable, str(Path(sys.executable).with_name("ptf"))]
    ptf += ["--test-dir", str(HERE / "tests")]
    ptf += ["--interface", "1@t1", "--interface", "2@t2"]
    ptf += ["--test-params", f"grpc={switch.grpc_address!r}"]
    status = subprocess.run(ptf).returncode
sys.exit(status)
