"""Runs the commands of the README, and checks their documented effects."""

import os
import re
import subprocess
from pathlib import Path

from test_live import entries_of

from controller_harness import COMPILED, Controller, Switch

README = COMPILED.parents[1] / "controller" / "README.md"


def commands(section: str) -> str:
    """Return the indented lines of a section."""
    text = README.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def test_set_a_rate(controller: Controller, switch: Switch, tmp_path: Path) -> None:
    # curl does not report an error status without an option.
    (tmp_path / ".curlrc").write_text("fail\nsilent\nshow-error\nnoproxy = *\n")
    script = commands("Set a rate").replace("http://127.0.0.1:8080", controller.url)
    assert script.count("curl") == 3
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=True,
        env={**os.environ, "CURL_HOME": str(tmp_path)},
        timeout=60,
    )
    (video,) = entries_of(switch, "classes")
    assert video["time_per_byte_q24"] == ((8_000_000_000 << 24) + 150_000_000) // 300_000_000
    (flow,) = entries_of(switch, "flows")
    assert (flow["class_id"], flow["dst_port"][0]) == (1, 5001)


def test_every_path_of_the_contract_is_there(controller: Controller) -> None:
    contract = README.with_name("API.md").read_text()
    table = contract.partition("\n## Paths\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    named = {path.partition("...")[0] for path in re.findall(r"`(/[^`]*)`", table)}
    there = controller.get("/openapi.json")["paths"]
    shown = [re.sub(r"\{dpid\}", "{switchid}", path) for path in named]
    for path in shown:
        if path not in ("/dashboard/",):
            assert any(known.startswith(path) for known in there), path
