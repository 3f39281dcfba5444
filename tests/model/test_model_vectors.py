"""The committed files in ``tests/vectors`` are fresh and keep to their format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burstiness_cases import BurstinessCase, burstiness_cases, burstiness_vector_text
from flow_cases import FlowCase, flow_cases, flow_vector_text
from make_vectors import (
    BURSTINESS,
    FLOWS,
    MODES,
    PAUSE_FRAMES,
    SHARING,
    SLOTS,
    TIMER,
    VECTORS_DIR,
    Case,
    all_cases,
    mode_cases,
    pause_frame_cases,
    random_case,
    slot_cases,
    timer_cases,
    vector_text,
)
from sharing_cases import SharingCase, sharing_cases, sharing_vector_text

CASES = all_cases()
MODE_CASES = mode_cases()
TIMER_CASES = list(timer_cases())
SLOT_CASES = list(slot_cases())
PAUSE_CASES = list(pause_frame_cases())
FLOW_CASES = flow_cases()
SHARING_CASES = sharing_cases()
BURSTINESS_CASES = burstiness_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_file_is_fresh(case: Case) -> None:
    committed = (VECTORS_DIR / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == vector_text(case), "run tests/model/make_vectors.py"


@pytest.mark.parametrize(
    ("folder", "case"),
    [
        *((MODES, case) for case in MODE_CASES),
        *((TIMER, case) for case in TIMER_CASES),
        *((SLOTS, case) for case in SLOT_CASES),
    ],
    ids=[case.name for case in MODE_CASES + TIMER_CASES + SLOT_CASES],
)
def test_file_of_the_modes_is_fresh(folder: str, case: Case) -> None:
    committed = (VECTORS_DIR / folder / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == vector_text(case, modes=True), "run tests/model/make_vectors.py"


@pytest.mark.parametrize("case", FLOW_CASES, ids=[case.name for case in FLOW_CASES])
def test_file_of_the_flows_is_fresh(case: FlowCase) -> None:
    committed = (VECTORS_DIR / FLOWS / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == flow_vector_text(case), "run tests/model/make_vectors.py"


@pytest.mark.parametrize("case", SHARING_CASES, ids=[case.name for case in SHARING_CASES])
def test_file_of_mode_shared_is_fresh(case: SharingCase) -> None:
    committed = (VECTORS_DIR / SHARING / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == sharing_vector_text(case), "run tests/model/make_vectors.py"


@pytest.mark.parametrize("case", PAUSE_CASES, ids=[case.name for case in PAUSE_CASES])
def test_file_of_gap_frames_is_fresh(case: Case) -> None:
    committed = (VECTORS_DIR / PAUSE_FRAMES / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == vector_text(case), "run tests/model/make_vectors.py"


@pytest.mark.parametrize("case", BURSTINESS_CASES, ids=[case.name for case in BURSTINESS_CASES])
def test_file_of_burstiness_is_fresh(case: BurstinessCase) -> None:
    committed = (VECTORS_DIR / BURSTINESS / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == burstiness_vector_text(case), "run tests/model/make_vectors.py"


@pytest.mark.parametrize(
    ("directory", "cases"),
    [
        (VECTORS_DIR, CASES),
        (VECTORS_DIR / MODES, MODE_CASES),
        (VECTORS_DIR / TIMER, TIMER_CASES),
        (VECTORS_DIR / PAUSE_FRAMES, PAUSE_CASES),
        (VECTORS_DIR / FLOWS, FLOW_CASES),
        (VECTORS_DIR / SHARING, SHARING_CASES),
        (VECTORS_DIR / BURSTINESS, BURSTINESS_CASES),
    ],
)
def test_no_file_too_many(
    directory: Path,
    cases: list[Case] | list[FlowCase] | list[SharingCase] | list[BurstinessCase],
) -> None:
    committed = {path.stem for path in directory.glob("*.json")}
    assert committed == {case.name for case in cases}
    assert len(cases) == len(committed), "two cases of the same name"


def test_directory_stays_small() -> None:
    assert sum(path.stat().st_size for path in VECTORS_DIR.rglob("*.json")) < 2_500_000


def integers(value: object) -> list[int]:
    """Every number in a parsed file."""
    if isinstance(value, dict):
        return [n for item in value.values() for n in integers(item)]
    if isinstance(value, list):
        return [n for item in value for n in integers(item)]
    assert isinstance(value, int | str)
    return [value] if isinstance(value, int) else []


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_format(case: Case) -> None:
    vector = json.loads(vector_text(case))
    assert list(vector) == [
        "name",
        "description",
        "port",
        "classes",
        "events",
        "expected",
    ]
    assert vector["name"] == case.name
    assert all(0 <= number < 1 << 63 for number in integers(vector))
    times = [event["at_ns"] for event in vector["events"]]
    assert times == sorted(times)
    ids = [event["packet"]["id"] for event in vector["events"] if "packet" in event]
    assert ids == list(range(len(ids)))
    assert sorted(result["id"] for result in vector["expected"]) == ids
    starts = [result["start_ns"] for result in vector["expected"] if "start_ns" in result]
    assert starts == sorted(starts)
    classes = {entry["class"] for entry in vector["classes"]}
    assert all(e["packet"]["class"] in classes for e in vector["events"] if "packet" in e)


def test_random_cases_are_repeatable() -> None:
    assert vector_text(random_case("x", 7)) == vector_text(random_case("x", 7))
    assert vector_text(random_case("x", 7)) != vector_text(random_case("x", 8))


def test_the_cases_cover_the_contract() -> None:
    """Both drop causes, both modes, both countings, changes, stalls, late clocks, all occur."""
    text = "".join(vector_text(case) for case in CASES)
    for needed in (
        *(
            '"class-limit"',
            '"fifo-full"',
            '"static"',
            '"unpaced"',
            '"layer2"',
            '"wire"',
        ),
        *(
            '"set_class"',
            '"stall_until_ns"',
            '"rate_bps": 8000,',
            '"line_rate_bps": 100000000000',
        ),
        *('"line_rate_bps": 0', '"length_bytes": 65535', '"at_ns": 36028797018963'),
    ):
        assert needed in text, needed
