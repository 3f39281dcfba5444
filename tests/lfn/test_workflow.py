"""What Snakemake makes of a plan, with steps that take no time; real runs are in the lab's tests.

Skipped with a message where Snakemake is not installed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import again, jobs, main, program, workflow
from pacer_mininet.experiments.plan import GROUP_S, Plan
from pacer_mininet.experiments.results import BusyError, read_object, results_directory

pytestmark = pytest.mark.skipif(
    not paths.SNAKEMAKE.exists(), reason="not run: Snakemake is not installed: make experiments"
)

STEP = """\
import json, pathlib, sys, time

_, plan, step, *name = sys.argv[1:]
below = pathlib.Path(plan).parent
with (below / "steps").open("a") as steps:
    print(step, *name, file=steps)
if step == "runs":
    while (below / "waits").exists():
        time.sleep(0.01)
    for key in name:
        if (below / ("fails" + key)).exists():
            sys.exit("no luck")
        (below / "runs" / (key + ".json")).write_text(key)
        (below / "logs" / (key + ".log")).write_text("4 Mbit/s; took 5 s")
elif step == "table":
    made = json.loads(pathlib.Path(plan).read_text())["experiments"][name[0]]
    text = " ".join((below / "runs" / (key + ".json")).read_text()[0] for key in made)
    (below / (name[0] + ".json")).write_text(text)
else:
    (below.parent / "report.html").write_text("")
"""

LONG, SHORT, SHARED = (f"{letter}0918273645f1e2d3c4b5a697887960f" for letter in "abc")
LONGEST_S = 120
AT_ONCE = ("--cores", "1")
SECOND = Path("again", "experiments")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return a plan of two experiments of two runs each, of which they share one.

    The two short runs have the same network.
    """
    script = tmp_path / "step.py"
    script.write_text(STEP)
    monkeypatch.setattr(jobs, "SCRIPT", script)
    directory = tmp_path / "results" / "experiments"
    directory.mkdir(parents=True)
    runs = {
        key: {"name": name, "scenario": "", "network": network, "priority": priority}
        for key, name, network, priority in (
            (LONG, "l", "1", 9),
            (SHARED, "c", "2", 2),
            (SHORT, "s", "2", 1),
        )
    }
    experiments = {"one": [LONG, SHARED], "other": [SHARED, SHORT]}
    return Plan(
        directory, {}, "1", "1", realtime=False, quick=False, runs=runs, experiments=experiments
    )


@pytest.fixture
def lock(plan: Plan) -> Iterator[IO[str]]:
    with results_directory(plan.directory.parent) as file:
        yield file


def steps(plan: Plan) -> list[str]:
    """Return the steps that were made since the last call, in order."""
    file = plan.directory / "steps"
    made = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return made


def test_runs_are_made_once_the_longest_first_and_not_again(
    plan: Plan, lock: IO[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert workflow.make(plan, AT_ONCE, lock) == {}
    made = steps(plan)
    assert made[:2] == [f"runs {LONG}", f"runs {SHARED} {SHORT}"]
    assert sorted(made[2:]) == ["report", "table one", "table other"]
    said = capfd.readouterr().out.splitlines()
    assert said == [
        "[1/3] l: 4 Mbit/s; took 5 s",
        "[2/3] c: 4 Mbit/s; took 5 s",
        "[3/3] s: 4 Mbit/s; took 5 s",
    ]
    assert workflow.make(plan, AT_ONCE, lock) == {}
    assert steps(plan) == []
    # A result that is removed is made again, and what is made of it.
    plan.result(SHORT).unlink()
    assert workflow.make(plan, AT_ONCE, lock) == {}
    assert steps(plan) == [f"runs {SHORT}", "table other", "report"]
    plan.table("other").unlink()
    assert workflow.make(plan, AT_ONCE, lock) == {}
    assert steps(plan) == ["table other", "report"]
    # After a change of the tables' sources, the tables are made again, and no run.
    changed = Plan(**{**vars(plan), "tables_made_of": "2"})
    assert workflow.make(changed, AT_ONCE, lock) == {}
    assert sorted(steps(plan)) == ["report", "table one", "table other"]


def test_a_run_that_fails_is_named_and_the_others_are_made(
    plan: Plan, lock: IO[str], capfd: pytest.CaptureFixture[str]
) -> None:
    failing = plan.directory / f"fails{SHORT}"
    failing.touch()
    assert workflow.make(plan, AT_ONCE, lock) == {"s": "no luck"}
    said = capfd.readouterr()
    assert said.out.count("s: failed: it ended without a message") == 2
    assert said.out.count("c: 4 Mbit/s; took 5 s") == 2
    assert said.err == ""
    made = steps(plan)
    # Its group is tried twice. The group's other run is kept, and the tables are made without it.
    assert made.count(f"runs {SHARED} {SHORT}") == 2
    assert plan.table("one").read_text() == "a c"
    assert plan.table("other").read_text() == "c"
    assert (plan.directory.parent / "report.html").exists()
    failing.unlink()
    assert workflow.make(plan, AT_ONCE, lock) == {}
    assert steps(plan) == [f"runs {SHORT}", "table other", "report"]
    assert plan.table("other").read_text() == "c b"


KILLED = """\
import pathlib, sys

from pacer_mininet.experiments import jobs, workflow
from pacer_mininet.experiments.plan import Plan
from pacer_mininet.experiments.results import results_directory

plan = Plan.read(pathlib.Path(sys.argv[1]))
jobs.SCRIPT = pathlib.Path(sys.argv[2])
with results_directory(plan.directory.parent) as lock:
    workflow.make(plan, ("--cores", "2"), lock)
"""


@contextlib.contextmanager
def once_free(directory: Path) -> Iterator[IO[str]]:
    """Lock results as soon as Snakemake, which keeps the lock until it has ended, has done so."""
    until = time.monotonic() + LONGEST_S
    with contextlib.ExitStack() as locked:
        while True:
            try:
                lock = locked.enter_context(results_directory(directory))
                break
            except BusyError:
                assert time.monotonic() < until
                time.sleep(0.05)
        yield lock


def test_after_a_kill_it_ends_and_continues(plan: Plan) -> None:
    """Killed by SIGKILL with two runs in progress: these end, too, and are made again."""
    plan.write()
    waiting = plan.directory / "waits"
    waiting.touch()
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(plan.file), str(jobs.SCRIPT)],
        env={**os.environ, "PYTHONPATH": str(paths.MININET_DIR)},
        start_new_session=True,
    )
    until = time.monotonic() + LONGEST_S
    file = plan.directory / "steps"
    while not file.exists() or len(file.read_text().splitlines()) < 2:
        assert killed.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    with once_free(plan.directory.parent) as lock:
        waiting.unlink()
        assert sorted(steps(plan)) == [f"runs {LONG}", f"runs {SHARED} {SHORT}"]
        # A stored result is not made again.
        plan.result(SHARED).write_text(SHARED)
        assert workflow.make(plan, AT_ONCE, lock) == {}
    assert steps(plan)[:2] == [f"runs {LONG}", f"runs {SHORT}"]


def test_a_group_has_one_network_and_about_a_minute(plan: Plan) -> None:
    assert plan.groups() == {LONG: [LONG], SHARED: [SHARED, SHORT]}
    plan.runs[SHORT]["priority"] = GROUP_S - 1
    assert plan.groups() == {LONG: [LONG], SHARED: [SHARED], SHORT: [SHORT]}
    plan.result(SHARED).parent.mkdir()
    plan.result(SHARED).touch()
    assert plan.groups() == {LONG: [LONG], SHORT: [SHORT]}


def test_without_any_run_the_place_of_the_log_is_told(plan: Plan, lock: IO[str]) -> None:
    with pytest.raises(workflow.WorkflowError, match=r"\.snakemake"):
        workflow.make(plan, ("--cores", "1", "--no-such-option"), lock)


def test_without_snakemake_the_command_that_installs_it_is_told(
    plan: Plan, lock: IO[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "SNAKEMAKE", tmp_path / "snakemake")
    with pytest.raises(paths.MissingError, match=r"Snakemake is not installed.*`make experiments`"):
        workflow.make(plan, AT_ONCE, lock)


def test_again_makes_a_second_pass_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an experiment of the switch alone, which needs no lab."""
    if not paths.SWITCH_BINARY.exists():
        pytest.skip("not run: pacing_switch is not built")
    assert main.main(["--again", "fig3", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "A second pass gave the same bytes for 1 of 1 tables and 0 of 0 runs." in said
    first, second = (tmp_path / below / "fig3.json" for below in ("experiments", SECOND))
    assert first.read_bytes() == second.read_bytes()
    compared = read_object(tmp_path / "experiments" / again.FILE)
    assert compared is not None
    assert len(set(compared["digests"])) == 1
    assert compared["digests"][0] in said


@pytest.mark.parametrize("option", [["--cores", "2"], ["--profile", "mininet/workflow/slurm"]])
def test_in_real_time_one_run_has_the_machine_alone(
    option: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "need_parts", lambda: None)
    assert main.main(["--realtime", *option, "fig9", "--results", str(tmp_path)]) == 1
    assert "one run at a time has this machine alone" in capsys.readouterr().err
