"""The files that a stored run depends on."""

from pathlib import Path

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.scenario import OVS_PACED, PACED, Scenario
from pacer_mininet.experiments.store import Store
from pacer_mininet.experiments.versions import closure, of_this_checkout


def written(root: Path, files: dict[str, str]) -> Path:
    """Write files below a directory and return it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_closure_follows_every_form_of_import_and_circles(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/start.py": "import json\nfrom p import one\nimport p.q.two\nfrom .four import x\n",
            "p/one.py": "def f():\n    from p.three import name\n",
            "p/three.py": "import p.start\n",
            "p/four.py": "x = 1\n",
            "p/q/__init__.py": "from . import five\n",
            "p/q/two.py": "from ..six import y\n",
            "p/q/five.py": "",
            "p/six.py": "y = 1\n",
            "p/other.py": "import p.start\n",
        },
    )
    found = {str(file.relative_to(root)) for file in closure("p.start", root)}
    assert found == {
        *("p/__init__.py", "p/start.py", "p/one.py", "p/three.py", "p/four.py", "p/six.py"),
        *("p/q/__init__.py", "p/q/two.py", "p/q/five.py"),
    }


def test_a_module_without_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="absent"):
        closure("absent", tmp_path)


def test_a_run_depends_on_what_makes_it_and_not_on_what_shows_it() -> None:
    files = closure("pacer_mininet.experiments.inside", paths.MININET_DIR)
    names = {str(file.relative_to(paths.MININET_DIR / "pacer_mininet")) for file in files}
    assert {"switches.py", "counters.py", "ovs_switch.py", "experiments/runner.py"} <= names
    assert not names & {
        "experiments/plots.py",
        "experiments/demo.py",
        "experiments/tables.py",
        "experiments/page.py",
    }


def test_a_run_depends_on_packages_and_with_open_vswitch_on_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = written(
        tmp_path,
        {"requirements.lock": "one==1", "ovs/bin/ovs-vswitchd": "1", "switch": "", "lab/run": ""},
    )
    monkeypatch.setattr(paths, "REPO", checkout)
    monkeypatch.setattr(paths, "SWITCH_BINARY", checkout / "switch")
    monkeypatch.setenv("PACER_OVS", str(checkout / "ovs"))

    def keys() -> tuple[str, str]:
        store = Store(tmp_path / "runs", of_this_checkout(realtime=True))
        of_pacer, of_ovs = (Scenario(one_flow(shaper)) for shaper in (PACED, OVS_PACED))
        return store.key(of_pacer), store.key(of_ovs)

    first = keys()
    (checkout / "ovs/bin/ovs-vswitchd").write_text("2")
    other_ovs = keys()
    assert other_ovs[0] == first[0]
    assert other_ovs[1] != first[1]
    (checkout / "requirements.lock").write_text("one==2")
    assert not set(keys()) & {*first, *other_ovs}
