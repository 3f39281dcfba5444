"""Compares two passes over the same experiments to the byte."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.store import Store

FILE = "again.json"


def digest_of(collected: Sequence[dict[str, Any]]) -> str:
    """Return one digest of all tables: equal tables, equal digest."""
    text = json.dumps(list(collected), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def compare(
    experiments: Sequence[Experiment],
    first: tuple[Sequence[dict[str, Any]], Store],
    second: tuple[Sequence[dict[str, Any]], Store],
) -> dict[str, Any]:
    """Compare two passes.

    Args:
        experiments: the experiments of both.
        first: the tables of the one pass, and its results.
        second: those of the other.

    Returns:
        For tables and for runs (with their whole series, which tables do not show): how many were
        compared, and the names of those that differ. A run that one of the two lacks is not
        compared.

    """
    different_tables = [
        one["name"] for one, other in zip(first[0], second[0], strict=True) if one != other
    ]
    compared, different_runs = set(), set()
    for experiment in experiments:
        for cell in experiment.cells:
            for run in cell.runs():
                contents = first[1].content(run), second[1].content(run)
                if all(contents):
                    compared.add(run)
                    if contents[0] != contents[1]:
                        different_runs.add(experiment.name_of(cell, run))
    return {
        "digests": [digest_of(first[0]), digest_of(second[0])],
        "tables": len(first[0]),
        "different_tables": different_tables,
        "runs": len(compared),
        "different_runs": sorted(different_runs),
    }


def equal(comparison: dict[str, Any]) -> bool:
    """Return whether nothing differs."""
    return not (comparison["different_tables"] or comparison["different_runs"])


def sentence(comparison: dict[str, Any]) -> str:
    """Return a comparison in one sentence."""
    kinds = (
        f"{comparison[kind] - len(comparison[f'different_{kind}'])} of {comparison[kind]} {kind}"
        for kind in ("tables", "runs")
    )
    names = [*comparison["different_tables"], *comparison["different_runs"]]
    differ = f"; these differ: {', '.join(names)}" if names else ""
    return f"A second pass gave the same bytes for {' and '.join(kinds)}{differ}."


def sentences_on(collected: Sequence[dict[str, Any]], comparison: dict[str, Any] | None) -> str:
    """Return the digest of tables, and the comparison if it was of the same tables."""
    digest = digest_of(collected)
    said = f"sha256 of the tables here: {digest}."
    if comparison is None or digest not in comparison.get("digests", ()):
        return said
    return f"{said} {sentence(comparison)}"
