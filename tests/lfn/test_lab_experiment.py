"""A scaled-down experiment, as `make experiments QUICK=1` makes it, in virtual time.

Skipped with a message where there is no lab, or no Snakemake.
"""

import json
from pathlib import Path

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import main

pytestmark = pytest.mark.skipif(
    not paths.SNAKEMAKE.exists(), reason="not run: Snakemake is not installed: make experiments"
)


def test_two_senders_share_what_is_paced(
    lab: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["--quick", "--results", str(tmp_path), "fig9"]) == 0
    found = json.loads((tmp_path / "experiments" / "fig9.json").read_text())
    rows = {row["column"]: row for row in found["rows"]}
    assert [row["skipped"] for row in rows.values()] == [None, None, None]
    for shaped in ("paced", "fq"):
        assert rows[shaped]["values"]["share"]["median"] >= 95
    assert rows["paced"]["values"]["lost"]["median"] == 0
    assert rows["paced"]["mode"] == "lab"
    assert rows["unpaced"]["values"]["lost"]["median"] > 0
    report = (tmp_path / "report.html").read_bytes()
    # All is remembered: nothing is made again, and the report is the same.
    capsys.readouterr()
    assert main.main(["--quick", "--results", str(tmp_path), "fig9"]) == 0
    assert "3 runs; 0 to be made" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_bytes() == report
