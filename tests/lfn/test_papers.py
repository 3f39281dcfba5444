"""docs/papers.md: its rows name existing things, and every published result has a row.

Each row says where a mechanism or figure of the papers is, and which experiment or test shows it.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import catalogue, papers
from pacer_mininet.experiments.experiment import Cell
from pacer_mininet.experiments.papers import Row
from pacer_mininet.published import FIG_1_PACKETS_OF_A_TICK

sys.path.insert(0, str(paths.REPO / "tests" / "accuracy"))
sys.path.insert(0, str(paths.REPO / "tests" / "common"))

import named_tests
from published import PUBLISHED

STATES = ("done", "partly", "not yet")
ELSEWHERE = "in the report"
NAMED = re.compile(r"`([^`]+)`")
ACCURACY = "tables2-4"

ROWS = papers.rows()


def _names(row: Row, column: str) -> list[str]:
    return NAMED.findall(row[column])


def _numbers(rows: Iterable[Row]) -> set[float]:
    """Return the published numbers of rows."""
    return {float(number) for row in rows for number in papers.numbers(row["published"])}


FIFO = re.compile(r"(\d+) KB\b")
SPACED_BY = {
    r"\b(?:unpaced|no pacing)\b": {"unpaced"},
    r"\bTBF\b": {"tick-driven TBF", "tick-driven TBF, HZ 100"},
    r"\bPSPD\b": {"PSPD"},
    r"\b(?:paced|PSPacer|PSPS)\b": {"paced"},
}
"""The spacing of packets, by its words in a row."""

SIDES = {"at the sender": "near_", "at the receiver": "far_"}


def _is_of(row: Row, experiment: str, cell: Cell, metric: str) -> bool:
    """Return whether a row is about a cell's figure, as far as the row says of which it is."""
    what = row["what"]
    if experiment not in _names(row, "shown by"):
        return False
    sizes = {int(size) * 1024 for size in FIFO.findall(what)}
    shapers = set().union(*(of for words, of in SPACED_BY.items() if re.search(words, what)))
    sides = {prefix for words, prefix in SIDES.items() if words in what}
    # Bursts and losses of the receiver's side are those of the whole way.
    side = metric.partition("_")[0] + "_" if metric.startswith(tuple(SIDES.values())) else "far_"
    return (
        (not sizes or cell.scenario.fifo_bytes in sizes)
        and (not shapers or cell.scenario.flows[0].shaper.name in shapers)
        and (not sides or side in sides)
    )


def _problem(name: str, experiments: set[str]) -> str | None:
    """Return why a name of the column "shown by" names nothing, or None."""
    return None if name in experiments else named_tests.problem(name)


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
        assert not _names(row, "in the code")
        assert not shown
        assert not row["ours"]
    else:
        assert _names(row, "in the code")
        assert shown
        assert row["ours"]
    if row["status"] == "done":
        # A measured value, or a test: a report is not in the repository, since each pass makes it.
        assert ELSEWHERE not in row["ours"] or any(name.startswith("tests/") for name in shown)


def test_names_of_nothing_are_found() -> None:
    """The check itself: an experiment, a file and a test that do not exist."""
    known = {"table5"}
    assert _problem("table5", known) is None
    in_python = "tests/lfn/test_papers.py"
    assert _problem(f"{in_python}::test_names_of_nothing_are_found", known) is None
    assert _problem("switch/crates/switch/tests/burstiness.rs", known) is None
    for name in ("table9", "README.md", "tests/no/such.py", f"{in_python}::no_such_test"):
        assert _problem(name, known)


@pytest.mark.parametrize("name", list(catalogue.all_experiments()))
def test_every_published_figure_of_an_experiment_has_a_row(name: str) -> None:
    one = catalogue.all_experiments()[name]
    if one.reproduces:
        assert any(name in _names(row, "shown by") for row in ROWS), "no row names it"
    for cell in one.cells:
        for metric, value in cell.published.items():
            known = _numbers(row for row in ROWS if _is_of(row, name, cell, metric))
            assert float(f"{value:g}") in known, (cell.row, cell.column, metric, value)


def test_a_figure_in_the_row_of_another_cell_is_none() -> None:
    """The check itself: Table 5's 64 KB are not in the row of 16 KB, nor TBF's in PSPacer's."""
    of_table_5 = {(c.row, c.column): c for c in catalogue.all_experiments()["table5"].cells}
    here = [row for row in ROWS if "Table 5, 16 KB" in row["what"]]
    small, large = (of_table_5[size, "unpaced"] for size in ("16KB", "64KB"))
    assert 219 in _numbers(row for row in here if _is_of(row, "table5", small, "lost"))
    assert not [row for row in here if _is_of(row, "table5", large, "lost")]
    bursts = {cell.column: cell for cell in catalogue.all_experiments()["burstiness"].cells}
    tbf = bursts["tick-driven TBF, HZ 100"]
    rows = [row for row in ROWS if "PSPacer at the" in row["what"]]
    assert len(rows) == 2
    assert not [row for row in rows if _is_of(row, "burstiness", tbf, "near_queue_max")]
    sender, receiver = rows
    paced = bursts["paced"]
    assert _is_of(sender, "burstiness", paced, "near_queue_max")
    assert not _is_of(sender, "burstiness", paced, "far_queue_max")
    assert _is_of(receiver, "burstiness", paced, "loss_share")


def test_every_published_figure_of_the_accuracy_tables_has_a_row() -> None:
    known = _numbers(row for row in ROWS if ACCURACY in _names(row, "shown by"))
    for row in PUBLISHED:
        for value in (row.min_bps, row.max_bps, row.mean_bps):
            assert {float(f"{value / unit:g}") for unit in (1e3, 1e6)} & known, (row, value)


def test_the_published_figure_of_fig_1_has_a_row() -> None:
    known = _numbers(row for row in ROWS if "fig1" in _names(row, "shown by"))
    assert FIG_1_PACKETS_OF_A_TICK in known


IN_ORDER = [(name, what) for name, of in papers.FIGURES.items() for what in of]
"""The rows whose figures have an order: experiment, and the row's cell "what"."""


@pytest.mark.parametrize(("name", "what"), IN_ORDER, ids=[what[:40] for _, what in IN_ORDER])
def test_published_figures_have_the_order_of_ours(name: str, what: str) -> None:
    """In another order, one would be read as that of another spacing."""
    (row,) = [row for row in ROWS if row["what"] == what]
    assert name in _names(row, "shown by")
    # BBR stands in the place of FAST, like Vegas, so its published figures come twice.
    published = dict.fromkeys(_published(name, papers.FIGURES[name][what]))
    values = [value for _, value in published]
    assert papers.first_missing(values, row["published"]) is None


def _published(name: str, figures: papers.Figures) -> list[tuple[str, float]]:
    """Return the published ones of an experiment's figures, with their metric."""
    one = catalogue.all_experiments()[name]
    known = {(cell.row, cell.column): cell.published for cell in one.cells}
    if one.virtual:
        known = {
            (f"{row.table}, {row.per_packets}, {row.target_bps / 1e6:g}", ""): {
                "min, Mbit/s": row.min_bps / 1e6,
                "max, Mbit/s": row.max_bps / 1e6,
                "mean, Mbit/s": row.mean_bps / 1e6,
                "burst, MTU": row.burst_mtu,
            }
            for row in PUBLISHED
        }
    else:
        assert {figure.metric for figure in figures} <= set(one.metrics)
    return [
        (figure.metric, value)
        for figure in figures
        if (value := known[figure.row, figure.column].get(figure.metric)) is not None
    ]


def test_figures_that_changed_places_or_values_are_found() -> None:
    """The check itself, of Table 5's row of 16 KB, published and ours."""
    text = "29.4 M, 219 / 26.9 M, 131 / 474 M, 0"
    assert papers.first_missing([29.4, 219, 26.9, 131, 474, 0], text) is None
    assert papers.first_missing([26.9, 219, 29.4, 131], text) == 219
    (row,) = [row for row in ROWS if row["what"].startswith("Table 5, 16 KB")]
    figures = papers.FIGURES["table5"][row["what"]]
    ours = [float(number) for number in papers.numbers(row["ours"])]
    assert len(ours) == len(figures)

    def said(changed: float) -> list[str]:
        """Return what is said where the first figure is larger by so much."""
        cells: dict[tuple[str, str], dict[str, Any]] = {}
        for figure, value in zip(figures, [ours[0] + changed, *ours[1:]], strict=True):
            of_seeds = dict.fromkeys(("median", "min", "mean", "max"), value)
            cells.setdefault((figure.row, figure.column), {})[figure.metric] = of_seeds
        rows = [
            {"row": title, "column": column, "values": values}
            for (title, column), values in cells.items()
        ]
        return papers.stale([{"name": "table5", "quick": False, "rows": rows}])

    # As written, 4.8 is 4.84 rounded.
    assert said(0.0) == said(0.04) == []
    (found,) = said(0.1)
    assert row["what"] in found
    assert f"{ours[0] + 0.1:g}" in found


def test_a_doubtful_figure_is_marked() -> None:
    """33.1 of Table 4, and the zeros of Table 5 that are not legible."""
    doubtful = [row["published"] for row in ROWS if "**(?)**" in row["published"]]
    assert any("33.1" in text for text in doubtful)
    inferred = [cell for cell in catalogue.all_experiments()["table5"].cells if cell.doubts]
    assert len(inferred) == sum("inferred" in text for text in doubtful)
