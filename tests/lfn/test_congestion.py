"""Which congestion control a run gets: never another one than the one that was chosen."""

import fcntl
from pathlib import Path

import pytest

from pacer_mininet import congestion, demo, table
from pacer_mininet.command import parser
from pacer_mininet.experiment import settings_from
from pacer_mininet.runs import Plan

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
    unchosen = settings_from("paced").congestion_control
    assert congestion.choose(unchosen, LAB, lab=True) == "bic"
    assert congestion.choose(unchosen, LAB, lab=False) == "bic"
    assert congestion.choose(unchosen, MACHINE, lab=False) == "cubic"
    with pytest.raises(congestion.CongestionControlError, match="reno"):
        congestion.choose(unchosen, ["reno"], lab=False)


def test_the_lab_never_uses_another_one() -> None:
    with pytest.raises(congestion.CongestionControlError, match="the lab's kernel"):
        congestion.choose(congestion.UNCHOSEN, MACHINE, lab=True)


def test_the_command_line_chooses_nothing_by_itself() -> None:
    assert parser().parse_args(["paced"]).cc == congestion.UNCHOSEN
    assert parser().parse_args(["paced", "--cc", "bic"]).cc == "bic"


def test_the_note_about_another_one_stands_only_where_there_is_one() -> None:
    run = {"name": "paced", "rate_bps": 500_000_000, "congestion_control": "cubic"}
    same = table.notes([{**run, "congestion_control_asked": "cubic"}])
    assert "no cubic" not in " ".join(same)
    other = table.notes([{**run, "congestion_control_asked": "bic"}])
    assert "no bic, which is the default: the runs used cubic" in " ".join(other)


def test_a_demo_checks_the_kernel_that_it_will_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "of_this_kernel", lambda _choice: MACHINE)
    monkeypatch.setattr(congestion, "of_the_lab", lambda: LAB)
    scalable = Plan(("paced",), congestion_control="scalable")
    demo.check_congestion_control(scalable, realtime=False)
    with pytest.raises(congestion.CongestionControlError, match="this machine's kernel"):
        demo.check_congestion_control(scalable, realtime=True)


def test_this_kernel_says_what_it_has() -> None:
    assert "reno" in congestion.of_this_kernel()


def test_a_second_demo_is_told_of_the_first(tmp_path: Path) -> None:
    results = tmp_path / "results" / "demo"
    with demo.results_directory(results):
        with (
            pytest.raises(demo.BusyError, match="another demo is running"),
            demo.results_directory(results),
        ):
            pass
        with (results / ".lock").open() as held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with demo.results_directory(results):
        assert results.is_dir()
