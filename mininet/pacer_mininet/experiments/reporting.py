"""Writes an experiment's table and plots from its runs, and the report from the tables."""

from collections.abc import Sequence
from pathlib import Path

from pacer_mininet.experiments import again, page, plots, provenance, tables, virtual
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.results import read_object, write_json
from pacer_mininet.experiments.store import Store
from pacer_mininet.experiments.virtual import VirtualError

__all__ = ["VirtualError", "write_report", "write_table"]


def write_table(one: Experiment, results: Store, directory: Path) -> None:
    """Write the JSON and the plots of an experiment to a directory."""
    if one.virtual:
        found, to_draw = virtual.collect(one)
        drawn = plots.draw_virtual(one, to_draw)
    else:
        found = tables.collect(one, results)
        drawn = plots.draw(one, tables.results_of(one, results))
    directory.mkdir(parents=True, exist_ok=True)
    plots.save(drawn, directory, one.name)
    write_json(directory / f"{one.name}.json", found)


def write_report(experiments: Sequence[Experiment], directory: Path) -> None:
    """Write the report on experiments whose tables are in a directory; it is beside it."""
    files = [directory / f"{one.name}.json" for one in experiments]
    collected = [found for found in map(read_object, files) if found is not None]
    made_by = (
        f"{provenance.sentence(read_object(directory / provenance.FILE))} "
        f"{again.sentences_on(collected, read_object(directory / again.FILE))}"
    )
    pictures = {one.name: plots.saved(one, directory) for one in experiments}
    page.write(collected, pictures, directory.parent / "report.html", made_by=made_by)
