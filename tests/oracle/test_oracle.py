"""Random P4Runtime writes get the specified answers; `make oracle` makes more of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

from namespaces import told_inside

INSIDE = Path(__file__).with_name("oracle.py")
UPDATES = "6000"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_random_writes_get_the_specified_answers(tmp_path: Path, seed: str) -> None:
    told = told_inside(INSIDE, tmp_path, "--updates", UPDATES, "--seed", seed)
    assert told["differences"] == []
    # Each rule was met: there are answers of each code.
    expected = {"OK", "ABORTED", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS"}
    expected |= {"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
    assert set(told["answers"]) == expected


def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    told = told_inside(INSIDE, tmp_path, "--updates", UPDATES, "--wrong-size")
    assert any("OK instead of RESOURCE_EXHAUSTED" in text for text in told["differences"])
