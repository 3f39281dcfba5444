"""The experiments' framework: its runs, its stored results, its report.

Runs themselves are in test_lab_experiment.py; here results are stored as a run
leaves them.
"""

import dataclasses
import html.parser
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet import paths, runs
from pacer_mininet.experiments import (
    again,
    catalogue,
    claim_values,
    claims,
    conditions,
    findings,
    jobs,
    main,
    metrics,
    network,
    page,
    plots,
    provenance,
    reporting,
    results,
    shaping,
    tables,
    tokyo,
    tutorials,
    virtual,
)
from pacer_mininet.experiments.experiment import (
    Cell,
    Experiment,
    column_titles,
    many_flows,
    one_flow,
)
from pacer_mininet.experiments.following import LINE_AT_ONCE, LINE_STEP_BY_STEP
from pacer_mininet.experiments.plan import Plan, runs_of
from pacer_mininet.experiments.samples import SAMPLE_NS
from pacer_mininet.experiments.scenario import (
    FQ,
    PACED,
    TBF,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
    buffer_for,
    from_json,
)
from pacer_mininet.experiments.store import Store
from pacer_mininet.traffic import NS_PER_S

sys.path.insert(0, str(paths.REPO / "tests" / "accuracy"))

import aggregation

VERSIONS = {"switch": "1", "kernel": "k"}
SHORT = Scenario(one_flow(PACED), seconds=2)
UNPACED_SHORT = dataclasses.replace(SHORT, flows=(Flow(shaper=UNPACED, streams=2),))


def result_of(goodput_bps: int, lost: int) -> dict[str, Any]:
    """Return a run's result as the runner leaves it."""
    flow = {
        "shaper": "paced",
        "transfer_bytes": 0,
        "goodput_bps": goodput_bps,
        "goodput_second_half_bps": goodput_bps,
        "completion_ms": None,
        "rtt_ms": {"min": 200.0, "mean": 201.0, "max": 210.0},
    }
    return {
        "mode": "lab",
        "kernel": "6.1",
        "commands": ["iperf -c 10.0.0.2"],
        "flows": [flow],
        "goodput_bps": goodput_bps,
        "bottleneck_drops": lost,
        "edge_drops": 0,
        "stalls": {"edge1": {"count": 0, "total_ns": 0}, "wan": None},
        "wan": {"packets_1500": 1000, "queue_max_bytes": 1518, "bin_max_bps": 5, "deviation": 0.1},
        "series": {
            "bin_ns": 500_000,
            "bin_bytes": [1518] * 6000,
            "bottleneck_drops": {"at_ms": [500], "packets": [lost]},
            "sender": {"at_ms": [50, 150], "cwnd_packets": [10, 20], "rtt_us": [1, 2]},
            "flows": [[0, 1000, 2000]],
        },
    }


def experiment_of(*cells: Cell, **more: Any) -> Experiment:
    return Experiment(
        *("try", "A try", ("goodput", "steady", "lost", "edge_lost"), cells),
        reproduces=("IPSJ Table 5",),
        source="somebody <b>",
        **more,
    )


PAPER = {"goodput": 474.0, "lost": 0.0}
BOTH = experiment_of(
    Cell("64KB", "unpaced", UNPACED_SHORT, {"goodput": 210.0, "lost": 257.0}),
    Cell("64KB", "paced", SHORT, PAPER),
    plots=(
        *("bandwidth", "bandwidth-100ms", "window", "rtt", "comparison", "flows"),
        *("slow-start", "sweep", "after-loss", "gaps-goodput", "gaps-deviation", "gaps-spread"),
    ),
)


# ---- the catalogue -------------------------------------------------------------------------


def test_every_published_table_and_figure_has_an_experiment() -> None:
    covered = [name for one in catalogue.all_experiments().values() for name in one.reproduces]
    assert sorted(covered) == sorted(catalogue.PUBLISHED)


def test_every_table_has_unpaced_and_fq_beside_what_is_spaced() -> None:
    for one in catalogue.all_experiments().values():
        kinds = {flow.shaper.kind for cell in one.cells for flow in cell.scenario.flows}
        if "class" in kinds:
            assert "fq" in kinds, one.name
            # A gap of 12 bytes is the same as none, so it needs no unpaced run.
            assert "none" in kinds or one.name == "ipg-rates"


def test_each_experiment_of_the_switch_alone_says_what_measures_it() -> None:
    alone = [one.name for one in catalogue.all_experiments().values() if one.virtual]
    assert sorted(alone) == sorted(virtual._MEASURED)


def test_columns_of_one_plot_have_colours_of_their_own() -> None:
    assert len(set(plots.COLOURS)) == len(plots.COLOURS)
    synchronised = catalogue.all_experiments()["synchronised"]
    assert len(column_titles(synchronised.cells)) <= len(plots.COLOURS)


def test_all_figures_of_the_metrics_and_plots_are_known() -> None:
    for one in catalogue.all_experiments().values():
        assert set(one.metrics) <= set(metrics.METRICS), one.name
        places = [(cell.row, cell.column) for cell in one.cells]
        assert len(places) == len(set(places)), one.name
        for cell in one.cells:
            assert set(cell.published) <= set(one.metrics), (one.name, cell.row)


def test_published_conditions_stand_beside_those_here() -> None:
    for one in catalogue.all_experiments().values():
        assert set(one.conditions) <= set(conditions.CONDITIONS), one.name
        if one.reproduces and not one.virtual:
            assert one.conditions, one.name
    shown = {
        row["condition"]: (row["published"], row["here"])
        for row in conditions.beside_published(catalogue.all_experiments()["burstiness"])
    }
    assert shown["RTT"] == ("6.0 ms", "6 ms")
    assert shown["duration"] == ("one minute", "60 s")
    assert shown["FIFO"] == (conditions.NOT_SAID, "64 KB")
    slides = catalogue.all_experiments()["slides"]
    here = [row["here"] for row in conditions.beside_published(slides)]
    assert "100 packets, the first loss" in here


def test_table_5_is_published_whole() -> None:
    cells = catalogue.all_experiments()["table5"].cells
    published = {(c.row, c.column): dict(c.published) for c in cells if c.published}
    assert len(published) == 15
    assert published["16KB", "tick-driven TBF"] == {"goodput": 26.9, "lost": 131}
    assert published["4MB", "paced"] == {"goodput": 474, "lost": 0}


MEASURED_S = {
    "20 s, paced": (Scenario(one_flow(PACED)), 22),
    "20 s, TBF": (Scenario(one_flow(TBF)), 29),
    "5 s, paced": (Scenario(one_flow(PACED), seconds=5), 9),
    "5 s, TBF": (Scenario(one_flow(TBF), seconds=5), 9),
    "4 s, two senders, fq": (Scenario(many_flows(FQ, 2), seconds=4), 7),
    "12 s, 50 ms one way, 0.001 lost": (
        Scenario(one_flow(PACED), seconds=12, rtt_ns=100_000_000, loss_ppm=1000),
        6,
    ),
}
"""Processor time of some runs, on a machine that was busy with other work."""


def test_the_time_of_a_run_is_that_of_measured_ones() -> None:
    for title, (scenario, measured_s) in MEASURED_S.items():
        ratio = jobs.Job(title, scenario).processor_s / measured_s
        assert 0.95 <= ratio <= 1.7, (title, ratio)


def test_a_pass_takes_at_most_ninety_minutes_of_two_processors(tmp_path: Path) -> None:
    for quick, minutes in ((False, 90), (True, 10)):
        experiments = catalogue.all_experiments(quick=quick).values()
        results = Store(tmp_path / "runs", {})
        runs_made, keys = runs_of(experiments, results)
        plan = Plan(
            *(tmp_path, {}, "", ""), realtime=False, quick=quick, runs=runs_made, experiments=keys
        )
        by_key = {results.key(job.scenario): job for job in jobs.jobs_of(experiments)}
        # The runs of a group share the network of its first.
        total_s = sum(job.processor_s for job in by_key.values())
        total_s -= sum(by_key[key].network_s for of in plan.groups().values() for key in of[1:])
        assert total_s <= 2 * minutes * 60, total_s / 60


def test_quick_runs_are_small_but_otherwise_the_same() -> None:
    for name, one in catalogue.all_experiments(quick=True).items():
        assert one.quick != one.virtual
        for cell in one.cells:
            assert cell.scenario.seconds <= 3, name
            assert cell.scenario.rate_bps <= 100_000_000, name
            assert len(cell.runs()) == 1
            for flow in cell.scenario.flows:
                # More than the line's the controller refuses.
                rate = dict(flow.shaper.settings).get("rate") or 0
                assert rate <= cell.scenario.edge_rate_bps, (name, cell.column)
    hundred = catalogue.all_experiments(quick=True)["senders100"].cells[1].scenario
    shares = sum(flow.shaper.rate_bps(hundred.rate_bps) for flow in hundred.flows)
    assert shares == hundred.rate_bps


def test_an_unknown_experiment_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no experiment 'table9'.*table5"):
        catalogue.chosen(["table9"], catalogue.all_experiments())


# ---- scenarios -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(catalogue.all_experiments()))
def test_scenarios_survive_json(name: str) -> None:
    for cell in catalogue.all_experiments()[name].cells:
        assert from_json(cell.scenario.to_json()) == cell.scenario


@pytest.mark.parametrize(
    "wrong",
    [
        {"flows": ()},
        {"seconds": 0},
        {"rate_bps": 10},
        {"edges": 3},
        {"flows": (Flow(sender=0),)},
        {"flows": (Flow(congestion_control="; rm"),)},
        {"flows": (Flow(shaper=Shaper("x", "cake")),)},
        {"rate_steps": ((500, 10),)},
        {"rate_steps": ((900, 10**8), (500, 10**8))},
        {"rate_steps": ((2_000, 10**8),)},
        {"rate_steps": ((500, 10**8),), "far": True},
    ],
)
def test_scenarios_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        dataclasses.replace(SHORT, **wrong)
    with pytest.raises(ValueError, match=r"scenario|Expecting"):
        from_json('{"flows": 3}')


def test_what_the_controller_lacks_is_said_by_its_schema_alone() -> None:
    schema = {"properties": {"mode": {"enum": ["static", "unpaced"]}, "rate": {}}}
    dynamic = Shaper("dynamic", "class", (("mode", "dynamic"),))
    clamp = Shaper("clamp", "class", (("mode", "static"), ("clamp_window", True)))
    assert shaping.missing(PACED, schema) is None
    assert shaping.missing(UNPACED, schema) is None
    assert "'static', 'unpaced'" in (shaping.missing(dynamic, schema) or "")
    assert "clamp_window" in (shaping.missing(clamp, schema) or "")
    schema["properties"]["mode"]["enum"].append("dynamic")
    assert shaping.missing(dynamic, schema) is None
    # The controller's real schema has the static mode.
    assert shaping.missing(PACED) is None


def test_in_real_time_a_late_class_makes_up_half_a_frame() -> None:
    """A frame of 1518 bytes at 40 Mbit/s takes 303.6 us."""
    assert shaping.realtime_allowance_ns(40_000_000) == 151_800


def test_a_setting_of_the_whole_machine_is_left_alone_outside_the_lab(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAB", raising=False)
    with pytest.raises(shaping.NotOfferedError, match="whole machine"):
        shaping.end_slow_start("bic", 100)


# ---- runs and stored results -----------------------------------------------------------------


def test_a_result_is_of_its_programs(tmp_path: Path) -> None:
    results_of_runs = Store(tmp_path / "runs", VERSIONS)
    results_of_runs.save(SHORT, result_of(1, 1))
    assert Store(tmp_path / "runs", VERSIONS).has(SHORT)
    # With another switch or another kernel, all runs are made again.
    assert not Store(tmp_path / "runs", {**VERSIONS, "switch": "2"}).has(SHORT)


def test_a_broken_result_is_none(tmp_path: Path) -> None:
    results_of_runs = Store(tmp_path, VERSIONS)
    results_of_runs.save(SHORT, result_of(1, 1))
    (tmp_path / f"{results_of_runs.key(SHORT)}.json").write_text('{"mode": "la')
    assert results_of_runs.load(SHORT) is None


def test_equal_runs_of_several_experiments_are_made_once() -> None:
    found = jobs.jobs_of([BOTH, dataclasses.replace(BOTH, name="other")])
    assert sorted(job.name for job in found) == [
        "try 64KB, paced #1",
        *(f"try 64KB, unpaced #{seed}" for seed in (1, 2, 3)),
    ]


def test_runs_that_cannot_be_are_not_made(tmp_path: Path) -> None:
    never = Shaper("never", "class", (("no_such_field", 1),))
    cell = Cell("64KB", "never", dataclasses.replace(SHORT, flows=one_flow(never)))
    assert jobs.jobs_of([experiment_of(cell)]) == []
    row = tables.collect(experiment_of(cell), Store(tmp_path, VERSIONS))["rows"][0]
    assert "no_such_field" in row["skipped"]


def test_one_that_fails_keeps_no_other_from_being_made() -> None:
    """Real processes, two at a time; all end, and the output of each is read."""
    good = 'print(\'{"event": "result", "run": "run %d", "result": {"x": 1}}\')'
    bad = 'print(\'{"event": "error", "message": "no"}\'); raise SystemExit(1)'
    commands = [
        ([f"run {number}"], [sys.executable, "-c", bad if number == 1 else good % number])
        for number in range(4)
    ]
    said: dict[str, Any] = {}
    for ended in runs.side_by_side(commands, 2, lambda _: None):
        try:
            said |= ended.wait()
        except runs.RunError as error:
            said[ended.names[0]] = str(error)
    assert {name: what for name, what in said.items() if name != "run 1"} == {
        f"run {number}": {"x": 1} for number in (0, 2, 3)
    }
    assert said["run 1"].endswith("no")


# ---- tables and report -----------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    """Return a store with all runs of BOTH."""
    store = Store(tmp_path / "runs", VERSIONS)
    for seed, goodput in ((1, 200e6), (2, 220e6), (3, 150e6)):
        run = dataclasses.replace(UNPACED_SHORT, seed=seed)
        store.save(run, result_of(int(goodput), 100 * seed))
    store.save(SHORT, result_of(476_900_000, 0))
    return store


def test_cells_are_medians_with_their_spread(filled: Store) -> None:
    found = tables.collect(BOTH, filled)
    unpaced, paced = found["rows"]
    each = [200.0, 220.0, 150.0]
    spread = {"median": 200.0, "mean": 190.0, "min": 150.0, "max": 220.0, "each": each}
    assert unpaced["values"]["goodput"] == spread
    assert metrics.shown("goodput", unpaced["values"]["goodput"]) == "200.0 (150.0 to 220.0)"
    assert metrics.shown("lost", paced["values"]["lost"]) == "0"
    assert paced["seeds"] == [1]
    assert from_json(paced["scenario"]) == SHORT
    assert json.loads(json.dumps(found)) == found


def test_the_sentences_come_from_the_data(filled: Store) -> None:
    said = " ".join(tables.collect(BOTH, filled)["sentences"])
    (compared,) = tables.collect(BOTH, filled)["compared"]
    assert compared == {
        "figure": "goodput, Mbit/s",
        "within 10 % of the published": "2 of 2",
        "furthest below": "-",
        "furthest above": "-",
    }
    assert "Of 1 cells published without a loss, 1 have none here." in said
    assert "Against unpaced, paced has the higher goodput in the second half in 1 of 1" in said
    # Nothing is published: the ways of spacing are set against each other.
    alone = dataclasses.replace(BOTH, reproduces=())
    said = " ".join(tables.collect(alone, filled)["sentences"])
    assert "64KB, lost at the bottleneck: best paced (0), worst unpaced (200)." in said
    filled.save(SHORT, result_of(100_000_000, 7))
    said = " ".join(tables.collect(BOTH, filled)["sentences"])
    (compared,) = tables.collect(BOTH, filled)["compared"]
    assert compared["furthest below"] == "64KB, paced: 100.0 [474.0]"
    assert "1 cells published without a loss, 0 have none" in said


def test_a_run_that_was_refused_says_why(filled: Store) -> None:
    filled.save(SHORT, {"skipped": "the controller refuses it: no ECN", "series": {}})
    row = tables.collect(BOTH, filled)["rows"][1]
    assert row["skipped"] == "the controller refuses it: no ECN"
    assert row["values"] == {}


def test_transfers_are_measured_by_when_they_were_done() -> None:
    """Fairness among transfers is that of their speeds."""
    transfers = [
        {
            "shaper": "paced" if done_ms else "unpaced",
            "transfer_bytes": 10_000_000,
            "payload_bytes": 10_000_000,
            "completion_ms": done_ms,
            "goodput_second_half_bps": 0,
        }
        for done_ms in (2000, 4000, None)
    ]
    names = ("completion", "completion_paced", "done", "steady", "jain")
    value = {name: metrics.METRICS[name].of({"flows": transfers}) for name in names}
    assert value == {
        "completion": None,
        "completion_paced": 4.0,
        "done": 2,
        # In the second half all of them may be over.
        "steady": None,
        "jain": None,
    }
    fairness = metrics.METRICS["jain_done"].of({"flows": transfers[:2]})
    assert fairness == pytest.approx(metrics.jain([2.0, 1.0]))


def test_fairness_is_jain_s() -> None:
    assert metrics.jain([5.0, 5.0, 5.0]) == 1.0
    assert metrics.jain([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)


class _Page(html.parser.HTMLParser):
    """A page's references and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.refers_to: list[str] = []
        self.pictures = 0
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "img"
        assert tag not in ("script", "link", "iframe")
        self.refers_to += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_needs_nothing_else(
    filled: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    below = tmp_path / "results" / "experiments"
    reporting.write_table(BOTH, filled, below)
    reporting.write_report([BOTH], below)
    collected = results.read_object(below / "try.json")
    assert collected is not None
    main.show(collected)
    shown = _Page()
    content = (tmp_path / "results" / "report.html").read_text()
    shown.feed(content)
    assert all(one.startswith(("data:image/png", "#")) for one in shown.refers_to)
    assert shown.pictures == len(BOTH.plots)
    assert "prefers-color-scheme: dark" in content
    for text in ("200.0 (150.0 to 220.0)", "474", "257", "somebody <b>", "iperf -c 10.0.0.2"):
        assert text in shown.text, text
    assert collected["name"] == "try"
    assert "[474]" in capsys.readouterr().out
    # The same data, the same bytes.
    again_below = tmp_path / "again" / "experiments"
    reporting.write_table(BOTH, filled, again_below)
    reporting.write_report([BOTH], again_below)
    assert (tmp_path / "again" / "report.html").read_text() == content


# ---- claims ----------------------------------------------------------------------------------


def row_with(column: str, scenario: Scenario = SHORT, **values: float) -> dict[str, Any]:
    """Return a row of a table whose seeds all gave the same."""
    return {
        "row": "a path",
        "column": column,
        "extra": False,
        "skipped": None,
        "scenario": scenario.to_json(),
        "seeds": [scenario.seed],
        "values": {
            name: {**dict.fromkeys(("median", "mean", "min", "max"), v), "each": [v]}
            for name, v in values.items()
        },
    }


def checked_share(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the claim on the smaller flow of Fig. 9, checked."""
    (found,) = (one for one in claims.check("fig9", rows) if "share" in one["claim"])
    return found


SWITCH_ALONE: dict[str, list[dict[str, Any]]] = {
    "aggregation": [{"flows": 2, **{kind.title: 1.0 for kind in aggregation.ARRANGEMENTS}}],
    "fig1": [
        {"pacing": pacing, "most back to back": most}
        for pacing, most in (("ideal", 1), ("timer-driven", 42))
    ],
    "targets": [{"mean off target, ppm": -0.2}],
}
"""Rows of experiments of the switch alone that have claims."""


def test_every_claim_is_about_figures_that_its_experiment_has() -> None:
    """Each claim has figures of some cell: with renamed columns it would hold without any."""
    known = catalogue.all_experiments()
    assert list(claims.CLAIMS) == [name for name in known if name in claims.CLAIMS]
    for name, of_experiment in claims.CLAIMS.items():
        one = known[name]
        rows = [
            {
                **row_with(cell.column, cell.scenario, **dict.fromkeys(one.metrics, 1.0)),
                "row": cell.row,
                "extra": cell.extra,
                "published": cell.published,
            }
            for cell in one.cells
        ]
        if one.virtual:
            rows = SWITCH_ALONE[name]
        for claim in of_experiment:
            values = claim.values(rows)
            assert values, claim.text
            assert None not in values, claim.text


def test_the_claims_on_the_switch_alone_are_about_the_right_rows() -> None:
    (target,) = claims.check("targets", [*SWITCH_ALONE["targets"], {"mean off target, ppm": -11}])
    assert (target["worst"], target["holds"]) == (11, False)
    ideal, timer = SWITCH_ALONE["fig1"]
    assert [one["worst"] for one in claims.check("fig1", [ideal, timer])] == [42, 1]
    swapped = [{**ideal, "most back to back": 42}, {**timer, "most back to back": 1}]
    assert [one["holds"] for one in claims.check("fig1", swapped)] == [False, False]


@pytest.mark.skipif(not paths.SWITCH_BINARY.exists(), reason="not run: pacing_switch is not built")
@pytest.mark.parametrize("name", ["fig1", "targets"])
def test_the_claims_on_the_switch_alone_hold(name: str) -> None:
    found, drawn = virtual.collect(catalogue.all_experiments()[name])
    assert drawn is not None
    assert found["claims"]
    assert [one["claim"] for one in found["claims"] if one["holds"] is not True] == []


def test_the_claims_on_aggregation_compare_the_arrangements() -> None:
    """They hold for what was measured; not where random phase is as good, nor if N are not N."""

    def hold(**changed: float) -> list[bool]:
        row = {"flows": 64, "in phase": 64.0, "random phase": 15.2, "begun a slot apart": 1.0}
        row |= dict.fromkeys(claim_values.EDGE_INTERLEAVES, 1.0)
        return [one["holds"] for one in claims.check("aggregation", [row | changed])]

    assert hold() == [True] * 4
    assert hold(**{"slots at the edge": 1.01}).count(False) == 1
    assert hold(**{"begun a slot apart": 2.0}).count(False) == 1
    assert hold(**{"in phase": 63.0}).count(False) == 1
    assert hold(**{"random phase": 1.0}).count(False) == 1


def test_a_claim_speaks_of_its_worst_figure() -> None:
    rows = [row_with("paced", share=99.0), row_with("paced", share=96.0), row_with("fq", share=50)]
    checked = checked_share(rows)
    assert (checked["worst"], checked["holds"]) == (96.0, False)
    assert claims.sentence(checked).endswith("NO (worst: 96.0)")
    assert checked_share(rows[:1])["holds"] is True


def test_only_claims_that_are_known_not_to_hold_may_not_hold() -> None:
    unpaced = row_with("unpaced", lost=9, goodput=8.0)
    rows = [unpaced, *(row_with("paced", share=s, lost=0, goodput=9.0) for s in (96.0, 99.0))]
    checked = claims.check("fig9", rows)
    assert claims.broken(checked) == [claims.sentence(checked_share(rows))]
    assert claims.broken(claims.check("fig9", [unpaced, rows[2]])) == []
    assert claims.broken(claims.check("fig9", [])) == []
    for text in claims.KNOWN_BROKEN:
        (known,) = (one for of in claims.CLAIMS.values() for one in of if one.text == text)
        one = {"claim": f"{text}: {known.bound} {known.limit:g}", "worst": 0.0, "holds": False}
        assert claims.broken([one]) == []


def test_a_claim_is_open_while_runs_are_missing() -> None:
    rows = [row_with("paced", share=99.0), {**row_with("paced"), "skipped": "not made yet"}]
    checked = checked_share(rows)
    assert (checked["worst"], checked["holds"]) == (None, None)
    # A skipped run, on a kernel without fq for example, is no evidence on pacing.
    checked = checked_share([rows[0], {**row_with("fq"), "skipped": "no fq"}])
    assert (checked["worst"], checked["holds"]) == (99.0, True)


def test_a_claim_without_its_figure_does_not_hold_once_all_runs_are_made() -> None:
    """A transfer that never ends has no time, which is worse than any time."""
    rows = [
        row_with("unpaced", completion=9.0),
        row_with("shared", lost=0),
        {**row_with("unpaced", completion=9.0), "row": "another"},
        {**row_with("shared", completion=4.0, apart=1.0, lost=0), "row": "another"},
    ]
    rows[1]["values"] |= {"completion": None, "apart": None}
    for skipped, holds in ((None, False), ("not made yet", None)):
        rows[0]["skipped"] = skipped
        checked = claims.check("cooperative", rows)
        found = [one["holds"] for one in checked if one["claim"].startswith("shared: ")]
        assert found == [holds, holds, True]


def test_a_machine_s_own_kernel_may_have_a_limit_of_its_own() -> None:
    """One frame in virtual time; two where a process has to be woken."""
    row = row_with("paced", near_queue_max=2.9)
    for mode, holds in (("lab", False), ("realtime", True)):
        *_, checked = claims.check("burstiness", [{**row, "mode": mode}])
        assert checked["holds"] is holds
    assert checked["claim"].endswith("at most 2.965")


def test_static_burstiness_is_above_the_fifo_where_packets_are_lost_and_there_alone() -> None:
    fifo_bytes = SHORT.fifo_bytes
    rows = [
        row_with("bursts", queue_max=fifo_bytes + 1, lost=3, near_dynamic_max=fifo_bytes / 1024),
        row_with("TCP", queue_max=fifo_bytes, lost=0, near_dynamic_max=fifo_bytes / 512),
    ]
    (checked,) = claims.check("burst-loss", rows)
    assert (checked["worst"], checked["holds"]) == (0, True)
    said = findings.predicted(rows)
    assert "above the FIFO in 1 runs, of which 1 lose packets; not above it in 1, of" in said[0]
    assert "above the FIFO in 1 runs, of which 0 lose packets; not above it in 1, of" in said[1]
    # The frame on the line counts in the one and not in the other.
    rows.append(row_with("near", queue_max=fifo_bytes + 1518, lost=0))
    (checked,) = claims.check("burst-loss", rows)
    assert (checked["worst"], checked["holds"]) == (0, True)
    rows.append(row_with("lost all the same", queue_max=fifo_bytes, lost=1))
    rows.append(row_with("not lost", queue_max=fifo_bytes + 1519, lost=0))
    (checked,) = claims.check("burst-loss", rows)
    assert (checked["worst"], checked["holds"]) == (2, False)
    # Each run for itself: the one that loses is not the one with the queue, in both seeds.
    crossed = row_with("two seeds", queue_max=fifo_bytes + 1519, lost=3)
    crossed["values"]["queue_max"]["each"] = [fifo_bytes + 1519, fifo_bytes]
    crossed["values"]["lost"]["each"] = [0, 3]
    (checked,) = claims.check("burst-loss", [crossed])
    assert (checked["worst"], checked["holds"]) == (2, False)


def test_both_bounds_of_a_share_are_those_of_the_worst_pair_of_seeds() -> None:
    switch, kernel = (row_with(f"CoDel, {of}", goodput=100.0) for of in ("switch", "kernel"))
    switch["values"]["goodput"] |= {"min": 97.0, "max": 101.0}
    kernel["values"]["goodput"] |= {"min": 99.0, "max": 100.0}
    least, most = claims.check("aqm", [switch, kernel])[:2]
    assert (least["worst"], least["holds"]) == (97.0, False)
    assert (most["worst"], most["holds"]) == (102.02, False)


def test_drops_and_marks_count_together_beside_the_kernel() -> None:
    """Four more or less are allowed, one of each flow, and 1.875 ms of the sojourn."""
    kernel = row_with("FQ-CoDel, kernel", queue_drops=1, queue_marks=35, sojourn_median=2.0)

    def checked(drops: int, marks: int, sojourn_ms: float) -> list[bool | None]:
        figures = {"queue_drops": drops, "queue_marks": marks, "sojourn_median": sojourn_ms}
        rows = [row_with("FQ-CoDel, switch", SHORT, **figures), kernel]
        found = [one for one in claims.check("aqm", rows) if "FQ-CoDel, short" in one["claim"]]
        return [one["holds"] for one in found if "p99" not in one["claim"]]

    assert checked(40, 0, 3.875) == [True, True]
    assert checked(41, 0, 3.876) == [False, False]


def test_a_share_of_the_line_is_measured_against_the_fluid_share() -> None:
    """The class may have a point more or less; with half of the line it breaks `1:3`."""
    near = row_with("wfq 1:3", steady_paced=24.5, steady_unpaced=70.5)
    half = row_with("wfq 1:3", steady_paced=47.0, steady_unpaced=47.0)
    checked = [
        next(one for one in claims.check("schedulers", [row]) if one["claim"].startswith("wfq 1:3"))
        for row in (near, half)
    ]
    assert [one["worst"] for one in checked] == [0.79, 25]
    assert [one["holds"] for one in checked] == [True, False]


def test_a_class_has_its_share_of_the_line_and_waits_for_one_frame() -> None:
    """A frame takes 0.12144 ms; in strict order, UDP of 60 Mbit/s has to have 60 % of the line."""
    line = Scenario((Flow(),), rate_bps=100_000_000)

    def checked(column: str, rate: float, longest_ms: float) -> list[tuple[float, bool]]:
        figures = {"first_rate": rate, "last_rate": 100 - rate, "first_sojourn_max": longest_ms}
        row = row_with(column, line, **figures) | {"row": tutorials.ABOVE_ITS_WEIGHT}
        return [
            (one["worst"], one["holds"])
            for one in claims.check("qos", [row])
            if one["claim"].startswith(
                (f"{column}, {tutorials.ABOVE_ITS_WEIGHT}", f"{column}: longest")
            )
        ]

    assert checked("strict", 59.5, 0.12) == [(0.5, True), (0.99, True)]
    assert checked("strict", 25, 0.125) == [(35, False), (1.03, False)]
    assert checked("drr 3:1", 25.2, 80) == [(0.2, True)]


def test_the_threshold_of_the_experiment_is_that_of_the_program() -> None:
    text = (paths.REPO / "p4src" / "qos.p4").read_text()
    assert f"MARK_FROM_PACKETS = {tutorials.MARK_FROM_PACKETS};" in text


def test_following_is_measured_against_every_other_way_and_the_fifo() -> None:
    """Where others come one by one, with the figures of docs/papers.md; the rest is made up."""
    fifo_bytes = SHORT.fifo_bytes

    def checked(**following: float) -> list[dict[str, Any]]:
        """Return the claims; each row has the same figures, but for the one that falls at once."""
        lost = {"following": 0, "paced, 200M": 2359, "dynamic": 2269, "unpaced, BBR": 13189}
        all_rows = []
        for row in ("one by one", LINE_STEP_BY_STEP, LINE_AT_ONCE):
            of = {"used": 90, "queue_max": fifo_bytes / 2, "lost_late": 0}
            of |= {"queue_late": fifo_bytes / 4}
            for name, packets in lost.items():
                own = following if name == "following" else {}
                figures = {**of, "lost": packets, **own}
                all_rows.append({**row_with(name, SHORT, **figures), "row": row})
        return claims.check("following", all_rows)

    found = checked()
    assert [one["worst"] for one in found] == [0, 50, 0, 50, 0, 25, -2359, -2269, -13189, 90]
    assert {one["holds"] for one in found} == {True}
    held = [one["holds"] for one in checked(lost=3000, queue_max=2 * fifo_bytes)]
    assert held == [*[False] * 4, True, True, False, False, True, True]
    held = [one["holds"] for one in checked(lost_late=1, queue_late=2 * fifo_bytes)]
    assert held == [*[True] * 4, False, False, *[True] * 4]


def test_what_comes_long_after_a_fall_of_the_rate_is_no_part_of_it() -> None:
    """Losses from half a second on, and queues from one and a half on; what was before counts."""
    result = {
        "falls_ms": [1010],
        "series": {
            "bottleneck_drops": {
                "at_ms": [*range(900, 1800, 100)],
                "packets": [1, 1, 901, 1701, 1701, 1701, 1701, 1701, 1703],
            },
            "window_vb_max_bytes": [*[1518] * 10, *[9000] * 16, 4000, *[1518] * 10],
        },
    }
    assert metrics.METRICS["lost_late"].of(result) == 1 + 2
    assert metrics.METRICS["queue_late"].of(result) == 4000
    unchanged = {**result, "falls_ms": []}
    assert metrics.METRICS["lost_late"].of(unchanged) is None
    assert metrics.METRICS["queue_late"].of(unchanged) is None


def test_what_is_free_is_what_the_line_has_while_it_has_it() -> None:
    """8 s of 500 and 2 s of 300 Mbit/s, of which another flow takes 100 Mbit/s for 5 s."""
    other = Flow(sender=2, udp_bps=100_000_000, start_ms=5_000)
    steps = ((6_000, 300_000_000), (8_000, 500_000_000))
    stepped = dataclasses.replace(SHORT, flows=(*SHORT.flows, other), seconds=10, rate_steps=steps)
    assert stepped.free_bps == 460_000_000 - 50_000_000
    assert stepped.falls_ms == [6_000]
    assert from_json(stepped.to_json()) == stepped
    # A run without steps keeps the key that it had before there were any.
    assert "rate_steps" not in SHORT.to_json()
    assert (SHORT.free_bps, SHORT.falls_ms) == (SHORT.rate_bps, [])
    assert network.network_key(stepped) == stepped


def test_gap_frames_are_measured_against_accounted_gaps() -> None:
    rows = [
        row_with("paced", queue_max=1518, wire_bytes=100_000),
        row_with("paced, PAUSE frames", queue_max=1535, wire_bytes=98_000),
    ]
    found = [(one["worst"], one["holds"]) for one in claims.check("gaps", rows)]
    assert found == [(17, True), (2000, False)]


def test_dynamic_is_measured_against_unpaced_of_the_same_long_path() -> None:
    short = dataclasses.replace(SHORT, rtt_ns=20_000_000)
    rows = [
        row_with("unpaced", goodput=100.0, lost=50, edge_lost=1, rtt_error=1, in_flight_error=1),
        row_with("dynamic", goodput=300.0, lost=9, edge_lost=3, rtt_error=1, in_flight_error=1),
        {**row_with("unpaced", short, goodput=400.0, lost=0, edge_lost=0), "row": "a short one"},
        {
            **row_with("dynamic", short, goodput=100.0, lost=7, rtt_error=4, in_flight_error=9),
            "row": "a short one",
        },
    ]
    for experiment in ("ipg", "delays"):
        found = [
            (one["worst"], one["holds"])
            for one in claims.check(experiment, rows)
            if "gap's" not in one["claim"]
        ]
        assert found == [(200.0, True), (-39.0, True), (1.0, True), (1.0, True)]
    lost_at_the_edge = [rows[0], row_with("dynamic", goodput=300.0, lost=9, edge_lost=90)]
    won = [one["holds"] for one in claims.check("slides", lost_at_the_edge)]
    assert won[-2:] == [True, False]


def test_claims_leave_out_extra_runs() -> None:
    """BBR beside the papers' BIC probes below the class's rate."""
    row = {
        **row_with("paced", steady=476.9, lost=0, edge_lost=0, queue_max=1518),
        "mode": "realtime",
    }
    other = {**row_with("paced", steady=450.0, lost=3, edge_lost=1, queue_max=9999), "extra": True}
    checked = claims.check("table5", [row, other])
    found = [
        one for one in checked if one["claim"].startswith("paced: ") and "above" not in one["claim"]
    ]
    assert [one["holds"] for one in found] == [True] * 4
    assert found[-1]["claim"].endswith("at most 3036")


def test_dynamic_stands_beside_the_best_fixed_gap() -> None:
    rows = [
        row_with("dynamic", goodput=9.0),
        row_with("IPG 8", goodput=5.0),
        row_with("IPG 512", goodput=10.0),
    ]
    (said,) = findings.dynamic_beside_static(rows)
    assert said == (
        "a path: dynamic 9.0 Mbit/s, the best fixed gap (IPG 512) 10.0: 10 % less "
        "(published: more)."
    )
    assert not findings.dynamic_beside_static(rows[:2])


def test_dynamic_is_compared_with_fixed_gaps_over_the_seeds_that_both_have() -> None:
    """A median over other seeds is one of other packets lost on the wire."""

    def over(column: str, seeds: list[int], **each: list[float]) -> dict[str, Any]:
        row = row_with(column, dataclasses.replace(SHORT, rtt_ns=200_000_000))
        values = {name: {"median": statistics.median(of), "each": of} for name, of in each.items()}
        return {**row, "seeds": seeds, "values": values}

    rows = [
        over("dynamic", [1, 2, 3, 4], goodput=[9.5, 8.0, 7.0, 1.0], deviation=[0.3, 0.3, 0.3, 9.0]),
        over("IPG 8", [1, 2, 3], goodput=[5.0, 5.0, 5.0], deviation=[1.0, 1.1, 1.2]),
        over("IPG 512", [1, 2, 3], goodput=[10.0, 8.0, 7.0], deviation=[0.6, 0.5, 0.4]),
        over("PSPD", [1, 2, 3], goodput=[5.0, 5.0, 5.0], deviation=[0.45, 0.45, 0.45]),
    ]
    checked = [one for one in claims.check("ipg", rows) if "gap's" in one["claim"]]
    assert [(one["worst"], one["holds"]) for one in checked] == [
        (100.0, True),
        (-0.2, True),
        (-0.05, True),
    ]
    # The gap of 512 bytes gets more than a tenth more in most seeds, and is as steady.
    rows[2]["values"]["goodput"]["each"] = [11.0, 9.0, 7.0]
    rows[2]["values"]["deviation"]["each"] = [0.3, 0.3, 0.3]
    checked = [one for one in claims.check("ipg", rows) if "gap's" in one["claim"]]
    assert [(one["worst"], one["holds"]) for one in checked] == [
        (88.9, False),
        (0.0, False),
        (0.15, False),
    ]


def test_a_plot_of_flows_has_every_column_and_ends_with_the_transfers() -> None:
    """Experiment `cooperative`: six columns, and transfers that end long before the run does."""
    cells = catalogue.all_experiments()["cooperative"].cells
    first = [cell for cell in cells if cell.row == cells[0].row]
    seconds = cells[0].scenario.seconds
    every_second = NS_PER_S // SAMPLE_NS
    counts = [1000 * min(at, 10 * every_second) for at in range(seconds * every_second + 1)]
    panels = plots._flows([(cell, {"series": {"flows": [counts]}}) for cell in first]).axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [f"{cell.row}, {cell.column}" for cell in first]
    assert 10 <= panels[-1].get_xlim()[1] <= 12 < seconds


def test_a_plot_by_gap_is_over_the_seeds_that_all_have(tmp_path: Path) -> None:
    """And a sentence says that the table's medians, which are over all seeds, do not compare."""
    lossy = dataclasses.replace(SHORT, loss_ppm=1000)
    of_gap = one_flow(tokyo.ipg(8))
    cells = (
        Cell("a path", "dynamic", lossy, seeds=(1, 2, 3, 4, 5)),
        Cell("a path", "IPG 8", dataclasses.replace(lossy, flows=of_gap), seeds=(1, 2, 3)),
    )
    store = Store(tmp_path / "runs", VERSIONS)
    for run in (run for cell in cells for run in cell.runs()):
        store.save(run, result_of(run.seed * 10**6 if run.seed < 4 else 10**9, 0))
    swept = experiment_of(*cells, plots=("gaps-goodput",))
    found = [result for _, result in tables.results_of(swept, store)]
    assert [result["goodput_median_bps"] for result in found] == [3e6, 2e6]
    by_seed = [dict(zip(one["seeds"], one["goodputs_bps"], strict=True)) for one in found]
    assert metrics.medians_at_shared_seeds(by_seed) == [2e6, 2e6]
    # While runs are missing, no seed may be shared.
    assert metrics.medians_at_shared_seeds([{1: 3.0}, {2: 4.0}]) == [3.0, 4.0]
    warning = "Cells with different numbers of seeds do not compare"
    assert warning in " ".join(tables.collect(swept, store)["sentences"])
    same = dataclasses.replace(swept, cells=(cells[1], dataclasses.replace(cells[0], seeds=(1,))))
    assert warning not in " ".join(tables.collect(same, store)["sentences"])


def test_what_did_not_come_to_its_end_is_the_worst() -> None:
    """Later than any time, and the fewer are done the worse."""
    cells = tuple(
        Cell("a path", title, dataclasses.replace(SHORT, flows=SHORT.flows * 10))
        for title in ("paced", "fq", "unpaced")
    )
    experiment = dataclasses.replace(BOTH, cells=cells, metrics=("completion", "done"))
    rows = [
        row_with("paced", completion=3.1, done=10),
        row_with("fq", done=7),
        row_with("unpaced", done=4),
    ]
    for row in rows[1:]:
        row["values"]["completion"] = None
    (said,) = findings.best_and_worst(experiment, rows)
    assert said == "a path, last one done, s: best paced (3.10), worst unpaced (4 of 10 done)."
    # Of several seeds, the one with the fewest counts.
    rows[1]["values"]["done"] = {"median": 10.0, "min": 3.0, "max": 10.0}
    (said,) = findings.best_and_worst(experiment, rows)
    assert said.endswith("worst fq (3 of 10 done).")


def test_a_doubtful_figure_is_marked_wherever_it_is_shown(filled: Store, tmp_path: Path) -> None:
    cells = (BOTH.cells[0], dataclasses.replace(BOTH.cells[1], doubts={"lost": "inferred"}))
    found = tables.collect(dataclasses.replace(BOTH, cells=cells), filled)
    assert "0 [0, inferred]" in tables.plain(found)
    assert "(1 of them inferred, not legible)" in " ".join(found["sentences"])
    page.write([found], {}, tmp_path / "report.html")
    assert "0 (inferred)" in (tmp_path / "report.html").read_text()


def test_a_gap_s_extremes_are_those_of_all_seeds(filled: Store) -> None:
    tuning = dataclasses.replace(BOTH, plots=("gaps-spread",))
    said = " ".join(tables.collect(tuning, filled)["sentences"])
    assert "unpaced: maximum 220.0, average 190.0, minimum 150.0 Mbit/s." in said
    cell = dataclasses.replace(BOTH.cells[1], seeds=(1, 2))
    assert [run.seed for run in cell.runs()] == [1, 2]


def test_the_furthest_figure_is_named_once() -> None:
    """With one figure, or all on one side, the nearest is not also called the furthest."""
    below = {**row_with("paced", goodput=5.0), "published": {"goodput": 10.0}}
    nearer = {**row_with("TBF", goodput=8.0), "published": {"goodput": 10.0}}
    for rows in ([below], [below, nearer]):
        (compared,) = findings.compared(BOTH, rows)
        assert compared["furthest below"] == "a path, paced: 5.0 [10.0]"
        assert compared["furthest above"] == "-"


def test_stalls_of_edges_are_counted() -> None:
    counted = {"edge1": {"count": 3, "total_ns": 9}, "wan": {"count": 5, "total_ns": 7}}
    stalls = metrics.METRICS["edge_stalls"]
    assert stalls.of({"stalls": counted}) == 3
    assert stalls.of({"stalls": {**counted, "edge2": None}}) is None


def test_buffers_hold_what_the_path_does() -> None:
    assert buffer_for(20_000_000) == 12_500_000
    assert buffer_for(300_000_000) == 18_750_000
    assert buffer_for(200_000_000, 596_000_000) == 14_900_000


def test_the_list_is_aligned_for_the_longest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    known = catalogue.all_experiments()
    width = max(map(len, known))
    assert [line[: width + 1].rstrip() for line in lines] == list(known)
    runs = re.compile(r"switch alone|[ \d]{4} runs   ")
    assert all(runs.match(line, width + 1) for line in lines)


def test_the_list_may_be_cut_short() -> None:
    """`--list | head`, with a reader that has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, str(jobs.SCRIPT), "--list"]
    listed = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.mark.parametrize("cores", ["0", "-1", "two"])
def test_fewer_than_one_run_at_once_is_refused(
    cores: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.options_of(["--cores", "1"]).cores == 1
    with pytest.raises(SystemExit):
        main.options_of([f"--cores={cores}"])
    assert f"--cores: '{cores}' is not a whole number of at least 1" in capsys.readouterr().err


def test_scaled_down_runs_lie_apart_from_the_others() -> None:
    assert main.options_of([]).results == main.RESULTS
    assert main.options_of(["--quick"]).results == main.RESULTS / "quick"
    assert main.options_of(["--quick", "--results", "x"]).results == Path("x")


def test_a_kernel_without_bic_changes_what_uses_it_alone() -> None:
    with_bic, without = experiment_of(Cell("a", "b", SHORT)), experiment_of()
    assert catalogue.with_control_for_bic(without, "cubic") is without
    (cell,) = catalogue.with_control_for_bic(with_bic, "cubic").cells
    assert cell.scenario.flows[0].congestion_control == "cubic"


def test_seeds_are_for_what_chance_decides() -> None:
    two = (*one_flow(UNPACED), Flow(shaper=UNPACED, sender=2))
    for scenario, count in (
        (Scenario(one_flow(UNPACED)), 1),
        (Scenario(one_flow(PACED), loss_ppm=1000), 3),
        (Scenario(one_flow(UNPACED), loss_ppm=1000), 9),
        (Scenario(two), 3),
        (Scenario((dataclasses.replace(two[0], streams=4),)), 3),
        (Scenario(tuple(dataclasses.replace(flow, shaper=PACED) for flow in two)), 1),
    ):
        assert len(Cell("row", "column", scenario).runs()) == count


def test_an_edge_can_receive_all_that_its_senders_may_send_at_once() -> None:
    one = Scenario(one_flow(PACED), socket_buffer_bytes=12_500_000)
    assert network.ring_frames(one, 1) == 8633
    streams = dataclasses.replace(one, flows=(dataclasses.replace(one.flows[0], streams=4),))
    assert network.ring_frames(streams, 1) == 34_531
    small = dataclasses.replace(one, socket_buffer_bytes=1_250_000)
    assert network.ring_frames(small, 1) == 4096
    # Bounded: each of a hundred senders' rings is memory that the lab must have.
    hundred = Scenario(tuple(Flow(sender=n) for n in range(1, 101)), socket_buffer_bytes=1 << 26)
    assert network.ring_frames(hundred, 100) == 4096
    huge = dataclasses.replace(one, socket_buffer_bytes=1 << 30)
    assert network.ring_frames(huge, 1) == 131_072


def test_fq_has_the_payload_of_its_share() -> None:
    """TCP's pacing counts no headers; with the frame's rate it would send more than its share."""
    (flow,) = one_flow(FQ)
    assert shaping.pacing_rate_bps(flow, 500_000_000) == 476_943_346
    four = dataclasses.replace(flow, streams=4)
    assert shaping.pacing_rate_bps(four, 500_000_000) == 476_943_346 // 4
    udp = dataclasses.replace(flow, udp_bps=40_000_000)
    assert shaping.pacing_rate_bps(udp, 40_000_000) == 40_000_000 * 1514 // 1518


def test_the_report_says_which_claims_do_not_hold(filled: Store, tmp_path: Path) -> None:
    found = tables.collect(BOTH, filled)
    rows = [row_with("paced", share=96.0)]
    found["claims"] = [*claims.check("fig9", rows), *claims.check("fig9", [])]
    page.write([found], {}, tmp_path / "report.html")
    shown = _Page()
    shown.feed((tmp_path / "report.html").read_text())
    for text in ("What is claimed", "% of a fair share", "96.0", "NO", "not known"):
        assert text in shown.text, text


# ---- a second pass ---------------------------------------------------------------------------


def test_results_say_what_they_were_made_of(tmp_path: Path) -> None:
    found = provenance.of_this_checkout({"switch": "abc"}, ["--quick", "table5"])
    assert found["command"] == ["mininet/experiments.py", "--quick", "table5"]
    assert found["made_of"] == {"switch": "abc"}
    assert (found["revision"] is None) == (found["changed"] is None)
    known = {**found, "revision": "0123abc", "changed": True}
    said = provenance.sentence(known)
    assert "mininet/experiments.py --quick table5" in said
    assert "0123abc, with changes" in said
    page.write([], {}, tmp_path / "report.html", made_by=said)
    text = (tmp_path / "report.html").read_text()
    assert "<code>mininet/experiments.py --quick table5</code> at revision 0123abc" in text


def test_results_without_a_checkout_say_nothing_of_one(tmp_path: Path) -> None:
    file = tmp_path / provenance.FILE
    file.write_text("{")
    assert provenance.sentence(results.read_object(file)) == ""


def test_every_command_that_spaces_packets_is_told() -> None:
    both = Scenario((Flow(shaper=FQ), Flow(shaper=TBF, sender=2), Flow(sender=3)), loss_ppm=100)
    of_fq = shaping.queueing_commands(both, "a1-eth0", both.flows[:1])
    assert [" ".join(words) for words in of_fq] == [
        "ip link set dev a1-eth0 gso_max_segs 1",
        "tc qdisc add dev a1-eth0 root handle 1: netem loss 0.010000% limit 100000",
        "tc qdisc add dev a1-eth0 parent 1:1 fq limit 100000 flow_limit 100000",
    ]
    clean = dataclasses.replace(both, loss_ppm=0)
    (of_tbf,) = shaping.queueing_commands(clean, "a2-eth0", both.flows[1:2])
    assert of_tbf[:7] == ["tc", "qdisc", "add", "dev", "a2-eth0", "root", "tbf"]
    assert shaping.queueing_commands(clean, "a3-eth0", both.flows[2:]) == []


def test_two_passes_are_compared_to_the_byte(filled: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", VERSIONS)
    for run in (run for cell in BOTH.cells for run in cell.runs()):
        found = filled.load(run)
        assert found is not None
        other.save(run, found)

    def compared() -> dict[str, Any]:
        passes = [([tables.collect(BOTH, store)], store) for store in (filled, other)]
        return again.compare([BOTH], passes[0], passes[1])

    same = compared()
    assert again.equal(same)
    assert same["digests"][0] == same["digests"][1]
    assert "1 of 1 tables and 4 of 4 runs" in again.sentence(same)
    # The report of these tables says so, and that of others does not.
    collected = [tables.collect(BOTH, filled)]
    digest = f"sha256 of the tables here: {same['digests'][0]}."
    assert again.sentences_on(collected, None) == digest
    assert again.sentences_on(collected, same).startswith(f"{digest} A second pass gave the same")
    assert "second" not in again.sentences_on([{**collected[0], "title": "Another"}], same)
    # A difference that no table shows is one all the same.
    changed = result_of(476_900_000, 0)
    changed["series"]["bin_bytes"][7] += 1
    other.save(SHORT, changed)
    differ = compared()
    assert (differ["different_tables"], differ["different_runs"]) == ([], ["try 64KB, paced #1"])
    assert not again.equal(differ)
