"""docs/papers.md: what its rows name exists, and nothing that is published lacks a row.

Each row says where a mechanism or figure of the papers is, and which experiment or test shows it.
"""

import re
import sys

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import catalogue

sys.path.insert(0, str(paths.REPO / "tests" / "accuracy"))

from published import PUBLISHED

PAGE = paths.REPO / "docs" / "papers.md"
COLUMNS = (
    *("what", "page", "in the code", "shown by"),
    *("published", "ours", "why they differ", "status"),
)
STATES = ("done", "partly", "not yet")
NAMED = re.compile(r"`([^`]+)`")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
ACCURACY = "tables2-4"

Row = dict[str, str]


def _rows() -> list[Row]:
    """Return the rows of all tables with COLUMNS."""
    found = []
    here = False
    for line in PAGE.read_text().splitlines():
        cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
        if not line.startswith("|"):
            here = False
        elif cells == COLUMNS:
            here = True
        elif here and not line.startswith("|---"):
            assert len(cells) == len(COLUMNS), line
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


ROWS = _rows()


def _names(row: Row, column: str) -> list[str]:
    return NAMED.findall(row[column])


def _numbers(experiment: str) -> set[float]:
    """Return the published numbers of all rows that an experiment shows."""
    texts = (row["published"] for row in ROWS if experiment in _names(row, "shown by"))
    return {float(number.replace(",", "")) for text in texts for number in NUMBER.findall(text)}


def _problem(name: str, experiments: set[str]) -> str | None:
    """Return why a name of the column "shown by" names nothing, or None."""
    if name in experiments:
        return None
    path, _, test = name.partition("::")
    file = paths.REPO / path
    if not path.startswith("tests/") or not file.exists():
        return f"{name}: neither an experiment nor a file of the tests"
    if test and not re.search(rf"^(?:def|class) {test}\b", file.read_text(), re.MULTILINE):
        return f"{name}: {path} has no such test"
    return None


def test_there_are_rows_of_every_document() -> None:
    assert len(ROWS) > 70
    for document in ("S0", "S1", "S2", "S3", "S4", "P"):
        assert any(document in row["page"] for row in ROWS), document


@pytest.mark.parametrize("row", ROWS, ids=[row["what"][:40] for row in ROWS])
def test_what_a_row_names_exists(row: Row) -> None:
    assert row["status"] in STATES
    for name in _names(row, "in the code"):
        assert (paths.REPO / name).exists(), name
    shown = _names(row, "shown by")
    problems = [_problem(name, set(catalogue.all_experiments())) for name in shown]
    assert not any(problems), problems
    if row["status"] == "not yet":
        assert row["why they differ"], "nothing says what is missing"
    else:
        assert _names(row, "in the code")
        assert shown
        assert row["ours"]


def test_names_of_nothing_are_found() -> None:
    """The check itself: an experiment, a file and a test that do not exist."""
    known = {"table5"}
    assert _problem("table5", known) is None
    assert _problem("tests/lfn/test_papers.py::test_names_of_nothing_are_found", known) is None
    for name in ("table9", "tests/no/such.py", "tests/lfn/test_papers.py::no_such_test"):
        assert _problem(name, known)


@pytest.mark.parametrize("name", list(catalogue.all_experiments()))
def test_every_published_figure_of_an_experiment_has_a_row(name: str) -> None:
    one = catalogue.all_experiments()[name]
    if one.reproduces:
        assert any(name in _names(row, "shown by") for row in ROWS), "no row names it"
    known = _numbers(name)
    for cell in one.cells:
        for metric, value in cell.published.items():
            assert float(f"{value:g}") in known, (cell.row, cell.column, metric, value)


def test_every_published_figure_of_the_accuracy_tables_has_a_row() -> None:
    known = _numbers(ACCURACY)
    for row in PUBLISHED:
        for value in (row.min_bps, row.max_bps, row.mean_bps):
            assert {float(f"{value / unit:g}") for unit in (1e3, 1e6)} & known, (row, value)


def test_a_doubtful_figure_is_marked() -> None:
    """33.1 of Table 4, and the zeros of Table 5 that are not legible."""
    doubtful = [row["published"] for row in ROWS if "**(?)**" in row["published"]]
    assert any("33.1" in text for text in doubtful)
    inferred = [cell for cell in catalogue.all_experiments()["table5"].cells if cell.doubts]
    assert len(inferred) == sum("inferred" in text for text in doubtful)
