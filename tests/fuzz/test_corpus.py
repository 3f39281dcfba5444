"""Replays the inputs that the fuzz targets of the controller keep."""

from pathlib import Path

import pytest
from targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")
INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_has_inputs(target: str) -> None:
    assert any(path.parent.name == target for path in INPUTS)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_replay(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
