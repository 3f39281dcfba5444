"""The contract's properties hold for any arrivals."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pacing_model import (
    FCS_BYTES,
    Arrive,
    ClassConfig,
    Event,
    Packet,
    PortConfig,
    Scheduler,
    SetClass,
    Stall,
    q24,
    run,
)

# The same examples every time, and nothing that depends on how busy the machine is.
repeatable = settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

CLASSES = range(4)
RATES_BPS = st.sampled_from([8_000, 10_000_000, 500_000_000, 930_000_000, 99_999_999_999]) | (
    st.integers(1_000_000, 2_000_000_000)
)


def class_configs(class_id: int) -> st.SearchStrategy[ClassConfig]:
    """A class, paced more often than not."""
    static = st.builds(
        ClassConfig,
        st.just(class_id),
        st.just("static"),
        RATES_BPS,
        st.sampled_from([1_000, 6_000, 1 << 20]),
        st.sampled_from([0, 1, 500, 24_288, 10**6]),
    )
    return static | static | st.just(ClassConfig(class_id, "unpaced"))


PORTS = st.builds(
    PortConfig,
    st.none() | st.sampled_from([500_000_000, 10**9, 333_333_333, 10**11]),
    st.sampled_from(["layer2", "wire"]),
    st.sampled_from([1_000, 5_000, 1 << 20]),
)


@st.composite
def event_lists(draw: st.DrawFn, changes: bool = True, stalls: bool = True) -> list[Event]:
    """Events in order of time."""
    now_ns = draw(st.sampled_from([0, 1 << 55]))
    events: list[Event] = []
    kinds = ["packet"] * 12 + ["set_class"] * changes + ["stall"] * stalls
    for number in range(draw(st.integers(1, 50))):
        now_ns += draw(st.sampled_from([0, 0, 1]) | st.integers(0, 40_000))
        class_id = draw(st.sampled_from(CLASSES))
        match draw(st.sampled_from(kinds)):
            case "packet":
                length_bytes = draw(st.sampled_from([14, 60, 1514]) | st.integers(14, 9_018))
                events.append(Arrive(now_ns, Packet(number, class_id, length_bytes)))
            case "set_class":
                events.append(SetClass(now_ns, draw(class_configs(class_id))))
            case _:
                events.append(Stall(now_ns, now_ns + draw(st.integers(0, 500_000))))
    return events


CLASS_LISTS = st.tuples(*(class_configs(class_id) for class_id in CLASSES))


def arrivals(events: list[Event]) -> list[Arrive]:
    """The arrivals among the events."""
    return [event for event in events if isinstance(event, Arrive)]


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_every_packet_departs_or_is_dropped(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    result = run(port, classes, events)
    ids = [d.packet.id for d in result.departures] + [d.packet.id for d in result.drops]
    assert sorted(ids) == [arrival.packet.id for arrival in arrivals(events)]


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_rate_is_never_exceeded(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    """The promise of the stall rule.

    Between any two starts of a class lies the time of all frames from the first to before the
    second, less the allowance: so in an interval it sends its rate's bytes, one frame, and the
    allowance's bytes at most.
    """
    result = run(port, classes, events)
    for class_id in CLASSES:
        mine = [d for d in result.departures if d.paced and d.packet.class_id == class_id]
        for first in range(len(mine)):
            cost_q24 = 0
            for last in range(first + 1, len(mine)):
                cost_q24 += mine[last - 1].cost_q24
                elapsed_q24 = mine[last].start_q24 - mine[first].start_q24
                assert elapsed_q24 >= cost_q24 - q24(mine[first].allowance_ns)


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_departure_times_never_exceed_the_rate_at_all(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    """Departure times have no allowance; they are rounded up by less than a nanosecond."""
    result = run(port, classes, events)
    for class_id in CLASSES:
        mine = [d for d in result.departures if d.paced and d.packet.class_id == class_id]
        cost_q24 = 0
        for before, after in pairwise(mine):
            cost_q24 += before.cost_q24
            assert q24(after.departure_ns - mine[0].departure_ns + 1) > cost_q24


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_order_within_class_and_within_fifo(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    result = run(port, classes, events)
    for class_id in CLASSES:
        mine = [d for d in result.departures if d.paced and d.packet.class_id == class_id]
        assert mine == sorted(mine, key=lambda d: d.packet.id)
    fifo = [d for d in result.departures if not d.paced]
    assert fifo == sorted(fifo, key=lambda d: d.packet.id)


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_one_frame_at_a_time_none_early(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    result = run(port, classes, events)
    for departure in result.departures:
        assert departure.arrival_ns <= departure.departure_ns <= departure.start_ns
        assert departure.eligible_q24 <= departure.start_q24
    for before, after in pairwise(result.departures):
        line_q24 = port.line_time_q24(before.packet.length_bytes)
        assert after.start_q24 >= before.start_q24 + line_q24


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_unpaced_delays_paced_by_less_than_the_frame_on_the_wire(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    """No unpaced packet starts while a paced one waits that may go.

    So only one that started before can be in its way. A packet that arrives at the very instant
    of a start arrives after it.
    """
    result = run(port, classes, events)
    for unpaced in (d for d in result.departures if not d.paced):
        for paced in (d for d in result.departures if d.paced):
            waits_from_q24 = max(paced.eligible_q24, q24(paced.arrival_ns) + 1)
            assert not waits_from_q24 <= unpaced.start_q24 < paced.start_q24


@repeatable
@given(PORTS, CLASS_LISTS, event_lists(changes=False, stalls=False))
def test_the_line_does_not_idle_while_a_packet_may_go(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    result = run(port, classes, events)
    free_q24 = 0
    for index, departure in enumerate(result.departures):
        earliest_q24 = min(later.eligible_q24 for later in result.departures[index:])
        assert departure.start_q24 == max(free_q24, earliest_q24)
        free_q24 = departure.start_q24 + port.line_time_q24(departure.packet.length_bytes)


@repeatable
@given(class_configs(1), event_lists(changes=False, stalls=False))
def test_alone_and_on_time_the_stall_rule_never_binds(
    config: ClassConfig, events: list[Event]
) -> None:
    """One class, no contention, virtual time: packets start at D rounded up.

    That is with an allowance of at least 1 ns; with 0, rounding up costs up to a nanosecond, once.
    """
    one = [event for event in arrivals(events) if event.packet.class_id == 1]
    result = run(PortConfig(None, "wire", 1 << 30), [config], one)
    slack_ns = 1 if config.mode == "static" and config.allowance_ns == 0 else 0
    for departure in result.departures:
        assert 0 <= departure.start_ns - departure.departure_ns <= slack_ns


@repeatable
@given(PORTS, event_lists(changes=False))
def test_stalls_do_not_touch_a_port_without_paced_packets(
    port: PortConfig, events: list[Event]
) -> None:
    classes = [ClassConfig(class_id, "unpaced") for class_id in CLASSES]
    calm = [event for event in events if not isinstance(event, Stall)]
    stalled_run, calm_run = run(port, classes, events), run(port, classes, calm)
    assert stalled_run.departures == calm_run.departures
    assert stalled_run.drops == calm_run.drops


@repeatable
@given(PORTS, CLASS_LISTS, event_lists())
def test_limits_hold_and_drops_are_needed(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    """No backlog above its limit after any event; and no drop of a packet that would have fit."""
    scheduler = Scheduler(port, classes)
    for event in events:
        dropped = len(scheduler.drops)
        scheduler.handle(event)
        if not isinstance(event, Arrive):
            continue
        state = scheduler.classes[event.packet.class_id]
        if state.config.mode == "unpaced":
            backlog = sum(waiting.packet.length_bytes + FCS_BYTES for waiting in scheduler.fifo)
            limit = port.fifo_bytes
        else:
            backlog, limit = state.backlog_bytes(), state.config.limit_bytes
        if len(scheduler.drops) > dropped:
            assert backlog + event.packet.length_bytes + FCS_BYTES > limit
        else:
            assert backlog <= limit


FILLED_PORTS = st.builds(
    PortConfig,
    st.sampled_from([100_000_000, 333_333_333]),
    st.sampled_from(["layer2", "wire"]),
    st.sampled_from([5_000, 1 << 20]),
    st.sampled_from([60, 100, 1514, 9_216]),
)
FAST_CLASSES = st.tuples(
    *(
        st.builds(
            ClassConfig,
            st.just(class_id),
            st.sampled_from(["static", "static", "unpaced"]),
            st.integers(20_000_000, 400_000_000),
            st.just(1 << 20),
            st.sampled_from([0, 1, 24_288, 10**6]),
        )
        for class_id in CLASSES
    )
)


@repeatable
@given(FILLED_PORTS, FAST_CLASSES, event_lists(changes=False, stalls=False))
def test_gap_frames_fill_the_line_while_a_paced_packet_waits(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    result = run(port, classes, events)
    paced = [d for d in result.departures if d.paced]
    taken = [(d.start_q24, d.packet.length_bytes) for d in result.departures]
    taken += [(frame.start_q24, frame.length_bytes) for frame in result.gap_frames]
    taken.sort()
    for (start_q24, length_bytes), (next_q24, _) in pairwise(taken):
        end_q24 = start_q24 + port.line_time_q24(length_bytes)
        assert end_q24 <= next_q24
        if end_q24 < next_q24:  # idle: then nothing waited
            assert not any(q24(d.arrival_ns) < next_q24 <= d.start_q24 for d in paced)
    for frame in result.gap_frames:
        assert 60 <= frame.length_bytes <= (port.gap_frame_max_bytes or 0)
        assert any(q24(d.arrival_ns) <= frame.start_q24 < d.start_q24 for d in paced)
    for departure in paced:
        assert departure.start_q24 >= departure.eligible_q24 >= q24(departure.departure_ns)


@repeatable
@given(FILLED_PORTS, FAST_CLASSES, event_lists(changes=False, stalls=False))
def test_gap_frames_make_no_packet_later_than_the_longest_of_them(
    port: PortConfig, classes: tuple[ClassConfig, ...], events: list[Event]
) -> None:
    """Cases of ports without unpaced packets and with classes whose allowance never binds."""
    never_late = [replace(one, mode="static", allowance_ns=10**12) for one in classes]
    filled = run(port, never_late, events)
    accounted = run(replace(port, gap_frame_max_bytes=None), never_late, events)
    assert [d.packet.id for d in filled.departures] == [d.packet.id for d in accounted.departures]
    longest = max((frame.length_bytes for frame in filled.gap_frames), default=0)
    for one, other in zip(filled.departures, accounted.departures, strict=True):
        assert 0 <= one.start_q24 - other.start_q24 <= port.line_time_q24(longest)


def token_bucket_ns(config: ClassConfig, packets: list[Arrive]) -> list[int]:
    """The departures from a bucket that is filled at ticks; tokens are time at the rate.

    It holds one tick's tokens. At a tick packets go while there are any.
    """
    full_q24 = q24(config.tick_ns)
    tokens_q24, now_ns = 0, 0
    left = []
    for packet in packets:
        while now_ns < packet.at_ns or tokens_q24 <= 0:
            now_ns += config.tick_ns
            tokens_q24 = min(full_q24, tokens_q24 + full_q24)
        left.append(now_ns)
        tokens_q24 -= config.cost_q24(packet.packet.length_bytes)
    return left


@repeatable
@given(
    st.integers(1, 10_000),
    st.integers(1_000_000, 2_000_000_000),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 1, 1_000, 999_999, 10_000_000]), st.integers(14, 1514)),
        min_size=1,
        max_size=60,
    ),
)
def test_a_timer_is_a_token_bucket_of_one_tick(
    ticks_per_second: int, rate_bps: int, packets: list[tuple[int, int]]
) -> None:
    tick_ns = round(10**9 / ticks_per_second)
    config = ClassConfig(1, "timer", rate_bps, 1 << 30, 0, tick_ns=tick_ns)
    at_ns = accumulate((gap_ns for gap_ns, _ in packets), initial=1)
    events = [
        Arrive(when_ns, Packet(n, 1, length_bytes))
        for n, (when_ns, (_, length_bytes)) in enumerate(zip(at_ns, packets, strict=False))
    ]
    result = run(PortConfig(None, "wire", 1), [config], events)
    assert [departure.start_ns for departure in result.departures] == token_bucket_ns(
        config, events
    )
