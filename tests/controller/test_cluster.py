"""Several controllers on etcd with real switches: writes, takeovers, and no lost changes.

Among them the counter-example by which the former pair lost acknowledged writes, and its variants.
"""

import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from etcd_members import MISSING, Members
from relay import Relay
from test_live import entries_of

from controller_harness import Controller, Network, Switch, eventually
from pacer_controller import rates
from pacer_controller.cli import render

pytestmark = pytest.mark.skipif(MISSING, reason="not run: no etcd (Debian's etcd-server)")

Start = Callable[..., Controller]
LEASE_S = 3.0
TAKEOVER_S = 2.0
"""Longest time from the end of a lease until another controller drives the switch."""


@pytest.fixture(scope="module")
def members(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Run a cluster of one member, beside the switches."""
    made = Members(tmp_path_factory.mktemp("etcd"))
    made.start()
    yield made
    made.close()


_prefixes = itertools.count()


@pytest.fixture
def url(members: Members) -> str:
    """Return the URL of an empty store."""
    return members.url(f"/cluster{next(_prefixes)}")


def put_switch(controller: Controller, name: str, address: str) -> None:
    made = controller.put(f"/v1/switches/{name}", {"kind": "p4runtime", "address": address})
    assert made.status_code in (200, 201), made.text


def everywhere(controllers: list[Controller], state: str = "connected", name: str = "s1") -> None:
    def check(one: Controller) -> bool:
        return bool(one.get(f"/v1/switches/{name}")["state"] == state)

    for one in controllers:
        eventually(partial(check, one), f"{name} is {state} at {one.url}")


def driver_of(controllers: list[Controller], name: str = "s1") -> Controller:
    """Return the controller that drives a switch, once one does."""

    def find() -> Controller | None:
        driven = controllers[0].get("/v1/store")["driven"].get(name)
        names = {one.get("/v1/store")["controller"]: one for one in controllers}
        return names.get(driven)

    found = eventually(find, "somebody drives the switch")
    assert isinstance(found, Controller)
    return found


def primaries(controllers: list[Controller], name: str = "s1") -> int:
    views = [one.get(f"/v1/switches/{name}") for one in controllers]
    return sum(view["role"] == "primary" for view in views)


def put_class(controller: Controller, name: str, rate: int = 10**6, switch: str = "s1") -> Any:
    made = controller.put(f"/v1/switches/{switch}/classes/{name}", {"rate": rate})
    assert made.status_code in (200, 201), made.text
    return made.json()


def applied(controllers: list[Controller], names: set[str], switch: str = "s1") -> None:
    """Wait until every controller says that these classes, and no others, are on the switch."""

    def check(one: Controller) -> bool:
        found = one.get(f"/v1/switches/{switch}/classes?limit=1000")["classes"]
        return {c["name"] for c in found} == names and all(c["state"] == "applied" for c in found)

    for one in controllers:
        eventually(partial(check, one), f"{len(names)} classes at {one.url}")


def test_any_controller_takes_changes_and_one_writes(
    start_controller: Start, switch: Switch, url: str
) -> None:
    three = [start_controller("--store", url) for _ in range(3)]
    put_switch(three[0], "s1", switch.address)
    everywhere(three)
    for number, one in enumerate(three):
        put_class(one, f"c{number}")
    applied(three, {"c0", "c1", "c2"})
    assert primaries(three) == 1
    assert len(entries_of(switch, "classes")) == 3
    # The same revision everywhere, so a condition of one answer holds at another controller.
    tags = {one.http.get("/v1/switches/s1/classes/c0").headers["etag"] for one in three}
    assert len(tags) == 1
    (tag,) = tags
    path = "/v1/switches/s1/classes/c0"
    first = three[1].http.put(path, json={"rate": 5_000_000}, headers={"If-Match": tag})
    assert first.status_code == 200
    stale = three[2].http.put(path, json={"rate": 6_000_000}, headers={"If-Match": tag})
    assert stale.status_code == 412
    # Events are the same, with the same numbers, in the same order.
    lists = [
        [event["id"] for event in one.get("/v1/events?kind=change&limit=100")["events"]]
        for one in three
    ]
    assert lists[0] == lists[1] == lists[2] == sorted(lists[0])
    # A switch may connect to several, so its events say to which.
    found = three[0].get("/v1/events?kind=switch-state&limit=100")["events"]
    told = {one["data"]["controller"]: one for one in found if one["data"]["to"] == "connected"}
    driver = three[0].get("/v1/store")["driven"]["s1"]
    text = f"switch s1 is connected  (controller {driver})"
    assert render.event(told[driver]).plain.endswith(text)


def test_controllers_change_one_switch_side_by_side(
    start_controller: Start, switch: Switch, url: str
) -> None:
    """No change is refused or lost because of another controller's to the same switch."""
    three = [start_controller("--store", url) for _ in range(3)]
    put_switch(three[0], "s1", switch.address)
    everywhere(three)
    names = [f"c{n}" for n in range(12)]
    for name in names:
        put_class(three[0], name)
    applied(three, set(names))

    def change(number: int) -> None:
        # Some classes are changed by two controllers.
        mine = names[4 * number :] + names[: 4 * number]
        for step in range(30):
            put_class(three[number], mine[step % 5], 10**6 * (2 + step))

    with ThreadPoolExecutor(len(three)) as pool:
        list(pool.map(change, range(len(three))))
    applied(three, set(names))
    seen = [
        {
            c["name"]: (c["rate_bps"], c["revision"])
            for c in one.get("/v1/switches/s1/classes")["classes"]
        }
        for one in three
    ]
    assert seen[0] == seen[1] == seen[2]
    costs = sorted(rates.time_per_byte_q24(rate_bps) for rate_bps, _ in seen[0].values())
    assert sorted(row["time_per_byte_q24"] for row in entries_of(switch, "classes")) == costs


def test_a_change_to_what_a_controller_believes_is_there_is_made_if_it_is_not(
    start_controller: Start, url: str
) -> None:
    """A controller that has not been told of another's change yet must not answer "unchanged"."""
    two = [start_controller("--store", url) for _ in range(2)]
    put_switch(two[0], "s1", "127.0.0.1:1")
    eventually(lambda: two[1].get("/v1/switches")["total"] == 1, "both know the switch")
    put_class(two[0], "c", 10**6)
    for _ in range(30):
        put_class(two[1], "c", 2 * 10**6)
        put_class(two[0], "c", 10**6)
        assert two[1].get("/v1/switches/s1/classes/c")["rate_bps"] == 10**6


def test_switches_are_shared_evenly_and_move(
    start_controller: Start, network: Network, url: str
) -> None:
    switches = [Switch(network) for _ in range(4)]
    # Without ports: several switches cannot have the same ones.
    for one in switches:
        one._ports = {}
        one.start()
    try:
        two = [start_controller("--store", url) for _ in range(2)]
        for number, one in enumerate(switches):
            put_switch(two[0], f"s{number}", one.address)

        def loads(controllers: list[Controller]) -> list[int]:
            driven = controllers[0].get("/v1/store")["driven"]
            names = [one.get("/v1/store")["controller"] for one in controllers]
            return sorted(list(driven.values()).count(name) for name in names)

        eventually(lambda: loads(two) == [2, 2], "two each")
        third = start_controller("--store", url)
        eventually(lambda: loads([*two, third]) == [1, 1, 2], "shared by three")
        third.process.stop()
        eventually(lambda: loads(two) == [2, 2], "two each again")
        for number in range(len(switches)):
            everywhere(two, name=f"s{number}")
    finally:
        for one in switches:
            one.kill()


def test_a_broken_stream_leaves_no_switch_without_a_writer(
    start_controller: Start, switch: Switch, url: str
) -> None:
    """The other controller does not bid the writer's id, which would keep the writer out."""
    relay = Relay(switch.address)
    try:
        two = [start_controller("--store", url) for _ in range(2)]
        put_switch(two[0], "s1", relay.address)
        everywhere(two)
        names = set()
        for number in range(4):
            before = driver_of(two)
            relay.break_all()
            names.add(f"c{number}")
            put_class(two[number % 2], f"c{number}")
            applied(two, names)
            assert driver_of(two) is before
            assert primaries(two) == 1
        assert len(entries_of(switch, "classes")) == 4
    finally:
        relay.close()


def test_fresh_stores_on_a_running_switch_always_get_a_writer(
    start_controller: Start, switch: Switch, members: Members
) -> None:
    """The switch remembers the highest election id of any controller for ever."""
    for _ in range(3):
        url = members.url(f"/cluster{next(_prefixes)}")
        two = [start_controller("--store", url) for _ in range(2)]
        put_switch(two[0], "s1", switch.address)
        everywhere(two)
        assert primaries(two) == 1
        for one in two:
            one.process.kill()
    # A controller with a file of its own follows, and another one.
    for _ in range(2):
        alone = start_controller("--switch", f"s1={switch.address}")
        alone.wait_connected()
        alone.process.kill()


def test_a_controller_of_another_store_is_told(
    start_controller: Start, switch: Switch, url: str
) -> None:
    """As after a mistyped prefix: both stores have the switch, and each takes it from the other."""
    ours, other = start_controller("--store", url), start_controller("--store", f"{url}-mistyped")
    put_switch(ours, "s1", switch.address)
    everywhere([ours])
    put_switch(other, "s1", switch.address)
    ours.process.wait_for_line("a controller that does not share this store has taken the switch")


def test_a_killed_controller_is_replaced(start_controller: Start, switch: Switch, url: str) -> None:
    two = [start_controller("--store", url) for _ in range(2)]
    put_switch(two[0], "s1", switch.address)
    everywhere(two)
    put_class(two[0], "before")
    applied(two, {"before"})
    writer = driver_of(two)
    (other,) = [one for one in two if one is not writer]
    writer.process.kill()
    put_class(other, "after")
    applied([other], {"before", "after"})
    assert driver_of([other]) is other
    assert len(entries_of(switch, "classes")) == 2


def test_a_paused_writer_writes_nothing_when_it_goes_on(
    start_controller: Start, switch: Switch, url: str
) -> None:
    """The writer's machine stops past its lease's end, and then goes on as if nothing had been."""
    two = [start_controller("--store", url) for _ in range(2)]
    put_switch(two[0], "s1", switch.address)
    everywhere(two)
    put_class(two[0], "before")
    applied(two, {"before"})
    writer = driver_of(two)
    (other,) = [one for one in two if one is not writer]
    os.kill(writer.process.pid, signal.SIGSTOP)
    try:
        eventually(lambda: other.get("/v1/switches/s1")["role"] == "primary", "it is replaced")
        put_class(other, "meanwhile")
        applied([other], {"before", "meanwhile"})
    finally:
        os.kill(writer.process.pid, signal.SIGCONT)
    applied(two, {"before", "meanwhile"})
    assert len(entries_of(switch, "classes")) == 2
    assert primaries(two) == 1


def test_the_counter_example(start_controller: Start, switch: Switch, tmp_path: Path) -> None:
    """A controller that is cut off does not lead, and no write that the other acknowledged is lost.

    L drives the switch. (1) Its stream breaks once. (2) F loses etcd and the switch, silently.
    (3) L goes on and acknowledges. (4) F is back. Nothing that L acknowledged may be gone.
    """
    cluster = Members(tmp_path)
    cluster.start()
    to_etcd, to_switch = Relay(cluster.endpoints[0]), Relay(switch.address)
    try:
        first = start_controller("--store", cluster.url())
        cut_off = start_controller("--store", f"etcd://{to_etcd.address}/test")
        put_switch(first, "s1", to_switch.address)
        everywhere([first, cut_off])
        names = {"c0"}
        put_class(cut_off, "c0")
        applied([first, cut_off], names)
        to_switch.break_all()
        to_etcd.stall()
        # In the end the controller that reaches etcd drives the switch.
        eventually(lambda: first.get("/v1/switches/s1")["role"] == "primary", "the first drives it")
        known = cut_off.http.get("/v1/switches/s1", headers={"Cache-Control": "max-stale"}).json()
        assert known["role"] != "primary"
        # It cannot tell whether that is current.
        assert cut_off.http.get("/v1/switches/s1", timeout=30.0).status_code == 503
        for number in range(1, 20):
            names.add(f"c{number}")
            put_class(first, f"c{number}")
        # The other acknowledges nothing.
        with pytest.raises(httpx.ReadTimeout):
            cut_off.http.put("/v1/switches/s1/classes/x", json={"rate": 10**6}, timeout=3.0)
        applied([first], names)
        to_etcd.resume()
        # The other may have made the changes requested of it after it was back, or not.
        eventually(
            lambda: (
                {c["name"] for c in cut_off.get("/v1/switches/s1/classes?limit=100")["classes"]}
                >= names
            ),
            "the other has them, too",
        )

        def said() -> set[str]:
            found = first.get("/v1/switches/s1/classes?limit=100")["classes"]
            return {one["name"] for one in found}

        eventually(
            lambda: len(entries_of(switch, "classes")) == len(said()), "the switch has all of them"
        )
        assert names <= said() <= names | {"x"}
        # The switches are shared again after the second controller is back.
        eventually(lambda: primaries([first, cut_off]) == 1, "one of them drives it")
    finally:
        for relay in (to_etcd, to_switch):
            relay.close()
        cluster.close()


def test_a_half_open_connection_keeps_nobody_out(
    start_controller: Start, switch: Switch, url: str
) -> None:
    """A machine without power ends no connection; its successor takes over anyway."""
    relay = Relay(switch.address)
    try:
        two = [start_controller("--store", url) for _ in range(2)]
        put_switch(two[0], "s1", relay.address)
        everywhere(two)
        writer = driver_of(two)
        (other,) = [one for one in two if one is not writer]
        relay.strand()
        writer.process.kill()
        began_s = time.monotonic()
        put_class(other, "after")
        applied([other], {"after"})
        assert time.monotonic() - began_s < LEASE_S + TAKEOVER_S
    finally:
        relay.close()


def test_readiness_knows_a_switch_without_a_writer(start_controller: Start, url: str) -> None:
    """A controller is not ready while no controller can write."""
    one = start_controller("--store", url)
    assert one.http.get("/readyz?connected=true").status_code == 200
    nobody = socket.create_server(("127.0.0.1", 0))
    try:
        put_switch(one, "s1", f"127.0.0.1:{nobody.getsockname()[1]}")
        said = one.http.get("/readyz?connected=true")
        assert (said.status_code, said.json()["switches"]) == (503, {"s1": "pending"})
    finally:
        nobody.close()
