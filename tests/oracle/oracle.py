"""Writes random updates to a switch, compares each answer with the oracle, and reads all back.

    make oracle UPDATES=100000 SEED=1

It prints the number of answers of each code and the differences, as JSON. The program is `kinds`,
which has every kind of table and engine (switch/crates/p4runtime-server/tests/programs). The same
seed writes the same updates.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, rpc_status
from pacing_switch import Switch
from pacing_switch.wires import make_wires

ROOT = Path(__file__).resolve().parents[2]
for folder in ("virtual", "ptf"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

from draw import PORTS, Draw  # noqa: E402
from p4runtime_client import Client, Program  # noqa: E402
from specified import Key, Oracle  # noqa: E402
from virtual_switch import binary  # noqa: E402

PROGRAM = ROOT / "switch/crates/p4runtime-server/tests/programs/kinds"

BATCH = 24
"""Updates of the largest batch. The status of a failed write is a trailer of 8 KiB at most."""
MODES = (
    p4r.WriteRequest.CONTINUE_ON_ERROR,
    p4r.WriteRequest.ROLLBACK_ON_ERROR,
    p4r.WriteRequest.DATAPLANE_ATOMIC,
)
FRESH = 400
"""Batches between two loads of the program."""

SHOWN = 20
ANSWER_S = 60.0

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
CODES = {status.value[0]: status for status in grpc.StatusCode}


@dataclass
class Outcome:
    """The outcome of a run: updates by answer, and each difference, in words."""

    answers: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Conversation:
    """A controller, and an oracle of the answers that it must get."""

    def __init__(self, address: str, seed: int, *, wrong_size: bool = False) -> None:
        """Become primary on the switch at this address.

        With `wrong_size` the oracle takes tables for smaller than they are, and is wrong.
        """
        self._program = Program(PROGRAM.with_suffix(".p4info.txtpb"), PROGRAM.with_suffix(".json"))
        self._client = Client(address, 0, self._program)
        code = self._client.become_primary()
        assert code == 0, f"the switch has another primary controller ({code})"
        self._random = random.Random(seed)
        self._draw = Draw(self._program.p4info, self._random)
        self._known = type(self._program.p4info).FromString(
            self._program.p4info.SerializeToString()
        )
        if wrong_size:
            for table in self._known.tables:
                table.size -= 1
        self.outcome = Outcome()

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def run(self, updates: int) -> None:
        """Write this many updates; compare all answers and, after each batch, all objects."""
        written = 0
        while written < updates:
            self._client.push()
            self._oracle = Oracle(self._known, PORTS, self._everything(()))
            for _ in range(FRESH):
                batch = [self._draw.update() for _ in range(self._random.randint(1, BATCH))]
                self._batch(batch, self._random.choices(MODES, (6, 2, 2))[0])
                written += len(batch)
                if written >= updates:
                    break

    def _batch(self, batch: list[p4r.Update], mode: int) -> None:
        answers = self._write(batch, mode)
        before = self._oracle.snapshot()
        whole = mode != p4r.WriteRequest.CONTINUE_ON_ERROR
        # In a batch that must not fail in part, a server may look for errors in any order.
        at_first = [self._oracle.answers(update) if whole else set() for update in batch]
        allowed = []
        for update in batch:
            codes = self._oracle.answers(update)
            if not codes:
                self._oracle.accept(update)
            allowed.append(codes or {OK})
        if whole and any(codes != {OK} for codes in allowed):
            self._oracle.restore(before)
            if set(answers) <= {OK, ABORTED}:
                self._differ(f"no update is refused of\n{batch}")
            allowed = [
                (codes | first | {ABORTED}) - {OK}
                for codes, first in zip(allowed, at_first, strict=True)
            ]
        for update, answer, codes in zip(batch, answers, allowed, strict=True):
            self.outcome.answers[answer.name] += 1
            if answer not in codes:
                names = " or ".join(sorted(code.name for code in codes))
                self._differ(f"{answer.name} instead of {names} for\n{update}")
        self._compare()

    def _write(self, batch: list[p4r.Update], mode: int) -> list[grpc.StatusCode]:
        request = p4r.WriteRequest(
            device_id=self._client.device_id,
            election_id=self._client.election_id,
            updates=batch,
            atomicity=mode,  # type: ignore[arg-type]
        )
        try:
            self._client.stub.Write(request, timeout=ANSWER_S)
        except grpc.RpcError as error:
            return self._answers(error)
        return [OK] * len(batch)

    def _answers(self, error: grpc.RpcError) -> list[grpc.StatusCode]:
        """Return the answer to each update of a batch that failed."""
        # Pairs of key and value, which the stubs of grpc do not know.
        trailing: Any = error.trailing_metadata() or ()
        for key, value in trailing:
            if key == "grpc-status-details-bin":
                status = rpc_status.Status.FromString(value)
                found = []
                for detail in status.details:
                    one = p4r.Error()
                    detail.Unpack(one)
                    found.append(CODES[one.canonical_code])
                return found
        raise error

    def _everything(self, known: Iterable[Key]) -> Iterator[p4r.Entity]:
        """Read all objects, and of the registers the cells that are among the known objects."""
        info = self._program.p4info
        patterns = []
        for table in info.tables:
            pattern = p4r.Entity()
            pattern.table_entry.table_id = table.preamble.id
            if table.preamble.id in {each.direct_table_id for each in info.direct_counters}:
                pattern.table_entry.counter_data.SetInParent()
                pattern.table_entry.meter_config.SetInParent()
            patterns.append(pattern)
            default = p4r.Entity()
            default.CopyFrom(pattern)
            default.table_entry.is_default_action = True
            patterns.append(default)
        for kind in ("action_profile_member", "action_profile_group", "value_set_entry"):
            pattern = p4r.Entity()
            getattr(pattern, kind).SetInParent()
            patterns.append(pattern)
        for kind in ("multicast_group_entry", "clone_session_entry"):
            pattern = p4r.Entity()
            getattr(pattern.packet_replication_engine_entry, kind).SetInParent()
            patterns.append(pattern)
        for kind, *place in known:
            if kind == "register":
                cell = p4r.Entity()
                cell.register_entry.register_id, cell.register_entry.index.index = place
                patterns.append(cell)
        yield from self._client.read(*patterns)

    def _compare(self) -> None:
        found = self._oracle.read(self._everything(self._oracle.objects))
        expected = self._oracle.objects
        for key in expected.keys() | found.keys():
            if found.get(key) != expected.get(key):
                self._differ(f"{key} is\n{found.get(key)}instead of\n{expected.get(key)}")
        if found != expected:
            # One difference is reported once.
            self._oracle.restore(found)

    def _differ(self, text: str) -> None:
        self.outcome.differences.append(text)


def main() -> None:
    """Start a switch in this network namespace, which is the caller's own, and write to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="that the switch runs in")
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--wrong-size", action="store_true", help="have the oracle take tables for smaller"
    )
    options = parser.parse_args()
    make_wires((f"far{port}", f"port{port}") for port in PORTS)
    ports = {port: f"port{port}" for port in PORTS}
    with Switch(ports=ports, folder=options.folder, binary=binary()) as switch:
        conversation = Conversation(
            switch.grpc_address, options.seed, wrong_size=options.wrong_size
        )
        try:
            conversation.run(options.updates)
        finally:
            conversation.close()
    outcome = conversation.outcome
    told = {"answers": outcome.answers, "differences": outcome.differences[:SHOWN]}
    json.dump(told | {"found": len(outcome.differences)}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
