"""The experiments on a Slurm of one node have the same results as on this machine alone.

`make test-slurm` runs this: it needs root, and Debian's packages of Slurm.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pacer_mininet import paths
from pacer_mininet.experiments import main
from pacer_mininet.runs import LabUnavailableError, check_lab

ONE_NODE = paths.REPO / "tools" / "one-node-slurm"
EXPERIMENTS = paths.MININET_DIR / "experiments.py"
CHOSEN = ("--quick", "fig9", "tables2-4")
TIMEOUT_S = 1200

PROFILE = """\
executor: slurm
jobs: 2
seconds-between-status-checks: 5
slurm-init-seconds-before-status-checks: 5
# There is no accounting.
slurm-status-command: squeue
slurm-no-account: true
default-resources:
  slurm_partition: one,two
"""


def digest(said: str) -> str:
    """Return the digest of all tables that the experiments print."""
    (found,) = re.findall(r"tables: sha256 ([0-9a-f]{64})", said)
    return str(found)


def test_a_cluster_gives_the_same_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        check_lab()
    except LabUnavailableError as error:
        pytest.skip(f"not run: experiments on Slurm: {error}")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "config.yaml").write_text(PROFILE)
    options = ("--results", str(tmp_path / "slurm"), "--profile", str(tmp_path / "profile"))
    done = subprocess.run(
        [str(ONE_NODE), sys.executable, str(EXPERIMENTS), *CHOSEN, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode == 77:
        pytest.skip(f"not run: experiments on Slurm: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 runs; 3 to be made by" in done.stdout
    assert main.main([*CHOSEN, "--cores", "1", "--results", str(tmp_path / "local")]) == 0
    assert digest(done.stdout) == digest(capsys.readouterr().out)
