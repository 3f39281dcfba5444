"""Which files a cached run depends on."""

from pathlib import Path

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments.versions import closure


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
