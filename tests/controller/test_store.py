"""Desired state on disk."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_controller.migrations import MIGRATIONS
from pacer_controller.records import ClassRecord, FlowRecord, MeterRecord, Record, ResourceChange
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec
from pacer_controller.store import Store, StoreError

VIDEO = ClassRecord("video", 1, ClassSpec.model_validate({"rate": "500Mbit", "port": 2}))
FLOW = FlowRecord(
    "web",
    2,
    FlowSpec.model_validate(
        {
            "match": {"src": "10.0.0.0/8", "protocol": "tcp", "ether_type": "ipv4"},
            "rate": 12_345_678,
            "meter": {"cir": "8Mbit", "yellow_dscp": 3},
        }
    ),
)


METER = MeterRecord("gold", MeterSpec.model_validate({"cir": "5Mbit"}))


def put(record: Record, switch: str = "s1") -> ResourceChange:
    kind = type(record).__name__.removesuffix("Record").lower()
    return ResourceChange(switch, kind, record.name, None, record)


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with Store(path) as store:
        store.write([put(VIDEO), put(FLOW), put(METER)])
        store.write([put(VIDEO, "s2")])
        store.write([put(VIDEO, "s2").reversed()])
    with Store(path) as store:
        desired = store.desired("s1")
        assert desired.classes == {"video": VIDEO}
        assert desired.flows == {"web": FLOW}
        assert desired.meters == {"gold": METER}
        assert desired.used == {1, 2}
        assert store.desired("s2").classes == {}


def test_a_killed_process_has_kept_what_it_said(tmp_path: Path) -> None:
    program = """
import sys
from pacer_controller.schemas import ClassSpec
from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.store import Store
store = Store(sys.argv[1])
for index in range(1, 1000):
    spec = ClassSpec.model_validate({"rate": 8000 + index})
    record = ClassRecord(f"c{index}", index, spec)
    store.write([ResourceChange("s1", "class", record.name, None, record)])
    print(index, flush=True)
"""
    path = str(tmp_path / "state")
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = 0
        while said < 50:
            said = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        said = max([said, *map(int, child.stdout.read().split())])
    with Store(path) as store:
        assert store.desired("s1").classes.keys() >= {f"c{index}" for index in range(1, said + 1)}


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with Store(path) as store:
        store.write([put(VIDEO)])
        with pytest.raises(StoreError, match="locked"):
            Store(path)


def test_not_a_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("this is no database, and long enough to be looked at" * 10)
    with pytest.raises(StoreError, match="not a database"):
        Store(str(path))


def test_state_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="newer version"):
        Store(str(path))


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="directory does not exist"):
        Store(str(tmp_path / "none" / "state"))


def test_state_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with sqlite3.connect(path) as database:
        database.executescript(MIGRATIONS[0])
        database.execute("INSERT INTO classes VALUES ('s1', 'video', 3, '{\"rate\": \"500Mbit\"}')")
        database.execute(
            "INSERT INTO flows VALUES ('s1', 'f', 4, '{\"match\": {}, \"rate\": 8000}')"
        )
        database.execute("PRAGMA user_version = 1")
    database.close()
    with Store(str(path)) as store:
        desired = store.desired("s1")
        assert desired.classes["video"].spec.rate == 500_000_000
        assert desired.used == {3, 4}
        assert store.next_revision() > desired.classes["video"].revision


def test_what_is_taken_back_was_never_there(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    event: dict[str, object] = {"time": "2026-01-31T12:00:00Z", "kind": "change", "switch": "s1"}
    event |= {"message": "m", "data": {}}
    with Store(path) as store:
        store.write([put(VIDEO)])
        faster = ClassRecord("video", 1, ClassSpec.model_validate({"rate": "600Mbit"}))
        changes = [ResourceChange("s1", "class", "video", VIDEO, faster), put(FLOW)]
        numbers = store.write(changes, [event])
        store.take_back(changes, numbers)
    with Store(path) as store:
        assert store.desired("s1").classes == {"video": VIDEO}
        assert store.desired("s1").flows == {}
        assert store.events() == []
