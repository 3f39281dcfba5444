"""The figures of the README's tables are those of `make demo`, to the digit."""

import json
import re
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import demo

README = paths.REPO / "README.md"

METRICS = {
    "TCP goodput (Mbit/s; the maximum is 476.9)": ("goodput", "median"),
    "TCP goodput, whole run (Mbit/s)": ("goodput", "median"),
    "TCP goodput, second half (Mbit/s)": ("steady", "median"),
    "packets lost at the bottleneck": ("lost", "median"),
    "FIFO that the packets would need in front of the bottleneck (bytes)": ("queue_max", "median"),
    "transfers done": ("done", "median"),
    "published (2006, Linux 2.6.11): goodput (Mbit/s)": ("goodput", "published"),
    "published: packets lost at the router": ("lost", "published"),
}
"""Metric of the demo's summary, and the statistic of it, by the first cell of a README row."""

SHARED = ("two senders", "ten senders that come and go")
"""Titles of README tables up to their comma, which are rows of the summary."""

SINGLE = "a single flow"


@pytest.fixture(scope="module")
def summary(lab: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Make the demo with its default settings."""
    results = tmp_path_factory.mktemp("demo") / "results"
    with pytest.MonkeyPatch.context() as environment:
        for setting in ("FIFO", "SECONDS", "RATE", "RTT", "EDGE"):
            environment.delenv(setting, raising=False)
        assert demo.main(["--results", str(results)]) == 0
    found = json.loads((results / "summary.json").read_text())
    assert isinstance(found, dict)
    return found


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the README's tables of the demo, by the title of their first column."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()
        ]
        title = rows[0][0].partition(",")[0]
        if title in (*SHARED, SINGLE):
            found[title] = [rows[0], *rows[2:]]
    return found


def shown(value: float, like: str) -> str:
    """Return a number as the README writes it: with as many decimals, and commas."""
    decimals = len(like.partition(".")[2])
    return f"{value:,.{decimals}f}"


def test_the_readme_has_the_figures_of_the_demo(summary: dict[str, Any]) -> None:
    read = tables(README.read_text())
    assert set(read) == {*SHARED, SINGLE}
    compared = 0
    for title, (head, *rows) in read.items():
        cells = summary["single" if title == SINGLE else "shared"]["rows"]
        cells = [cell for cell in cells if title == SINGLE or cell["row"] == title]
        assert len(cells) == len(head) - 1
        for name, *figures in rows:
            metric, what = METRICS[name]
            for cell, figure in zip(cells, figures, strict=True):
                number = figure.partition(" ")[0]
                if what == "published":
                    value = cell["published"].get(metric)
                else:
                    value = cell["values"][metric][what]
                expected = "-" if value is None else shown(value, number)
                assert number == expected, f"{title}, {name}, {cell['column']}"
                compared += 1
    assert compared == 4 * (3 + 3 + 6)


def test_the_mean_and_the_longest_transfer_are_those_of_the_demo(summary: dict[str, Any]) -> None:
    said = re.search(
        r"takes ([\d.]+) s on average, and the\s+slowest ([\d.]+) s", README.read_text()
    )
    assert said is not None
    ten = [cell for cell in summary["shared"]["rows"] if cell["row"].startswith("ten")]
    values = ten[-1]["values"]
    found = values["completion_mean"]["median"], values["completion"]["median"]
    assert said.groups() == tuple(f"{value:.2f}" for value in found)
