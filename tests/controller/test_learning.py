"""Which packets teach the controller a station."""

from pacer_controller.entries import FORWARD, SOURCES
from pacer_controller.learning import Learning, forward_row, source_row
from pacer_controller.rows import Change, Op, Row

A = 0x020000000001
B = 0x020000000002


def frame(source: int) -> bytes:
    return b"\xff" * 6 + source.to_bytes(6, "big") + b"\x08\x00" + bytes(46)


def learn(learning: Learning, source: int, port: int) -> list[Change]:
    changes = learning.packet(frame(source), port)
    if changes:
        learning.learned(source, port)
    return changes


def test_new_station() -> None:
    learning = Learning(capacity=10)
    assert learn(learning, A, 1) == [
        Change(Op.INSERT, forward_row(A, 1)),
        Change(Op.INSERT, source_row(A, 1)),
    ]
    assert learn(learning, A, 1) == []
    assert learning.counters.learned == 1
    assert learning.counters.repeated == 1


def test_moved_station_leaves_nothing_behind() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1)
    assert learn(learning, A, 2) == [
        Change(Op.MODIFY, forward_row(A, 2)),
        Change(Op.INSERT, source_row(A, 2)),
        Change(Op.DELETE, source_row(A, 1)),
    ]
    assert learning.ports == {A: 2}
    assert learning.counters.moved == 1


def test_refused_write_is_not_learned() -> None:
    learning = Learning(capacity=10)
    assert learning.packet(frame(A), 1)
    assert learning.packet(frame(A), 1)
    assert learning.ports == {}


def test_full_table_is_counted_and_moves_still_work() -> None:
    learning = Learning(capacity=1)
    learn(learning, A, 1)
    assert learn(learning, B, 1) == []
    assert learning.counters.table_full == 1
    assert len(learn(learning, A, 2)) == 3


def test_useless_sources_are_ignored() -> None:
    learning = Learning(capacity=10)
    for payload in (b"", b"\xff" * 13, frame(0), frame(0x010000000001), frame(2**48 - 1)):
        assert learning.packet(payload, 1) == []
    assert learning.counters.ignored == 5


def test_pinned_station_stays() -> None:
    learning = Learning(capacity=10, pinned={A: 1})
    mends = learning.adopt([])
    assert {(c.op, c.row.table) for c in mends} == {(Op.INSERT, FORWARD), (Op.INSERT, SOURCES)}
    assert learn(learning, A, 2) == []
    assert learning.counters.pinned == 1


def test_adopting_mends_contradictions() -> None:
    learning = Learning(capacity=10)
    present: list[Row] = [forward_row(A, 1), source_row(A, 2), source_row(B, 1)]
    mends = learning.adopt(present)
    assert set(mends) == {
        Change(Op.INSERT, source_row(A, 1)),
        Change(Op.DELETE, source_row(A, 2)),
        Change(Op.DELETE, source_row(B, 1)),
    }
    assert learning.ports == {A: 1}


def test_adopting_what_is_right_changes_nothing() -> None:
    learning = Learning(capacity=10)
    assert learning.adopt([forward_row(A, 1), source_row(A, 1)]) == []
