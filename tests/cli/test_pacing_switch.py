"""The real binary against bad input: it refuses, and names the thing and the field."""

from __future__ import annotations

import contextlib
import ctypes
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from namespaces import told_inside
from pacer_entries import all_to, flow_by_ether_type, frame, paced_class
from pacing_switch import TimedFrame, read_capture, write_capture
from pacing_switch.processes import LoggedProcess
from pacing_switch.switch import READY
from programs import Bad, bad_programs
from virtual_switch import COMPILED, binary

PACER = str(COMPILED / "pacer.json")
TIMEOUT_S = 120
INSIDE = Path(__file__).with_name("inside_namespace.py")


def switch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the switch in a folder until it ends by itself."""
    return subprocess.run(
        [str(binary()), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def refused(folder: Path, *arguments: str, named: tuple[str, ...]) -> None:
    """Assert that the switch does not take the arguments, and that its error has these words."""
    ended = switch(folder, *arguments)
    assert ended.returncode in (1, 2), ended.stderr
    # A refusal is one message, not a crash that happens to have a status.
    assert "panicked" not in ended.stderr
    assert "RUST_BACKTRACE" not in ended.stderr
    assert READY not in ended.stderr
    assert len(ended.stderr) < 2000
    for text in named:
        assert text in ended.stderr, ended.stderr
    assert ended.stdout == ""


# ---- valid runs ------------------------------------------------------------------------------


def test_help_and_version(tmp_path: Path) -> None:
    for option in ("--help", "-h"):
        told = switch(tmp_path, option)
        assert told.returncode == 0
        for word in ("--grpc-server-addr", "--virtual", "--drop-port", "PORT@INTERFACE"):
            assert word in told.stdout
    for option in ("--version", "-v", "-V"):
        told = switch(tmp_path, option)
        assert told.returncode == 0
        assert told.stdout.startswith("pacing_switch ")
        assert told.stdout.split()[1][0].isdigit()


IGNORED = (
    "--nanolog ipc:///tmp/bm-0-log.ipc",
    "--debugger",
    "--debugger-addr ipc:///tmp/bm-0-debug.ipc",
    "--restore-state s1.state",
    "--dump-packet-data 64",
    "--disable-swap",
    "--enable-swap",
    "--max-port-count 64",
    "--max-mc-groups 64",
    "--max-l1-entries 64",
    "--max-l2-entries 64",
)


def test_options_of_simple_switch_grpc(tmp_path: Path) -> None:
    """Options without a meaning here are accepted and named in one line, before or after `--`."""
    words = [word for option in IGNORED for word in option.split()]
    own = ["--device-id", "1", "-L", "info", "--log-console", "--drop-port", "511"]
    for place in range(2):
        before, after = (words, own) if place == 0 else (own, words)
        command = ["--virtual", "-i", "1@p", *before, PACER, "--", *after]
        ended = switch(tmp_path, *command)
        assert ended.returncode == 0, ended.stderr
        told = [line for line in ended.stderr.splitlines() if "ignored" in line]
        assert told == ["pacing_switch: ignored: " + ", ".join(IGNORED)]


def traced(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a switch that logs the way of a packet."""
    write_capture(folder / "p_in.pcap", [TimedFrame(0, frame(1, 0, 100))])
    command = ["--virtual", "-i", "1@p", PACER, "--", "--log-level", "trace", *options]
    ended = switch(folder, *command)
    assert ended.returncode == 0, ended.stderr
    assert "ignored" not in ended.stderr
    return ended


def test_the_log_goes_to_the_file_that_simple_switch_writes(tmp_path: Path) -> None:
    came = "[0.0] Processing packet received on port 1, 100 bytes, at 0 ns"
    # A second run writes behind the first one.
    for number in (1, 2):
        ended = traced(tmp_path, "--log-file", "s1.log", "--log-flush")
        assert came not in ended.stderr
        text = (tmp_path / "s1.log.txt").read_text()
        assert text.count(came) == number
        assert "\x1b" not in text


def test_the_log_file_has_a_largest_size(tmp_path: Path) -> None:
    def lines(*names: str) -> list[str]:
        text = "".join((tmp_path / name).read_text() for name in names)
        # Without the time.
        return [line.partition(" ")[2] for line in text.splitlines()]

    traced(tmp_path, "--log-file", "all")
    limits = ("--log-file-max-size", "2000", "--log-file-max-files", "2")
    traced(tmp_path, "--log-file", "s1", *limits)
    newest = ("s1.2.txt", "s1.1.txt", "s1.txt")
    assert {path.name for path in tmp_path.glob("s1*")} == set(newest)
    assert all((tmp_path / name).stat().st_size <= 2_000 for name in newest)
    # The newest messages, and none is cut.
    kept = lines(*newest)
    assert len(kept) > 20
    assert kept == lines("all.txt")[-len(kept) :]


def test_a_log_file_that_takes_no_more_does_not_end_the_switch(tmp_path: Path) -> None:
    (tmp_path / "s1.txt").symlink_to("/dev/full")
    ended = traced(tmp_path, "--log-file", "s1")
    assert ended.stderr.count("messages of the log are lost") == 1
    assert "cannot write s1.txt: No space left on device" in ended.stderr


def test_a_log_file_is_refused_by_name(tmp_path: Path) -> None:
    refused(tmp_path, "--log-file", "none/s1", "--virtual", PACER, named=("none/s1.txt",))
    both = ("--log-file", "s1", "--log-console")
    refused(tmp_path, *both, "--virtual", PACER, named=("--log-file", "--log-console"))
    empty = ("--log-file", "s1", "--log-file-max-size", "0")
    refused(tmp_path, *empty, "--virtual", PACER, named=("--log-file-max-size",))


def test_ports_as_scripts_for_simple_switch_grpc_give_them(tmp_path: Path) -> None:
    """One port twice over, port 511 where another one means "drop", a server address by name."""
    ports = ["-i", "0@p", "-i", "511@q", "-i", "0@p"]
    more = ["--drop-port", "510", "--cpu-port", "509", "--grpc-server-addr", "localhost:0"]
    ended = switch(tmp_path, "--virtual", *ports, PACER, "--", *more)
    assert ended.returncode == 0, ended.stderr
    assert {path.name for path in tmp_path.glob("*_out.pcap")} == {"p_out.pcap", "q_out.pcap"}


def test_statistics_are_written_though_nobody_listens(tmp_path: Path) -> None:
    command = [str(binary()), "--virtual", "-i", "1@p", "--stats-file", "s.json", PACER]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(TIMEOUT_S) == 0
    assert "tx_packets" in (tmp_path / "s.json").read_text()


def test_command_line_of_the_p4_tutorials(tmp_path: Path) -> None:
    """As their Mininet switch writes it, but for the interfaces: the switch serves P4Runtime."""
    line = (
        "--pcap pcaps --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 --no-p4 --debugger "
        "--log-console --thrift-port 0 -- --grpc-server-addr 127.0.0.1:0"
    )
    command = [str(binary()), *line.split()]
    running = LoggedProcess(command, tmp_path / "log", READY, folder=tmp_path)
    running.wait_ready()
    assert running.stop() == 0
    assert "until a controller installs a program" in running.log.read_text()


# ---- programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", list(bad_programs()), ids=lambda bad: bad.name)
def test_bad_program(bad: Bad, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(bad.text)
    refused(tmp_path, "--virtual", "-i", "1@p", "bad.json", named=("bad.json", *bad.named))


def test_source_instead_of_the_compiled_program(tmp_path: Path) -> None:
    folder = tmp_path / "p4"
    folder.mkdir()
    (folder / "own.p4").write_text("#include <v1model.p4>")
    arguments = ("--virtual", "-i", "1@p", "p4/own.p4")
    how = "p4c-bm2-ss --emit-externs -o p4/own.json p4/own.p4"
    refused(tmp_path, *arguments, named=("p4/own.p4 is P4 source", how))
    (folder / "compiled").mkdir()
    for compiled in ("p4/compiled/own.json", "p4/own.json"):
        (tmp_path / compiled).write_text("{}")
        refused(tmp_path, *arguments, named=(f"its compiled program, {compiled}",))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(bytes(range(256)) * 16)
    refused(tmp_path, "--virtual", "-i", "1@p", "bad.json", named=("bad.json", "not BMv2 JSON"))


def test_program_that_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    refused(tmp_path, "--virtual", "-i", "1@p", "no.json", named=("no.json", "No such file"))
    refused(tmp_path, "--virtual", "-i", "1@p", ".", named=("directory",))
    refused(tmp_path, "--virtual", "-i", "1@p", named=("--virtual", "PROGRAM.json"))


# ---- options ---------------------------------------------------------------------------------

OPTIONS: list[tuple[list[str], tuple[str, ...]]] = [
    (["-i", "1@nosuch0"], ("port 1", "'nosuch0'", "existing: ")),
    (["-i", "1@a", "-i", "1@b"], ("port 1", "twice", "a and b")),
    (["-i", "1@a", "-i", "2@a"], ("interface a", "twice", "port 1 and port 2")),
    (["-i", "1@a,rate=0"], ("port 1", "rate", "0 is outside 8 kbit/s")),
    (["-i", "1@a,rate=-1"], ("port 1", "rate", "'-1'")),
    (["-i", "1@a,rate=fast"], ("port 1", "rate", "'fast'")),
    (["-i", "1@a,rate=7999"], ("port 1", "rate", "7999 is outside 8 kbit/s")),
    (["-i", "1@a,rate=100000000001"], ("port 1", "rate", "100 Gbit/s")),
    (["-i", "1@a,rate=101gbit"], ("port 1", "rate", "101gbit is outside", "100 Gbit/s")),
    (["-i", "1@a,rate=99999999999999999999"], ("port 1", "rate")),
    (["-i", "1@a,rate="], ("port 1", "rate", "''")),
    (["-i", "1@a,rate"], ("port 1", "'rate'", "key=value")),
    (["-i", "1@a,speed=1gbit"], ("port 1", "unknown 'speed'", "rate, counts, fifo, delay")),
    (["-i", "1@a,counts=frames"], ("port 1", "counts", "'frames'")),
    (["-i", "1@a,fifo=0"], ("port 1", "fifo")),
    (["-i", "1@a,fifo=-64KB"], ("port 1", "fifo", "'-64KB'")),
    (["-i", "1@a,delay=100"], ("port 1", "delay", "'100'")),
    (["-i", "1@a,delay=11s"], ("port 1", "delay", "10 s")),
    (["-i", "1"], ("'1'", "PORT@INTERFACE")),
    (["-i", "eth7,rate=1gbit"], ("'eth7'", "write 1@eth7 for eth7 as port 1")),
    (["-i", "1@x,rate=500mbps"], ("write 500mbit for bits", "tc means bytes")),
    (["-i", "1@"], ("port 1", "no interface")),
    (["-i", "one@a"], ("port 'one'", "0 to 511")),
    (["-i", "512@a"], ("port '512'", "0 to 511")),
    (["-i", "511@a"], ("port 511 (a)", "drop port")),
    (["-i", "-1@a"], ("-1",)),
    (["-i", "3@a", "--drop-port", "3"], ("port 3", "drop port")),
    (["-i", "3@a", "--cpu-port", "3"], ("port 3", "CPU")),
    (["--drop-port", "512"], ("--drop-port", "512")),
    (["--cpu-port", "512"], ("--cpu-port", "512")),
    (["--cpu-port", "511"], ("port 511", "drop port")),
    (["--device-id", "first"], ("--device-id", "'first'")),
    (["--grpc-server-addr", "localhost"], ("--grpc-server-addr", "'localhost'")),
    (["--max-held-packets", "0"], ("--max-held-packets",)),
    (["--spin", "long"], ("--spin", "'long'")),
    (["--speed", "1gbit"], ("'--speed'",)),
    (["--runtime-json", "no.json"], ("no.json", "No such file")),
    (["--translation", "no.json"], ("no.json", "No such file")),
    (["--virtual", "-i", "1@p", "--translation", "ports.json"], ("--translation", "--virtual")),
    (["--use-files", "5"], ("--use-files", "--virtual")),
    (["--packet-in", "ipc:///tmp/p"], ("--packet-in", "interfaces", "--virtual")),
    (["--dp-grpc-server-addr", "127.0.0.1:1"], ("--dp-grpc-server-addr", "interfaces")),
    (["--json-version"], ("--json-version", "2.x")),
    (["--virtual"], ("--virtual needs ports", "-i PORT@NAME", "NAME_in.pcap")),
    (["--virtual", "-i", "1@p", "-i", "2@no/q"], ("no/q_out.pcap", "No such file")),
    (["--virtual-until", "10s"], ("--virtual",)),
    (["--virtual", "-i", "1@p", "--virtual-until", "soon"], ("--virtual-until", "'soon'")),
]


@pytest.mark.parametrize(("options", "named"), OPTIONS, ids=[" ".join(o) for o, _ in OPTIONS])
def test_bad_option(options: list[str], named: tuple[str, ...], tmp_path: Path) -> None:
    refused(tmp_path, *options, PACER, named=named)


def test_a_mapping_that_is_not_one_to_one(tmp_path: Path) -> None:
    values = {"eth1": 1, "eth2": "0x01"}
    mappings = {"port_t": {"bits": 9, "values": values}}
    (tmp_path / "ports.json").write_text(json.dumps(mappings))
    named = (
        "--translation ports.json",
        'type "port_t"',
        '"eth1" and "eth2"',
        "the same value, 0x0001",
    )
    refused(tmp_path, "--translation", "ports.json", PACER, named=named)


def test_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(tmp_path, "--grpc-server-addr", address, named=(address, "--grpc-server-addr"))


def test_several_run_at_once_under_the_name_simple_switch(tmp_path: Path) -> None:
    """A tool that starts simple_switch chooses a Thrift port, and knows of no gRPC."""
    name = tmp_path / "simple_switch"
    name.symlink_to(binary())
    command = [str(name), "--no-p4", "--thrift-port", "0"]
    addresses = set()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            one = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
            stack.callback(one.terminate)
            assert one.stderr is not None
            lines = iter(one.stderr.readline, "")
            addresses.add(next(line for line in lines if "ready" in line).split()[-1])
    assert len(addresses) == 2


def test_bad_captures(tmp_path: Path) -> None:
    run = ("--virtual", "-i", "1@p", PACER)
    (tmp_path / "p_in.pcap").write_bytes(b"GIF89a")
    refused(tmp_path, *run, named=("p_in.pcap", "not a pcap file"))
    header = bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 ffff0000 01000000")
    (tmp_path / "p_in.pcap").write_bytes(header + b"\0" * 10)
    refused(tmp_path, *run, named=("p_in.pcap",))
    # A record of 4 GB in a file of 44 bytes.
    (tmp_path / "p_in.pcap").write_bytes(header + b"\0" * 8 + b"\xff" * 12)
    refused(tmp_path, *run, named=("p_in.pcap",))
    (tmp_path / "p_in.pcap").write_bytes(header[:-4] + bytes.fromhex("71000000"))
    refused(tmp_path, *run, named=("p_in.pcap", "Ethernet"))


# ---- runtime files ---------------------------------------------------------------------------

PARAMS = {"time_per_byte_q24": 16 << 24, "limit_bytes": 1_000_000, "allowance_ns": 24_288}
CLASS: dict[str, Any] = {
    "table": "PacerIngress.classes",
    "match": {"class_id": 1},
    "action_name": "PacerIngress.paced_static",
    "action_params": PARAMS,
}
FLOW: dict[str, Any] = {
    "table": "PacerIngress.flows",
    "match": {"ether_type": [0x0800, 0xFFFF]},
    "action_name": "PacerIngress.classify",
    "action_params": {
        "class_id": 1,
        "drop_red": 0,
        "mark": 0,
        "yellow_dscp": 0,
        "red_dscp": 0,
    },
    "priority": 1,
}


def _class(**changes: object) -> dict[str, object]:
    return {"table_entries": [CLASS | changes]}


def _flow(**changes: object) -> dict[str, object]:
    return {"table_entries": [FLOW | changes]}


def _group(group: object, *replicas: object) -> dict[str, object]:
    return {"multicast_group_entries": [{"multicast_group_id": group, "replicas": list(replicas)}]}


ENTRIES: list[tuple[str, dict[str, object], tuple[str, ...]]] = [
    ("table", _class(table="PacerIngress.nothing"), ("PacerIngress.nothing", "no such table")),
    ("field", _class(match={"colour": 1}), ("PacerIngress.classes", "'colour'", "class_id")),
    ("field-missing", _class(match={}), ("PacerIngress.classes", "'class_id'")),
    ("width", _class(match={"class_id": 1 << 32}), ("'class_id'", "4294967296", "32 bits")),
    ("negative", _class(match={"class_id": -1}), ("'class_id'", "-1")),
    ("fraction", _class(match={"class_id": 1.5}), ("'class_id'", "1.5")),
    ("text", _class(match={"class_id": "fast"}), ("'class_id'", "'fast'")),
    ("kind", _class(match={"class_id": [1, 2]}), ("'class_id'", "[1,2]")),
    ("ternary-kind", _flow(match={"ether_type": 1}), ("'ether_type'", "list of two")),
    ("ternary-width", _flow(match={"ether_type": [1 << 16, 1]}), ("'ether_type'", "16 bits")),
    ("mask-width", _flow(match={"ether_type": [1, 1 << 16]}), ("'ether_type'", "16 bits")),
    ("outside-mask", _flow(match={"ether_type": [0x0801, 0xFF00]}), ("PacerIngress.flows",)),
    ("action", _class(action_name="fly"), ("PacerIngress.classes", "'fly'")),
    (
        "action-of-another-table",
        _class(action_name="PacerIngress.classify"),
        ("PacerIngress.classes", "'PacerIngress.classify'"),
    ),
    ("no-action", _class(action_name=None), ("PacerIngress.classes", "action_name")),
    ("parameter", _class(action_params={**PARAMS, "speed": 1}), ("paced_static", "'speed'")),
    (
        "parameter-missing",
        _class(action_params={"time_per_byte_q24": 1, "allowance_ns": 0}),
        ("paced_static", "'limit_bytes'", "missing"),
    ),
    (
        "parameter-width",
        _class(action_params={**PARAMS, "limit_bytes": 1 << 32}),
        ("'limit_bytes'", "32 bits"),
    ),
    (
        "parameter-bit",
        _flow(action_params={**FLOW["action_params"], "drop_red": 2}),
        ("'drop_red'", "1 bit"),
    ),
    ("priority-0", _flow(priority=0), ("PacerIngress.flows", "priority")),
    ("priority-of-exact", _class(priority=5), ("PacerIngress.classes", "priorit")),
    ("priority-text", _flow(priority="high"), ("runtime.json", '"high"')),
    ("operation", _class(operation="upsert"), ("runtime.json", "`upsert`", "`insert`")),
    ("delete-nothing", _class(operation="delete"), ("PacerIngress.classes", "no such entry")),
    ("modify-nothing", _class(operation="modify"), ("PacerIngress.classes", "no such entry")),
    ("time", _class(at_ns=-1), ("runtime.json", "-1")),
    ("no-table", {"table_entries": [{}]}, ("runtime.json", "`table`")),
    ("twice", {"table_entries": [CLASS, CLASS]}, ("table entry 1", "PacerIngress.classes")),
    ("group-0", _group(0), ("runtime.json", "multicast group 0")),
    ("group-wide", _group(1 << 16), ("multicast group 65536",)),
    ("group-port", _group(1, {"egress_port": 9}), ("multicast group 1", "port 9")),
    ("group-port-text", _group(1, {"egress_port": "x"}), ("runtime.json", '"x"')),
]


@pytest.mark.parametrize(
    ("content", "named"), [e[1:] for e in ENTRIES], ids=[e[0] for e in ENTRIES]
)
def test_bad_runtime_entry(
    content: dict[str, object], named: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "runtime.json").write_text(json.dumps(content))
    run = ("--virtual", "-i", "1@p", "--runtime-json", "runtime.json", PACER)
    refused(tmp_path, *run, named=named)


@pytest.mark.parametrize("text", ["", "{", "no", "\xff", '{"table_entries": 5}'])
def test_malformed_runtime_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "runtime.json").write_bytes(text.encode("latin-1"))
    run = ("--virtual", "-i", "1@p", "--runtime-json", "runtime.json", PACER)
    refused(tmp_path, *run, named=("runtime.json",))


UNSEEN: list[tuple[str, str, str]] = [
    ("top-level-key", '{"tabel_entries": []}', "tabel_entries"),
    ("top-level-list", "[]", "runtime.json"),
    (
        "entry-key",
        json.dumps(_flow(match={}) | {}).replace('"match"', '"mach"'),
        "mach",
    ),
]


@pytest.mark.parametrize(("_name", "text", "named"), UNSEEN, ids=[u[0] for u in UNSEEN])
def test_misspelt_runtime_key(_name: str, text: str, named: str, tmp_path: Path) -> None:
    """`mach` for `match` would make a flow entry that matches every packet."""
    (tmp_path / "runtime.json").write_text(text)
    run = ("--virtual", "-i", "1@p", "--runtime-json", "runtime.json", PACER)
    refused(tmp_path, *run, named=(named,))


def test_no_port_has_input(tmp_path: Path) -> None:
    """A port may lack an input file and only send; if all lack one, a name is misspelt."""
    refused(tmp_path, "--virtual", "-i", "1@nosuch", "-i", "2@q", PACER, named=("nosuch_in.pcap",))


def test_failed_run_leaves_no_output(tmp_path: Path) -> None:
    """It leaves no files of its own, and the files from before are whole."""
    refused(tmp_path, "--virtual", "-i", "1@foo", PACER, named=("foo_in.pcap",))
    kept = tmp_path / "q_out.pcap"
    kept.write_bytes(b"of an earlier run")
    capture = tmp_path / "p_in.pcap"
    write_capture(capture, [TimedFrame(at_ns, bytes(60)) for at_ns in (0, 1_000)])
    capture.write_bytes(capture.read_bytes()[:-1])
    refused(tmp_path, "--virtual", "-i", "1@p", "-i", "2@q", PACER, named=("p_in.pcap",))
    assert kept.read_bytes() == b"of an earlier run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p_in.pcap", "q_out.pcap"]


# ---- ends of virtual time --------------------------------------------------------------------


def test_virtual_until_ends_in_the_middle(tmp_path: Path) -> None:
    """The time counts from the first packet; frames sent by then are in the capture."""
    frames = [TimedFrame(50_000_000 + at_ns, frame(1, 1, 100)) for at_ns in (0, 0, 30_000)]
    write_capture(tmp_path / "p_in.pcap", frames)
    entries = [paced_class(1, 40_000_000), flow_by_ether_type(1)]
    runtime = {"table_entries": entries, "multicast_group_entries": all_to(2)}
    (tmp_path / "runtime.json").write_text(json.dumps(runtime))
    run = ("--virtual", "-i", "1@p", "-i", "2@q", "--runtime-json", "runtime.json", PACER)
    # 104 bytes at 200 ns: the second is sent at 20,800 ns, the third at 41,600 ns.
    for until, sent in (("20799ns", 1), ("20.8us", 2), ("41us", 2), ("1s", 3)):
        ended = switch(tmp_path, *run, "--virtual-until", until)
        assert ended.returncode == 0, ended.stderr
        assert len(read_capture(tmp_path / "q_out.pcap")) == sent, until
        assert ("still to be sent" in ended.stderr) == (sent < 3)


def test_packets_that_go_round_for_ever_end_a_run(tmp_path: Path) -> None:
    """The flavour for stock BMv2 holds packets by recirculation; here, one for minutes."""
    write_capture(tmp_path / "p_in.pcap", [TimedFrame(0, frame(1, 1, 1_000))] * 2)
    slow = paced_class(1, 8_000)
    params = slow["action_params"]
    assert isinstance(params, dict)
    params["time_per_byte_q24"] = 100_000_000 << 24
    runtime = {
        "table_entries": [slow, flow_by_ether_type(1)],
        "multicast_group_entries": all_to(2),
    }
    (tmp_path / "runtime.json").write_text(json.dumps(runtime))
    program = str(COMPILED.parent / "bmv2" / "pacer.json")
    run = ("--virtual", "-i", "1@p", "-i", "2@q", "--runtime-json", "runtime.json", program)
    refused(tmp_path, *run, named=("recirculates packets without end", "--virtual-until"))
    assert not (tmp_path / "q_out.pcap").exists()
    ended = switch(tmp_path, *run, "--virtual-until", "10ms")
    assert ended.returncode == 0, ended.stderr
    assert "still to be sent" in ended.stderr
    assert [timed.at_ns for timed in read_capture(tmp_path / "q_out.pcap")] == [0]


def test_endless_program(tmp_path: Path) -> None:
    """A program that is too long, from a device whose size reads 0, is refused, too."""
    address_space = 1 << 30
    ended = subprocess.run(
        ["prlimit", f"--as={address_space}", str(binary()), "--virtual", "-i", "1@p", "/dev/zero"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 1
    assert "out of memory" not in ended.stderr
    assert "at most" in ended.stderr


_REFUSE_EXEC_GAIN = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_machine_code_where_no_memory_may_become_executable(tmp_path: Path) -> None:
    """The packaged unit has systemd's MemoryDenyWriteExecute."""
    get = 66
    if ctypes.CDLL(None).prctl(get, 0, 0, 0, 0) < 0:
        pytest.skip("not run: Linux before 6.3 has no such setting of a process")
    command = [str(binary()), "--virtual", "-i", "1@p", "--engine", "machine", PACER]
    # Not by `preexec_fn`: the fork that it needs can crash the child, because gRPC has threads.
    ended = subprocess.run(
        [sys.executable, "-c", _REFUSE_EXEC_GAIN, *command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr


# ---- a running switch ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run a switch with interfaces in a namespace of its own; return its reports."""
    return told_inside(INSIDE, tmp_path_factory.mktemp("lived"))


def test_bad_programs_are_refused_and_the_switch_forwards_on(lived: dict[str, Any]) -> None:
    bad = {bad.name: bad for bad in bad_programs()}
    assert len(lived["pushed"]) == len(bad)
    for pushed in lived["pushed"]:
        assert pushed["code"] == "INVALID_ARGUMENT", pushed
        assert "p4_device_config" in pushed["text"], pushed
        # The server itself refuses an empty program.
        named = ("empty",) if pushed["name"] == "empty" else bad[pushed["name"]].named
        for text in named:
            assert text in pushed["text"], pushed
        assert pushed["forwarded"] == 1, pushed


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_signal_ends_it_with_its_statistics(lived: dict[str, Any], signal: str) -> None:
    end = lived["ends"][signal]
    assert end["status"] == 0
    assert "pacing_switch: statistics" in end["stderr"]
    assert "port   1" in end["stderr"]
    assert "panicked" not in end["stderr"]
    statistics = end["statistics"]
    ports = {port["port"]: port for port in statistics["ports"]}
    # Exact: the kernel's own packets are kept off the wires.
    assert ports[1]["interface"] == "a1"
    assert (ports[1]["rx_packets"], ports[2]["tx_packets"]) == (end["sent"], end["sent"])
    # Layer 2 without FCS, says traffic_manager.proto of both.
    assert ports[1]["rx_bytes"] == ports[2]["tx_bytes"] == end["sent_bytes"]
    assert statistics["rx_packets"] == end["sent"]
    # To port 2, and to port 1, which does not get back its own frames.
    assert ports[1]["drops"] == {"pruned": end["sent"]}
    assert statistics["drops"] == {}


def test_the_last_line_of_the_statistics_counts_all_drops(lived: dict[str, Any]) -> None:
    end = lived["ends"]["SIGINT"]
    last = end["stderr"].splitlines()[-1]
    assert last.strip().startswith("all")
    assert f"pruned {end['sent']}" in last
