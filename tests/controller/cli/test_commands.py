"""The command `pacer` against a real controller; where packets matter, a real switch as well."""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller_harness import ROOT, Controller, Network, Switch, eventually, free_port
from pacer_controller.cli import render
from pacer_controller.cli.main import main
from pacer_controller.cli.session import Session


class Pacer:
    """Runs the command in this process; keeps its output."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capture = capture
        self.error = ""

    def status(self, line: str | Sequence[str]) -> tuple[int, str]:
        """Run it, a line or its words; return exit status and standard output."""
        self._capture.readouterr()
        status = main(line.split() if isinstance(line, str) else line)
        found = self._capture.readouterr()
        self.error = found.err
        return status, found.out

    def __call__(self, line: str) -> str:
        """Run it, which must succeed; return standard output."""
        status, output = self.status(line)
        assert status == 0, self.error
        return output

    def json(self, line: str) -> Any:
        """Run it with --json and return its output."""
        return json.loads(self(line + " --json"))

    def refused(self, line: str | Sequence[str], status: int = 1) -> str:
        """Run it, which must fail with this status; return its error."""
        found, output = self.status(line)
        assert found == status, (found, output, self.error)
        assert output == ""
        return self.error


@pytest.fixture(scope="module")
def shared(network: Network) -> Iterator[Controller]:
    """Run a controller whose switches do not answer: all changes are accepted and pending."""
    controller = Controller(
        *("--switch", f"s1=127.0.0.1:{free_port()}"),
        *("--switch", f"wan=127.0.0.1:{free_port()},program=gtrcnet,bottleneck=500mbit,wire=1:2"),
    )
    yield controller
    controller.close()


@pytest.fixture
def offline(shared: Controller) -> Controller:
    """Give that controller, with nothing on its switches."""
    assert shared.put("/v1/state", {"switches": {}}).status_code == 200
    return shared


@pytest.fixture
def pacer(
    offline: Controller, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Pacer:
    return at(offline, capsys, monkeypatch)


def at(
    controller: Controller, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Pacer:
    monkeypatch.setenv("PACER_URL", controller.url)
    return Pacer(controller.url, capture)


def test_the_everyday_life_of_a_class(pacer: Pacer, offline: Controller) -> None:
    said = pacer("class add s1 video rate 500mbit limit 1MB")
    assert said.startswith("class video: static 500Mbit limit 1MB, pending")
    assert "saved; applied when s1 reconnects" in pacer.error
    assert offline.get("/v1/switches/s1/classes/video")["rate"] == "500Mbit"

    again = pacer.refused("class add s1 video rate 1mbit")
    assert "exists already; change it with: pacer class set s1 video" in again

    pacer("class set s1 video rate 300mbit")
    video = pacer.json("class show s1 video")
    assert (video["rate"], video["limit_bytes"]) == ("300Mbit", 2**20)
    assert video["allowance_ns"] == 16384 * 8 * 1000 // 300, "it follows the rate"
    assert pacer("class set s1 video allowance exact").count(" allowance exact") == 1
    pacer("class set s1 video rate 100mbit")
    assert pacer.json("class show s1 video")["allowance_ns"] == 1518 * 80, "it follows the rate"
    assert "allowance" not in pacer("class set s1 video allowance auto")

    pacer("class replace s1 video rate 200mbit")
    assert pacer.json("class show s1 video")["limit_bytes"] == 32 * 2**20
    assert "video  static  200Mbit" in pacer("class show s1")
    assert pacer("class del s1 video") == "class video: deleted\n"
    assert pacer.json("class show s1") == {"s1": {"classes": []}}


def test_what_another_mode_takes_away_is_told(pacer: Pacer) -> None:
    pacer("class add s1 video rate 20mbit ecn 100KB limit 1MB")
    pacer("class set s1 video mode unpaced")
    assert "mode unpaced ignores, so removed: 20Mbit ecn 100KB" in pacer.error
    # A setting that is given in the same command stays.
    pacer("class set s1 video mode static rate 5mbit window-margin 3000")
    assert "removed" not in pacer.error
    pacer("class set s1 video mode ipg gap 60")
    assert "so removed: window-margin 3000B" in pacer.error
    pacer("class set s1 video rate 6mbit")
    assert "removed" not in pacer.error


def test_what_a_mode_goes_by_is_listed(pacer: Pacer) -> None:
    pacer("class add s1 ipg mode ipg rate 1gbit gap 1023")
    pacer("class add s1 wide mode dynamic headroom 120")
    pacer("class add s1 plain rate 1mbit")
    columns = {line.split()[0]: line for line in pacer("class show s1").splitlines()}
    assert "WITH" in columns["CLASS"]
    assert "gap 1023" in columns["ipg"]
    assert "headroom 120" in columns["wide"]
    assert "gap" not in columns["plain"]


def test_a_class_begins_and_ends_to_follow(pacer: Pacer) -> None:
    follow = "follow wan follow-port 1 follow-fifo 1MB least 50Mbit most 500Mbit"
    pacer(f"class add s1 video rate 400mbit {follow}")
    assert follow in pacer("class show s1")
    # The other settings do not change.
    pacer("class set s1 video most 450mbit")
    assert "least 50Mbit most 450Mbit" in pacer("class show s1")
    pacer("class set s1 video follow none")
    assert "follow" not in pacer("class show s1")
    assert pacer.json("class show s1 video")["follow"] is None


def test_sizes_of_a_class_are_shown_as_they_may_be_typed(pacer: Pacer) -> None:
    said = pacer("class add s1 far mode ipg rate 1gbit gap 65535 limit 100000")
    assert said.startswith("class far: ipg 1Gbit gap 65535B limit 100000B, pending")
    pacer("class replace s1 far mode ipg rate 1gbit gap 65535B limit 100000B")


def test_the_everyday_life_of_a_flow(pacer: Pacer, offline: Controller) -> None:
    pacer("class add s1 video rate 500mbit")
    said = pacer("flow add s1 match tcp dport 80 class video")
    assert said.startswith("flow tcp-dport-80: tcp dport 80 -> class video")
    pacer("flow add s1 own match src 10.0.0.0/8 dport 5000-5999 rate 1mbit priority 7")
    own = offline.get("/v1/switches/s1/flows/own")
    assert own["match"] == {"src": "10.0.0.0/8", "dst_port": "5000-5999"}
    assert (own["rate"], own["priority"]) == ("1Mbit", 7)
    pacer("flow set s1 own class video")
    own = offline.get("/v1/switches/s1/flows/own")
    assert (own["class"], own["rate"], own["priority"]) == ("video", None, 7)
    pacer("flow set s1 own src none vlan 5")
    assert offline.get("/v1/switches/s1/flows/own")["match"] == {
        "dst_port": "5000-5999",
        "vlan": 5,
    }
    shown = pacer("flow show s1")
    assert "own" in shown
    assert "tcp dport 80" in shown
    pacer("flow del s1 own tcp-dport-80")
    assert pacer.json("flow show s1") == {"s1": {"flows": []}}


def test_meters_named_and_in_place(pacer: Pacer, offline: Controller) -> None:
    pacer("meter add s1 gold cir 50mbit pir 80mbit")
    pacer("class add s1 video rate 500mbit")
    pacer("flow add s1 web match tcp dport 80 class video meter gold")
    assert offline.get("/v1/switches/s1/flows/web")["meter_name"] == "gold"
    pacer("flow set s1 web priority 5")
    assert offline.get("/v1/switches/s1/flows/web")["meter_name"] == "gold"
    pacer("meter set s1 gold cir 60mbit")
    gold = pacer.json("meter show s1 gold")
    assert (gold["cir"], gold["pir"], gold["cburst"]) == ("60Mbit", "80Mbit", 75_000)
    pacer("flow add s1 other match vlan 7 cir 5mbit drop-red no yellow-dscp 10 red-dscp 12")
    assert offline.get("/v1/switches/s1/flows/other")["meter"]["red_dscp"] == 12
    assert "is used by 'web'" in pacer.refused("meter del s1 gold")
    assert "not both" in pacer.refused("flow add s1 match vlan 9 meter gold cir 5mbit", 2)


def test_errors_say_what_would_be_right(pacer: Pacer) -> None:
    pacer("class add s1 video rate 500mbit")
    assert "no class 'vidoe' on switch 's1'; did you mean 'video'?" in pacer.refused(
        "class show s1 vidoe"
    )
    assert "did you mean 'video'?" in pacer.refused("flow add s1 match tcp dport 80 class vidoe")
    assert "no switch 'wna'; did you mean 'wan'?" in pacer.refused("class show wna")
    assert "no switch 's9'; there are: " in pacer.refused("class show s9")
    assert "no class 'vidoe' on switch 's1'\n" in pacer.refused("class del s1 vidoe")
    assert "mean" not in pacer.refused("show --colour", 2)
    assert "mode dynamic takes no gap" in pacer.refused("class add s1 x mode dynamic gap 3", 2)
    assert "did you mean 'rate'?" in pacer.refused("class add s1 x rat 5mbit", 2)
    assert "did you mean 'class'?" in pacer.refused("clazz show", 2)
    assert "no match given" in pacer.refused("flow add s1 class video", 2)
    assert "did you mean 'dport'?" in pacer.refused("flow add s1 match tcp dprt 80 class video", 2)
    assert "nothing to set" in pacer.refused("class set s1 video", 2)
    assert "may be" in pacer.refused("s", 2)
    assert 'want "tcp"' in pacer.refused("flow add s1 match proto tpc class video")


def test_an_empty_name_is_refused_before_anything_is_done(pacer: Pacer) -> None:
    """As a shell's unset variable leaves it: `pacer class add s1 "$name" rate 3mbit`."""
    pacer("class add s1 video rate 500mbit")
    for typed in (
        ("class", "add", "s1", "", "rate", "3mbit"),
        ("class", "set", "s1", "", "rate", "3mbit"),
        ("class", "del", "s1", "video", ""),
        ("class", "show", ""),
        ("class", "show", "s1", ""),
        ("flow", "add", "s1", "", "match", "tcp", "dport", "80", "class", "video"),
        ("flow", "add", "s1", "", "tcp", "dport", "80", "class", "video"),
        ("flow", "add", "", "match", "tcp", "dport", "80", "class", "video"),
        ("switch", "del", ""),
        ("export", "--switch", ""),
        ("top", "", "-n", "1"),
        ("burst", ""),
    ):
        assert "the name is empty" in pacer.refused(typed, 2), typed
    assert "class: what follows it is empty" in pacer.refused(
        ("flow", "add", "s1", "match", "tcp", "class", ""), 2
    )
    assert [c["name"] for c in pacer.json("class show s1")["s1"]["classes"]] == ["video"]
    assert pacer.json("flow show s1") == {"s1": {"flows": []}}


def test_a_negative_value_is_a_wrong_value_and_no_option(pacer: Pacer) -> None:
    pacer("class add s1 video rate 500mbit")
    assert "'-3mbit' is not a rate" in pacer.refused("class set s1 video rate -3mbit", 2)
    assert "'-5' is not a size" in pacer.refused("class set s1 video limit -5", 2)
    assert "'-1ms' is not a time" in pacer.refused("port set s1 2 delay -1ms", 2)
    assert "'-.5mbit' is not a rate" in pacer.refused("flow add s1 match tcp rate -.5mbit", 2)
    problem = json.loads(pacer.refused("class add s1 new rate -3mbit --json", 2))
    assert "'-3mbit' is not a rate" in problem["detail"]
    assert "No such option" in pacer.refused("class set s1 video --rat 3mbit", 2)


def test_a_refusal_names_the_words_typed(pacer: Pacer) -> None:
    pacer("class add s1 bulk mode unpaced")
    pacer("class set s1 bulk rate 5mbit")
    assert "was unpaced; with a rate it is static" in pacer.error
    assert "None" not in pacer.error
    assert "no switch 'foo'" in pacer.refused("class add foo rate 1mbit", 2)
    said = pacer.refused("class set s1 bulk limit 1")
    assert "limit: want" in said
    assert "limit_bytes:" not in said


def test_several_are_deleted_all_or_none(pacer: Pacer) -> None:
    for name in ("a", "b", "c"):
        pacer(f"class add s1 {name} rate 1mbit")
    pacer("flow add s1 web match tcp dport 80 class b")

    def names() -> list[str]:
        return [c["name"] for c in pacer.json("class show s1")["s1"]["classes"]]

    assert "no class 'nosuch'" in pacer.refused("class del s1 a b nosuch c")
    assert "no class 'b'" in pacer.refused("class del s1 a b")
    assert names() == ["a", "b", "c"]
    pacer("class del s1 a c")
    assert names() == ["b"]


def test_a_port_is_named_by_its_number(pacer: Pacer) -> None:
    told = "'s1-eth2' is no port's number; `pacer port show s1` has the numbers"
    assert told in pacer.refused("port set s1 s1-eth2 rate 1gbit", 2)
    assert told in pacer.refused("port show s1 s1-eth2", 2)
    assert told in pacer.refused("port del s1 s1-eth2", 2)


def test_burst_of_a_switch_that_does_not_measure_says_which_does(pacer: Pacer) -> None:
    assert "want one with program gtrcnet and its wire" in pacer.refused("burst s1", 2)


def test_errors_are_json_where_json_is_asked_for(pacer: Pacer) -> None:
    problem = json.loads(pacer.refused("class show s1 video --json"))
    assert problem["type"] == "urn:pacer:problem:unknown-class"
    problem = json.loads(pacer.refused("--json class add s1 x rat 5mbit", 2))
    assert problem["type"] == "urn:pacer:problem:usage"


def test_no_controller_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PACER_URL", raising=False)
    assert main(["--url", f"http://127.0.0.1:{free_port()}", "show"]) == 3
    assert "start pacer-controller, or say where it is" in capsys.readouterr().err
    assert main(["--url", "nonsense", "show"]) == 2
    assert "want an address such as" in capsys.readouterr().err


def test_a_url_with_the_wrong_scheme_is_told(
    offline: Controller, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", offline.url.replace("http:", "https:"), "show"]) == 3
    assert "does not speak TLS: use http://" in capsys.readouterr().err


def test_a_name_with_a_slash_is_told(pacer: Pacer) -> None:
    assert "'vid/eo' is no name" in pacer.refused("class add s1 vid/eo rate 1mbit", 2)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("switch is unreachable", "pacer: saved; applied when s1 reconnects\n"),
        (
            "controller 8651fb0f has yet to bring it to the switch",
            "pacer: saved; applied as soon as a controller brings it to s1\n",
        ),
    ],
)
def test_what_a_pending_change_waits_for(
    capsys: pytest.CaptureFixture[str], reason: str, said: str
) -> None:
    Session().say_pending("s1", {"state": "pending", "state_reason": reason})
    assert capsys.readouterr().err == said


def test_a_token_is_not_sent_in_clear(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACER_TOKEN", "correct-horse-battery-staple")
    assert main(["--url", "http://192.0.2.1:8080", "show"]) == 2
    assert "would be sent in clear" in capsys.readouterr().err


def test_a_url_on_the_command_line_wins_wherever_it_stands(
    offline: Controller, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACER_URL", f"http://127.0.0.1:{free_port()}")
    assert main(["--url", offline.url, "switch", "show"]) == 0
    assert main(["switch", "show", "--url", offline.url]) == 0
    assert "wan" in capsys.readouterr().out


def test_commands_may_be_shortened(pacer: Pacer) -> None:
    pacer("cl a s1 video rate 5mbit")
    assert "video" in pacer("class ls")
    assert "video" in pacer("cl sh s1")
    pacer("classes rm s1 video")


def test_switches_come_and_go(pacer: Pacer) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert pacer(f"switch add edge address {address} program pacer").startswith("switch edge")
    assert [s["name"] for s in pacer.json("switch show")["switches"]] == ["edge", "s1", "wan"]
    other = f"127.0.0.1:{free_port()}"
    pacer(f"switch set edge address {other}")
    edge = pacer.json("switch show edge")
    assert (edge["address"], edge["program"]) == (other, "pacer")
    assert "s1" in pacer.refused("switch del s1")
    pacer("switch del edge")
    assert [s["name"] for s in pacer.json("switch show")["switches"]] == ["s1", "wan"]


def test_show_has_everything_in_its_place(pacer: Pacer) -> None:
    pacer("class add s1 video rate 500mbit")
    pacer("flow add s1 web match tcp dport 80 class video")
    pacer("flow add s1 own match vlan 5 rate 1mbit")
    lines = pacer("show").splitlines()
    stems = [re.sub(r"^[│├└─\s]+", "", line) for line in lines]
    depth = {
        " ".join(stem.split()[:2]): len(line) - len(stem)
        for line, stem in zip(lines, stems, strict=True)
    }
    assert depth["flow web"] > depth["class video"]
    assert depth["flow own"] == depth["class video"]
    assert lines[0].startswith("s1  pacer at 127.0.0.1:")
    whole = pacer.json("show")["switches"]
    assert [f["name"] for f in whole["s1"]["flows"]] == ["own", "web"]
    assert whole["wan"]["classes"] == []


STATE = """
switches:
  s1:
    classes:
      video: {rate: 300Mbit}
      voice: {rate: 64kbit}
    flows:
      web: {match: {protocol: tcp, dst_port: 80}, class: video}
"""


def test_apply_makes_it_exactly_so_and_says_what_changes(pacer: Pacer, tmp_path: Path) -> None:
    pacer("class add s1 video rate 500mbit")
    pacer("class add s1 old rate 1mbit")
    file = tmp_path / "state.yaml"
    file.write_text(STATE)

    told = pacer(f"apply {file} --dry-run")
    assert "+ class voice on s1" in told
    assert "~ class video on s1\n    rate: 500Mbit -> 300Mbit" in told
    assert "- class old on s1" in told
    assert "would change: 2 created, 1 updated, 1 deleted" in told
    assert [c["name"] for c in pacer.json("class show s1")["s1"]["classes"]] == ["old", "video"]

    assert "changed: 2 created, 1 updated, 1 deleted" in pacer(f"apply {file}")
    assert [c["name"] for c in pacer.json("class show s1")["s1"]["classes"]] == ["video", "voice"]
    assert "nothing to change" in pacer(f"apply {file}")

    exported = tmp_path / "exported.yaml"
    exported.write_text(pacer("export"))
    assert "nothing to change" in pacer(f"apply {exported}")


def test_apply_for_one_switch_and_what_is_wrong_in_a_file(pacer: Pacer, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("classes: {video: {rate: 5Mbit}}\n")
    assert "say which with --switch" in pacer.refused(f"apply {file}", 2)
    pacer(f"apply {file} --switch s1")
    assert pacer.json("class show s1 video")["rate"] == "5Mbit"
    file.write_text("switches: {s1: {classes: {video: {rate: fast}}}}\n")
    said = pacer.refused(f"apply {file}")
    assert "switches.s1.classes.video.rate" in said
    assert "'fast' is not a rate" in said
    assert pacer.json("class show s1 video")["rate"] == "5Mbit"
    said = pacer.refused(f"apply {file} --switch s1", 2)
    assert "the file names its switches; leave --switch away" in said
    assert "No such file" in pacer.refused(f"apply {tmp_path}/none.yaml", 2)


def completions(controller: Controller, line: str) -> list[str]:
    """Return bash's completions at the end of a line."""
    words = line.split(" ")
    code = "from pacer_controller.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PATH": "/usr/bin:/bin",
            "PACER_URL": controller.url,
            "_PACER_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return [found.partition(",")[2] for found in done.stdout.split()]


def test_the_shell_completes_words_and_names(pacer: Pacer, offline: Controller) -> None:
    pacer("class add s1 video rate 500mbit")
    assert completions(offline, "pacer cla") == ["class"]
    assert completions(offline, "pacer class set s1 v") == ["video"]
    assert "rate" not in completions(offline, "pacer class set s1 video rate 5mbit ")
    assert completions(offline, "pacer class set s1 video mode st") == ["static"]
    assert completions(offline, "pacer flow add s1 match tcp dport 80 class ") == ["video"]


def test_each_shell_has_its_script(pacer: Pacer) -> None:
    for shell in ("zsh", "fish"):
        assert "_PACER_COMPLETE" in pacer(f"completion {shell}")


def test_events_tell_who_changed_what(pacer: Pacer) -> None:
    pacer("class add s1 video rate 500mbit")
    pacer("class set s1 video rate 300mbit")
    told = pacer("events s1 --kind change")
    assert "500Mbit -> 300Mbit" in told
    assert pacer.json("events --last 1")["events"][0]["kind"] == "change"


def test_what_stands_in_its_page_can_be_typed(pacer: Pacer, tmp_path: Path) -> None:
    """Each command of docs/pacer.md, in its order, does as the page says."""
    page = (ROOT / "docs" / "pacer.md").read_text()
    commands = re.findall(r"^    pacer (.*)$", page, re.MULTILINE)
    assert len(commands) > 12
    for command in commands:
        pacer(command)
    assert [c["name"] for c in pacer.json("class show s1")["s1"]["classes"]] == ["video", "voice"]
    (text,) = re.findall(r"(?:^    .*\n)+", page[page.index("    switches:\n") :], re.MULTILINE)[:1]
    file = tmp_path / "state.yaml"
    file.write_text(textwrap.dedent(text))
    assert "2 deleted" not in pacer(f"apply {file} --dry-run")
    pacer(f"apply {file}")
    said = pacer.refused("class show s1 vidoe")
    assert said.strip() in page
    ours = re.findall(r"^\| `(?:tc|\.\.\.) [^|]* \| `pacer ([^`]*)` \|$", page, re.MULTILINE)
    assert len(ours) == 7
    pacer("flow del s1 web")
    pacer("class del s1 video")
    for command in ours:
        if command.startswith("class del"):
            pacer("flow del s1 tcp-dport-80 tcp-dport-443")
        # Nothing is measured on a switch that is away.
        if not command.endswith(" -s"):
            pacer(command)


# ---- with a switch -------------------------------------------------------------------------


@pytest.fixture
def live(
    controller: Controller, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Pacer:
    return at(controller, capsys, monkeypatch)


def test_on_a_switch_it_is_applied_measured_and_seen_in_top(
    live: Pacer, controller: Controller, wires: Network
) -> None:
    assert live("class add s1 video rate 500mbit") == (
        "class video: static 500Mbit limit 32MB, applied\n"
    )
    live("flow add s1 udp match udp dport 5001 class video")
    ipv4 = bytes.fromhex("4500001c00004000401100000a0000010a000101")
    ports = (40000).to_bytes(2, "big") + (5001).to_bytes(2, "big") + bytes.fromhex("00080000")
    stations = bytes.fromhex("020000000002020000000001")
    wires.send(1, (stations + b"\x08\x00" + ipv4 + ports).ljust(60, b"\0"))

    def matched() -> bool:
        (row,) = live.json("flow show s1 udp --stats")["s1"]["flows"]
        return bool(row["matched"]["packets"] == 1)

    eventually(matched, "the flow's packet is counted")
    (row,) = live.json("class show s1 video -s")["s1"]["classes"]
    assert row["accepted"]["packets"] == 1
    shown = live("class show s1 -s").splitlines()
    assert any(line.startswith("video") for line in shown)
    assert re.fullmatch(r"Rates: of the last [0-9.]+m?s\.", shown[-1].strip())
    samples = [json.loads(line) for line in live("top s1 -n 2 -i 0.2 --json").splitlines()]
    assert [sample["switch"] for sample in samples] == ["s1", "s1"]
    assert "video" in live("top s1 -n 1")


def test_marks_and_estimates_are_shown_where_there_are_any() -> None:
    plain = {"name": "video", "rate": "500Mbit", "ce_marked": {"packets": 0, "bytes": 0}}
    followed = {"name": "bulk", "rtt_ns": 200_000_000, "in_flight_bytes": 1 << 20}
    marking = {"name": "lab", "ce_marked": {"packets": 1234, "bytes": 1234 * 1514}}

    def shown(*rows: Mapping[str, object]) -> dict[str, list[str]]:
        made = render.statistics("classes", [("s1", {"classes": rows})])
        return {str(column.header): list(map(str, column.cells)) for column in made.columns}

    assert list(shown(plain))[-1] == "GAP OWED"
    assert shown(plain, followed)["RTT"] == ["-", "200ms"]
    assert shown(plain, followed)["IN FLIGHT"] == ["-", "1MB"]
    assert "MARKED" not in shown(plain, followed)
    assert shown(plain, marking)["MARKED"] == ["-", "1,234"]


def test_a_class_below_its_rate_says_why() -> None:
    rows = [
        {"name": reason, "below_rate": {"reason": reason, "short_percent": 9.0, "stalled_ms": 12.0}}
        for reason in ("no-demand", "limit", "line", "stalled")
    ]
    made = render.statistics("classes", [("s1", {"classes": [{"name": "at it"}, *rows]})])
    shown = {str(column.header): list(map(str, column.cells)) for column in made.columns}
    assert shown["BELOW ITS RATE"] == [
        *("-", "no demand", "drops at its limit", "line is full", "machine stalled 12 ms")
    ]


def test_top_counts_rounds_of_all_switches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, network: Network
) -> None:
    # Two switch processes without ports: only requests to them count.
    switches = [Switch(Network(private=False)) for _ in range(2)]
    for one in switches:
        one.start()
    controller = Controller(
        *("--switch", f"s1={switches[0].address}"),
        *("--switch", f"wan={switches[1].address},program=gtrcnet,bottleneck=500mbit,wire=1:2"),
    )
    try:
        for name in ("s1", "wan"):
            controller.wait_connected(name)
        run = at(controller, capsys, monkeypatch)
        lines = [json.loads(line) for line in run("top -n 2 -i 0.2 --json").splitlines()]
        assert [line["switch"] for line in lines] == ["s1", "wan"] * 2
        assert "gtrcnet: no classes; see `pacer burst wan`" in run("top -n 1")
    finally:
        controller.close()
        for one in switches:
            one.kill()


def test_ports_are_set_and_shown(live: Pacer, controller: Controller, wires: Network) -> None:
    live("port set s1 2 rate 1gbit counts layer2 fifo 64KB delay 10ms")
    port = live.json("port show s1 2")
    assert (port["line_rate"], port["counts"]) == ("1Gbit", "layer2")
    assert (port["fifo_bytes"], port["delay_ns"]) == (65536, 10_000_000)
    live("port set s1 2 gaps pause-frames")
    assert live.json("port show s1 2")["gap_mode"] == "pause-frames"
    live("port set s1 2 gap-frame 300")
    assert live.json("port show s1 2")["gap_frame_max_bytes"] == 300
    live("port set s1 2 gap-frame none")
    assert live.json("port show s1 2")["gap_frame_max_bytes"] == 1514
    assert live.error == ""
    assert "gaps pause-frames gap-frame 300" in live("port set s1 2 gap-frame 300")
    assert "gaps pause-frames gap-frame 300" in live("show s1")
    refused = live.refused("port set s1 2 gaps accounted gap-frame 300")
    assert "only PAUSE frames have a length" in refused
    assert "gap-frame none" in refused
    live("port set s1 2 gaps accounted")
    accounted = live.json("port show s1 2")
    assert (accounted["gap_mode"], accounted["gap_frame_max_bytes"]) == ("accounted", None)
    live("port set s1 2 delay 0")
    assert live.json("port show s1 2")["line_rate"] == "1Gbit"
    assert "above the line rate" in live.refused("class add s1 fast rate 2gbit port 2")
    live("port set s1 2 rate none")
    assert live.json("port show s1 2")["line_rate_bps"] is None
    assert "port show" not in live("port show")
    assert "fifo: want" in live.refused("port set s1 2 fifo 10")
    live("port set s1 2 fifo none")
    assert live.json("port show s1 2")["fifo_bytes"] == 1_518_000
    live("port set s1 2 rate 1gbit fifo 64KB gaps pause-frames gap-frame 300")
    live("port reset s1 2")
    reset = live.json("port show s1 2")
    assert (reset["desired"], reset["line_rate_bps"]) == (None, None)
    assert (reset["fifo_bytes"], reset["gap_mode"]) == (1_518_000, "accounted")
    assert live.error == ""
    assert "port 2 of s1: nothing is set" in live.refused("port reset s1 2", 2)


def test_a_rate_is_changed_while_somebody_else_changes_it(
    live: Pacer, controller: Controller, switch: Switch
) -> None:
    """A change between reading and writing is refused, not overwritten."""
    live("class add s1 video rate 500mbit")
    tag = controller.http.get("/v1/switches/s1/classes/video").headers["etag"]
    live("class set s1 video rate 300mbit")
    assert controller.http.get("/v1/switches/s1/classes/video").headers["etag"] != tag
