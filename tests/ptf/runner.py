"""Runs the PTF tests against a switch in a network namespace of its own.

    tests/ptf/run [--port-driver DRIVER] [TARGET] [TEST ...]

TARGET is `pacing_switch` (default, or $TARGET) or `bmv2`. A TEST is `module`, `module.Class` or
a PTF group; without any, all are run. DRIVER is how pacing_switch opens its ports: `af_packet`
(default) or `af_xdp`. Exit status: 0 nothing failed, 1 a test failed or the
switch did not live and die well, 2 something needed is missing, 77 the target is not installed
(everything counts as not run).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from pacing_switch.wires import WireError, make_wires

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILED = ROOT / "p4src" / "compiled"
TARGETS = ("pacing_switch", "bmv2")
PORT_DRIVERS = ("af_packet", "af_xdp")
PORTS = (1, 2, 3)
GRPC_ADDRESS = ("127.0.0.1", 9559)
CPU_PORT = 510
READY_SECONDS = 60.0
END_SECONDS = 60.0
TEST_SECONDS = 300
NEEDED_PACKAGES = ("ptf", "scapy", "finsy", "grpc")
EXIT_FAILED, EXIT_MISSING, EXIT_NOT_RUN = 1, 2, 77
PR_SET_PDEATHSIG = 1


class MissingError(Exception):
    """A dependency of a run is missing; the text names it and its source."""


def pacing_switch() -> Path:
    """The binary under test: $PACING_SWITCH, else the workspace's release build."""
    named = os.environ.get("PACING_SWITCH")
    target_dir = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "switch" / "target"))
    binary = Path(named) if named else target_dir / "release" / "pacing_switch"
    if not binary.exists():
        raise MissingError(f"no {binary}: build it with `cargo build --release` in switch/")
    return binary


def switch_command(target: str, port_driver: str) -> list[str]:
    """Command line of the switch with its ports, waiting for a program by P4Runtime."""
    address = f"{GRPC_ADDRESS[0]}:{GRPC_ADDRESS[1]}"
    ports = [word for port in PORTS for word in ("-i", f"{port}@s{port}")]
    own = ["--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    if target == "bmv2":
        return ["simple_switch_grpc", "--no-p4", "--log-level", "warn", *ports, "--", *own]
    return [str(pacing_switch()), "--no-p4", "--port-driver", port_driver, *own, *ports]


def end_with_parent() -> None:
    """In a child before exec: end with the runner, for whatever reason it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def wait_until_ready(switch: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the switch takes connections; raises MissingError when it has died instead."""
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit:
        if switch.poll() is not None:
            raise MissingError(f"the switch ended at once: {log.read_text(errors='replace')}")
        try:
            socket.create_connection(GRPC_ADDRESS, timeout=READY_SECONDS).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise MissingError(f"the switch does not listen on {GRPC_ADDRESS} after {READY_SECONDS} s")


def end_switch(switch: subprocess.Popen[bytes], target: str) -> str | None:
    """Ends the switch; returns the error of its run or of its end, or None."""
    died = switch.poll()
    if died is not None:
        return f"the switch ended with status {died} during the tests"
    switch.terminate()
    try:
        status = switch.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        switch.kill()
        switch.wait()
        return f"the switch did not end within {END_SECONDS} s of SIGTERM"
    # simple_switch_grpc has no handler for SIGTERM: dying by it is how it ends.
    if status == 0 or (target == "bmv2" and status == -signal.SIGTERM):
        return None
    return f"the switch ended with status {status} on SIGTERM"


def ptf_command(target: str, tests: list[str], logs: Path, switch_pid: int) -> list[str]:
    """Command line of PTF, from this interpreter's environment."""
    beside = Path(sys.executable).parent / "ptf"
    ptf = str(beside) if beside.exists() else shutil.which("ptf")
    if ptf is None:
        raise MissingError("no `ptf` beside this python nor on PATH")
    params = {
        "target": target,
        "compiled": str(COMPILED),
        "address": f"{GRPC_ADDRESS[0]}:{GRPC_ADDRESS[1]}",
        "results": str(logs / "results.jsonl"),
        "switch_pid": str(switch_pid),
    }
    return [
        sys.executable,
        ptf,
        "--test-dir",
        str(HERE / "cases"),
        "--pypath",
        str(HERE),
        "--platform-dir",
        str(HERE / "platforms"),
        "--platform",
        "stamped_veth",
        *(word for port in PORTS for word in ("--interface", f"{port}@t{port}")),
        "--allow-user",
        "--debug",
        "info",
        "--log-file",
        str(logs / "ptf.log"),
        "--qlen",
        "100000",
        "--test-case-timeout",
        str(TEST_SECONDS),
        "--test-params",
        ";".join(f"{key}={value!r}" for key, value in params.items()),
        *tests,
    ]


def selected(tests: list[str]) -> list[str]:
    """Full names of the selected tests, asked of PTF itself."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*ptf_command("none", tests, Path(scratch), 0), "--list-test-names"]
        listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=scratch)
    if listed.returncode != 0:
        raise MissingError(f"PTF finds no such tests: {' '.join(tests)}")
    # PTF says other things on the same stream; a name is a line without a space.
    return [line for line in listed.stdout.splitlines() if line and " " not in line]


def write_junit(results: list[dict[str, str | float]], target: str, path: Path) -> None:
    """The outcomes in the form that build servers read."""
    suite = ElementTree.Element("testsuite", name=f"ptf-{target}", tests=str(len(results)))
    for result in results:
        module, _, name = str(result["test"]).partition(".")
        case = ElementTree.SubElement(suite, "testcase", classname=f"{target}.{module}", name=name)
        case.set("time", f"{float(result['seconds']):.3f}")
        kind = {"failed": "failure", "error": "error", "not run": "skipped"}
        if result["outcome"] in kind:
            found = ElementTree.SubElement(case, kind[str(result["outcome"])])
            found.text = str(result["text"])
    ElementTree.ElementTree(suite).write(path, encoding="unicode", xml_declaration=True)


def run_inside(target: str, port_driver: str, tests: list[str], logs: Path) -> int:
    """The run itself, in a namespace that holds nothing else."""
    names = selected(tests)
    try:
        # `t<port>` is PTF's end, `s<port>` the switch's.
        make_wires([(f"t{port}", f"s{port}") for port in PORTS])
    except WireError as error:
        raise MissingError(str(error)) from error
    switch_log = logs / "switch.log"
    results_file = logs / "results.jsonl"
    results_file.write_text("")
    with switch_log.open("wb") as output:
        switch = subprocess.Popen(
            switch_command(target, port_driver),
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
            cwd=logs,
        )
    trouble = None
    try:
        wait_until_ready(switch, switch_log)
        command = ptf_command(target, tests, logs, switch.pid)
        ptf_status = subprocess.run(command, cwd=logs).returncode
    finally:
        trouble = end_switch(switch, target)
    results = [json.loads(line) for line in results_file.read_text().splitlines()]
    for name in sorted(set(names) - {result["test"] for result in results}):
        text = f"PTF (status {ptf_status}) left no outcome"
        results.append({"test": name, "outcome": "error", "text": text, "seconds": 0.0})
    write_junit(results, target, logs / "junit.xml")
    (logs / "results.json").write_text(json.dumps(results, indent=1) + "\n")

    tally = dict.fromkeys(("passed", "failed", "error", "not run"), 0)
    for result in results:
        tally[result["outcome"]] += 1
        if result["outcome"] != "passed":
            last = result["text"].strip().splitlines()[-1:] or [""]
            print(f"{result['outcome']}: {result['test']}: {last[0]}")
    if trouble is not None:
        print(f"failed: {trouble}; its log is {switch_log}")
    failed = tally["failed"] + tally["error"]
    print(f"{target}: {tally['passed']} passed, {failed} failed, {tally['not run']} not run")
    return EXIT_FAILED if failed or trouble is not None else 0


def main() -> int:
    """Checks the dependencies, goes into a namespace, runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--logs",
        type=Path,
        help="where logs, junit.xml and results.json go (default build/ptf/<target>)",
    )
    parser.add_argument(
        "--port-driver",
        choices=PORT_DRIVERS,
        default=PORT_DRIVERS[0],
        help="how pacing_switch opens its ports (default %(default)s)",
    )
    parser.add_argument("words", nargs="*", metavar="[TARGET] [TEST ...]")
    arguments = parser.parse_args()
    words: list[str] = arguments.words
    target = os.environ.get("TARGET") or TARGETS[0]
    if words and words[0] in TARGETS:
        target, words = words[0], words[1:]
    if target not in TARGETS:
        print(f"unknown target {target}: one of {', '.join(TARGETS)}", file=sys.stderr)
        return EXIT_MISSING
    logs: Path = (arguments.logs or ROOT / "build" / "ptf" / target).resolve()
    logs.mkdir(parents=True, exist_ok=True)

    absent = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    absent += [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    try:
        if absent:
            raise MissingError(f"not installed: {', '.join(absent)} (see tests/ptf/README.md)")
        if target == "bmv2" and shutil.which("simple_switch_grpc") is None:
            print(
                f"not run: no simple_switch_grpc\nbmv2: 0 passed, 0 failed, "
                f"{len(selected(words))} not run"
            )
            return EXIT_NOT_RUN
        switch_command(target, arguments.port_driver)
        if arguments.inside:
            return run_inside(target, arguments.port_driver, words, logs)
    except MissingError as missing:
        print(f"cannot run: {missing}", file=sys.stderr)
        return EXIT_MISSING

    # A namespace of one's own ends with its processes; without root it takes a user namespace.
    flags = ["--net", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        flags.append("--map-root-user")
    inside = [sys.executable, __file__, "--inside", "--logs", str(logs)]
    inside += ["--port-driver", arguments.port_driver, target, *words]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(["unshare", *flags, *inside], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
