#!/usr/bin/env python3
"""The same random tables and packets through pacing_switch and stock simple_switch.

    differential.py [--packets N] [--seed S] [--out FILE] [--only NAME] [--programs DIR ...]
    differential.py --record NAME ...   writes a small case of each as a test into programs/

The programs are those of tests/conformance, and with --programs every compiled program (.json)
in DIR. Each runs with several random tables; what the ports send must be equal, byte for byte and
in order (as a multiset where packets go round, or copies of egress overtake). A difference is
reduced to the fewest packets and entries that show it and printed as STF.

Where simple_switch refuses a case or ends, the halves of its packets are tried, down to an eighth.
The packets that are left are counted as not compared, and are no difference.

Exit status: 0 no difference; 1 a difference; 2 wrong usage. Without simple_switch on PATH it says
"not run", and 0.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONFORMANCE = HERE.parent / "conformance"
sys.path.insert(0, str(CONFORMANCE))
sys.path.insert(0, str(HERE.parent / "virtual"))

import simple_switch  # noqa: E402
import stf_text  # noqa: E402
from entries import PORTS, EntryMaker  # noqa: E402
from packets import PacketMaker  # noqa: E402
from switches import (  # noqa: E402
    Case,
    RunError,
    Sent,
    StockError,
    progress,
    run_bmv2,
    run_pacing,
    version,
)
from values import Values  # noqa: E402

COMPILED = CONFORMANCE / "compiled"
PROGRAMS = CONFORMANCE / "programs"
# Programs of tests/conformance that cannot be compared, and why.
EXCLUDED = {
    "stacks": "indexes a stack past its end, where simple_switch ends",
    "empties": "has a key of no bits, which simple_switch refuses",
    "last_header": "assigns the last element of a stack, where simple_switch ends",
    "late": "reads a header that short packets lack: simple_switch has an earlier packet's there",
    "priorities": "gives packets priorities, where simple_switch needs --priority-queues",
    "queue_depth": "what waits for a port depends on time",
}
_PACKETS_PER_TABLES = 3000
# How often the packets of a case on which simple_switch ends are halved.
_HALVINGS = 3
_REDUCTIONS_MAX = 60
_RECORDED_PACKETS = 24
_RECORDED_TRIES = 12
# Names in a program's source that make groups and sessions matter to it.
_USES = {"multicast_group_entries": "mcast_grp", "clone_session_entries": "clone"}


@dataclass
class Result:
    """The result for a program."""

    program: str
    packets: int = 0
    sent: int = 0
    entries: int = 0
    differences: int = 0
    not_compared: int = 0
    why_not: str = ""
    seeds: list[str] = field(default_factory=list)


def add_choice(arguments: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose programs and cases."""
    arguments.add_argument("--seed", default="1", help="any text; the same gives the same cases")
    arguments.add_argument("--only", default="", help="programs whose name contains this")
    arguments.add_argument(
        "--programs",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="the compiled programs in this folder, too",
    )


def chosen(given: argparse.Namespace) -> list[Path]:
    """The compiled programs that the arguments choose."""
    files = [path for path in sorted(COMPILED.glob("*.json")) if path.stem != "manifest"]
    for folder in given.programs:
        files += sorted(folder.glob("*.json"))
    return [path for path in files if given.only in path.stem and path.stem not in EXCLUDED]


def goes_round(compiled: Path) -> bool:
    """Whether the order of a port's frames is undefined.

    Packets sent round, and clones of egress, overtake others.
    """
    text = compiled.read_text().replace(" ", "")
    operations = ("resubmit", "recirculate", "clone_egress_pkt_to_egress")
    return any(f'"op":"{name}"' in text for name in operations)


def draw_case(compiled: Path, seed: str, count: int) -> Case:
    """The case that a seed stands for."""
    draw = random.Random(seed)
    values = Values(compiled, draw)
    runtime = EntryMaker(compiled, draw, values).runtime()
    maker = PacketMaker(compiled, draw, values)
    packets = [(draw.choice(PORTS), maker.packet()) for _ in range(count - count // 8)]
    case = Case(compiled, runtime, tuple(packets))
    # Frames that left the switch come in again: their checksums are right.
    with tempfile.TemporaryDirectory() as folder:
        left = [frame for frames in run_pacing(case, Path(folder)).values() for frame in frames]
    while len(packets) < count:
        again = draw.choice(left) if left else maker.packet()
        packets.append((draw.choice(PORTS), again or b"\0"))
    return replace(case, packets=tuple(packets))


def run_both(case: Case) -> tuple[Sent, Sent]:
    """The frames of pacing_switch and those of simple_switch."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        return run_pacing(case, Path(one)), run_bmv2(case, Path(other))


def differing(mine: Sent, stock: Sent, ordered: bool) -> int:
    """The number of frames that differ."""
    count = 0
    for port in PORTS:
        ours, theirs = mine[port], stock[port]
        if ours == theirs:
            continue
        if ordered and len(ours) == len(theirs):
            count += sum(a != b for a, b in zip(ours, theirs, strict=True))
        else:
            left, right = Counter(ours), Counter(theirs)
            different = max((left - right).total(), (right - left).total())
            count += different or int(ordered)
    return count


def shows(case: Case) -> bool:
    """Whether the case shows a difference."""
    try:
        mine, stock = run_both(case)
    except RunError:
        return False
    return differing(mine, stock, not goes_round(case.compiled)) > 0


def reduce(case: Case) -> Case:
    """The fewest packets, then entries, that still show the difference, within a limit of tries."""
    left = _REDUCTIONS_MAX

    def still(smaller: Case) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and shows(smaller)

    def fewest_packets(now: Case) -> Case:
        part = max(1, len(now.packets) // 2)
        while left > 0:
            for at in range(0, len(now.packets), part):
                rest = now.packets[:at] + now.packets[at + part :]
                if rest and still(replace(now, packets=rest)):
                    now = replace(now, packets=rest)
                    break
            else:
                if part == 1:
                    break
                part //= 2
            part = max(1, min(part, len(now.packets) // 2))
        return now

    case = fewest_packets(case)
    for kind in ("table_entries", "clone_session_entries", "multicast_group_entries"):
        part = max(1, len(case.runtime[kind]) // 2)
        while part and left > 0:
            entries = case.runtime[kind]
            for at in range(0, len(entries), part):
                fewer = replace(
                    case, runtime=case.runtime | {kind: entries[:at] + entries[at + part :]}
                )
                if still(fewer):
                    case = fewer
                    break
            else:
                part //= 2
    return case


def report(case: Case, seed: str) -> None:
    """Prints a reduced case: the frames of stock simple_switch are the expected ones."""
    mine, stock = run_both(case)
    print(f"# {case.compiled.stem}, seed {seed}: expected is what simple_switch sends")
    print(stf_text.text(case, stock))
    for port in PORTS:
        for frame in mine[port] if mine[port] != stock[port] else ():
            print(f"# pacing_switch sends: expect {port} {frame.hex()}$")
    sys.stdout.flush()


def runs(
    case: Case, result: Result, halvings: int
) -> Iterator[tuple[Case, tuple[Sent, Sent] | RunError]]:
    """Runs a case; where simple_switch ends, its halves.

    Counts in `result` what is not compared.
    """
    try:
        yield case, run_both(case)
    except StockError as error:
        middle = len(case.packets) // 2
        if halvings and middle:
            for packets in (case.packets[:middle], case.packets[middle:]):
                yield from runs(replace(case, packets=packets), result, halvings - 1)
        else:
            result.not_compared += len(case.packets)
            result.why_not = str(error)
    except RunError as error:
        yield case, error


def compare(compiled: Path, packets: int, seed: str, reducing: bool) -> Result:
    """Runs a program with one table contents after another."""
    result = Result(compiled.stem)
    ordered = not goes_round(compiled)
    number = 0
    while result.packets < packets:
        count = min(_PACKETS_PER_TABLES, packets - result.packets)
        case_seed = f"{seed}/{compiled.stem}/{number}"
        case = draw_case(compiled, case_seed, count)
        number += 1
        result.packets += count
        result.entries += len(case.runtime["table_entries"])
        for part, run in runs(case, result, _HALVINGS):
            if isinstance(run, RunError):
                print(f"# {compiled.stem}, seed {case_seed}: {run}", flush=True)
                result.differences += 1
                result.seeds.append(case_seed)
                continue
            mine, stock = run
            result.sent += sum(len(frames) for frames in stock.values())
            different = differing(mine, stock, ordered)
            if different:
                result.differences += different
                result.seeds.append(case_seed)
                print(f"# {compiled.stem}, seed {case_seed}: {different} frames differ", flush=True)
                if reducing and len(result.seeds) == 1:
                    report(reduce(part), case_seed)
        progress(f"{compiled.stem}: {result.packets} of {packets} packets")
    return result


def _recordable(compiled: Path, seed: str) -> tuple[Case, Sent]:
    """A small case without unused parts, and the frames that simple_switch sends."""
    case = draw_case(compiled, seed, _RECORDED_PACKETS)
    source = (PROGRAMS / f"{compiled.stem}.p4").read_text()
    unused: dict[str, list[object]] = {
        kind: [] for kind, word in _USES.items() if word not in source
    }
    case = replace(case, runtime=case.runtime | unused)
    with tempfile.TemporaryDirectory() as folder:
        return case, run_bmv2(case, Path(folder))


def record(names: list[str], seed: str) -> None:
    """Writes a small case of each program beside it, with the frames of simple_switch."""
    for name in names:
        compiled = COMPILED / f"{name}.json"
        tried = [_recordable(compiled, f"{seed}/{name}/{n}") for n in range(_RECORDED_TRIES)]
        # More frames that leave test more.
        case, sent = max(tried, key=lambda pair: len(set().union(*pair[1].values())))
        head = f"# Recorded from {simple_switch.SWITCH} {version()}: tests/differential\n"
        (PROGRAMS / f"{name}.stf").write_text(head + stf_text.packets(case, sent))
        (PROGRAMS / f"{name}.runtime.json").write_text(stf_text.runtime(case))


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--packets", type=int, default=100_000, help="in all (default 100000)")
    add_choice(arguments)
    arguments.add_argument("--out", type=Path, help="write the table as JSON")
    arguments.add_argument("--no-reduce", action="store_true", help="only count differences")
    arguments.add_argument("--record", nargs="+", metavar="NAME")
    given = arguments.parse_args()
    if not simple_switch.available():
        print(f"not run: no {simple_switch.SWITCH} and {simple_switch.CLI} on PATH")
        return 0
    if given.record:
        record(given.record, given.seed)
        return 0
    files = chosen(given)
    if not files or given.packets < len(files):
        arguments.error("no programs, or less than a packet for each")
    began = time.monotonic()
    results = []
    for index, compiled in enumerate(files):
        share = given.packets * (index + 1) // len(files) - given.packets * index // len(files)
        result = compare(compiled, share, given.seed, not given.no_reduce)
        results.append(result)
        print(
            f"{result.program:20} {result.packets:7} packets in, {result.sent:7} out, "
            f"{result.entries:5} entries, {result.differences} differences",
            flush=True,
        )
        if result.not_compared:
            print(f"# {result.not_compared} packets not compared: {result.why_not}", flush=True)
    total = sum(result.packets for result in results)
    different = sum(result.differences for result in results)
    not_compared = sum(result.not_compared for result in results)
    seconds = time.monotonic() - began
    print(
        f"{different} differences in {total} packets over {len(results)} programs, "
        f"{not_compared} packets not compared, "
        f"seed {given.seed}, {simple_switch.SWITCH} {version()}, {seconds:.0f} s"
    )
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        rows = [vars(result) for result in results]
        whole = {
            "seed": given.seed,
            "bmv2": version(),
            "packets": total,
            "programs": len(results),
            "differences": different,
            "not_compared": not_compared,
            "rows": rows,
            "excluded": EXCLUDED,
        }
        given.out.write_text(json.dumps(whole, indent=1) + "\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
