"""The congestion control of a run is always the chosen one."""

import fcntl
from pathlib import Path

import pytest

from pacer_mininet import congestion
from pacer_mininet.experiments import demo_options, demo_runs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.results import BusyError, results_directory

LAB = ["reno", "bic", "cubic", "scalable"]
MACHINE = ["reno", "cubic"]


@pytest.mark.parametrize("lab", [True, False])
def test_one_that_was_chosen_is_used_or_refused_with_the_list(lab: bool) -> None:
    assert congestion.choose("scalable", LAB, lab=lab) == "scalable"
    with pytest.raises(congestion.CongestionControlError) as refused:
        congestion.choose("foo", LAB, lab=lab)
    assert "'foo'" in str(refused.value)
    assert "bic, cubic, reno, scalable" in str(refused.value)
    with pytest.raises(congestion.CongestionControlError, match=r"'bic'; it has cubic, reno"):
        congestion.choose("bic", MACHINE, lab=lab)


def test_without_a_choice_a_machine_without_bic_uses_cubic() -> None:
    unchosen = demo_options.options_of([]).cc
    assert congestion.choose(unchosen, LAB, lab=True) == "bic"
    assert congestion.choose(unchosen, LAB, lab=False) == "bic"
    assert congestion.choose(unchosen, MACHINE, lab=False) == "cubic"
    with pytest.raises(congestion.CongestionControlError, match="reno"):
        congestion.choose(unchosen, ["reno"], lab=False)


def test_the_lab_never_uses_another_one() -> None:
    with pytest.raises(congestion.CongestionControlError, match="the lab's kernel"):
        congestion.choose(congestion.UNCHOSEN, MACHINE, lab=True)


def _demo(*words: str) -> tuple[Experiment, str]:
    options = demo_options.options_of(words)
    return demo_runs.experiments_of(options)[0], options.cc


def test_the_demo_says_where_it_uses_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "of_this_kernel", lambda _choice: MACHINE)
    monkeypatch.setattr(congestion, "of_the_lab", lambda: LAB)
    for words, used, noted in (((), "cubic", True), (("--cc", "cubic"), "cubic", False)):
        found = demo_runs.for_kernel(*_demo(*words), realtime=True)
        flows = [cell.scenario.flows[0] for cell in found.cells]
        assert {flow.congestion_control for flow in flows} == {used}
        assert ("kernel has no BIC" in " ".join(found.differs)) == noted
    in_lab = demo_runs.for_kernel(*_demo(), realtime=False)
    assert in_lab.cells[0].scenario.flows[0].congestion_control == "bic"


def test_a_demo_checks_the_kernel_that_it_will_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "of_this_kernel", lambda _choice: MACHINE)
    monkeypatch.setattr(congestion, "of_the_lab", lambda: LAB)
    scalable = _demo("--cc", "scalable")
    demo_runs.for_kernel(*scalable, realtime=False)
    with pytest.raises(congestion.CongestionControlError, match="this machine's kernel"):
        demo_runs.for_kernel(*scalable, realtime=True)


def test_this_kernel_says_what_it_has() -> None:
    assert "reno" in congestion.of_this_kernel()


def test_a_second_demo_is_told_of_the_first(tmp_path: Path) -> None:
    results = tmp_path / "results" / "demo"
    with results_directory(results):
        with (
            pytest.raises(BusyError, match="another demo or experiment is running"),
            results_directory(results),
        ):
            pass
        with (results / ".lock").open() as held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with results_directory(results):
        assert results.is_dir()
