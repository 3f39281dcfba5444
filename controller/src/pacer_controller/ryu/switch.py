"""Carries out Ryu's requests on switches."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pacer_controller import rates
from pacer_controller.problems import Problem
from pacer_controller.records import FlowRecord
from pacer_controller.ryu import translate
from pacer_controller.ryu.translate import RyuError
from pacer_controller.schemas import ClassSpec, MeterSpec, PortSpec, stored
from pacer_controller.service import Condition, ManagedSwitch, Origin, Service
from pacer_controller.service.bulk import put_switch_state, switch_state
from pacer_controller.state_schema import SwitchStateSpec

ALL = "all"
_ALL_VLANS = -1

State = dict[str, dict[str, Any]]
"""The desired state of a switch, in the form of a request body."""


class RyuSwitches:
    """Ryu's view of the switches.

    Args:
        service: the service that has the resources.

    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # As in Ryu, settings that a resource cannot hold are kept while the controller runs.
        self._configs: dict[tuple[str, int], dict[str, str]] = {}
        self._remarks: dict[tuple[str, int], int] = {}
        self._last_rule: dict[tuple[str, int], int] = {}

    def dpid(self, found: ManagedSwitch) -> str:
        """Return a switch's datapath id: its own, else from its name as Mininet does (s1: 1)."""
        own = found.describe().get("dpid")
        if own is not None:
            return str(own)
        digits = re.search(r"[0-9]{1,12}$", found.name)
        return f"{int(digits.group()) if digits else 0:016x}"

    def switches(self, switchid: str) -> list[ManagedSwitch]:
        """Return the switches of an id: a datapath id in 16 digits, a name, or "all".

        Raises:
            RyuError: there are no such switches.

        """
        known = [
            found for _, found in sorted(self._service.switches.items()) if found.capabilities.paces
        ]
        if switchid != ALL:
            known = [one for one in known if switchid in (self.dpid(one), one.name)]
        if not known:
            raise RyuError(f"qos sw is not connected. : switchID={switchid[:64]}")
        return known

    def vlan(self, vlanid: str) -> int:
        """Read a VLAN of a path.

        Raises:
            RyuError: it is none.

        """
        if vlanid == ALL:
            return _ALL_VLANS
        vlan = translate.number(vlanid, "Invalid {vlan_id} value", 0, 4094)
        if vlan == 1:
            raise RyuError("Invalid {vlan_id} value. Set [2-4094]")
        return vlan

    def check_address(self, body: object) -> None:
        """Check a database's address.

        Raises:
            RyuError: it is none.

        """
        if not isinstance(body, str) or re.fullmatch(r"tcp:[^:\s]{1,255}:[0-9]{1,5}", body) is None:
            raise RyuError('want "tcp:HOST:PORT"')

    async def _change(
        self, name: str, change: Callable[[ManagedSwitch, State], None], origin: Origin
    ) -> None:
        """Change the desired state of a switch.

        Args:
            name: the name of the switch.
            change: changes the state. It is called again if others have changed the switch
                meanwhile.
            origin: the origin of the request.

        Raises:
            Problem: nothing was changed.

        """

        def changed(found: ManagedSwitch) -> SwitchStateSpec:
            state = switch_state(found)
            change(found, state)
            return SwitchStateSpec.model_validate(state)

        await put_switch_state(self._service, name, changed, Condition(), origin, dry_run=False)

    # ---- queues ----

    def _details(self, found: ManagedSwitch) -> dict[str, Any]:
        details = {}
        for name, record in sorted(found.stored("class").items()):
            queue = translate.queue_number(name)
            if queue is not None:
                config = self._configs.get((found.name, queue), translate.queue_config(record))
                details[str(queue)] = {"config": config}
        return details

    async def get_queue(self, found: ManagedSwitch, _vlan: int, _body: Any, _origin: Origin) -> Any:
        """Queues of a switch."""
        details = self._details(found)
        if not details:
            return {"result": "failure", "details": "Queue is not exists."}
        return {"result": "success", "details": details}

    async def set_queue(self, found: ManagedSwitch, _vlan: int, body: Any, origin: Origin) -> Any:
        """Set the queues of a switch; those set before are replaced."""
        body = translate.members(body, "body")
        queues = body.get("queues", [])
        if not isinstance(queues, list) or len(queues) > 1000:
            raise RyuError("queues: want a list")
        configs = {}

        def change(found: ManagedSwitch, state: State) -> None:
            port = self._port(found, body.get("port_name"))
            self._drop_queues(state)
            for queue, one in enumerate(queues):
                spec, config = translate.queue_class(translate.members(one, "queue"), port)
                state["classes"][translate.queue_name(queue)] = stored(spec)
                configs[found.name, queue] = config
            self._keep_used_queues(state)
            if body.get("max_rate") is not None:
                self._limit_ports(found, state, port, body["max_rate"])

        await self._change(found.name, change, origin)
        self._forget(found)
        self._configs |= configs
        return {"result": "success", "details": self._details(found)}

    def _port(self, found: ManagedSwitch, name: object) -> int | None:
        if name is None:
            return None
        known = {info.interface: info.port for info in found.ports}
        if name not in known:
            raise RyuError(f"{ascii(name)[:40]} port is not exists.")
        return known[str(name)]

    def _limit_ports(
        self, found: ManagedSwitch, state: State, port: int | None, max_rate: object
    ) -> None:
        """Set the line rate of a port, or of all ports, if the switch can."""
        rate_bps = translate.number(max_rate, "max_rate", rates.MIN_RATE_BPS, rates.MAX_RATE_BPS)
        can = "line_rate" in found.capabilities.line_settings
        ports = [port] if port is not None else [info.port for info in found.ports]
        for number in ports if can else ():
            asked = PortSpec.model_validate(state["ports"].get(str(number), {}))
            changed = asked.model_copy(update={"line_rate": rate_bps})
            state["ports"][str(number)] = stored(changed)

    def _drop_queues(self, state: Mapping[str, dict[str, Any]]) -> None:
        for name in [one for one in state["classes"] if translate.queue_number(one) is not None]:
            del state["classes"][name]

    def _keep_used_queues(self, state: Mapping[str, dict[str, Any]]) -> None:
        """Give every rule's queue a class: an OpenFlow rule may set a queue that does not exist."""
        for flow in state["flows"].values():
            name = flow.get("class")
            if name is not None and translate.queue_number(name) is not None:
                state["classes"].setdefault(name, stored(ClassSpec(mode="unpaced")))

    def _forget(self, found: ManagedSwitch) -> None:
        self._configs = {key: of for key, of in self._configs.items() if key[0] != found.name}

    async def delete_queue(
        self, found: ManagedSwitch, _vlan: int, _body: Any, origin: Origin
    ) -> Any:
        """Delete the queues of a switch; rules that use them stay, without a rate."""

        def change(_: ManagedSwitch, state: State) -> None:
            self._drop_queues(state)
            self._keep_used_queues(state)

        await self._change(found.name, change, origin)
        self._forget(found)
        return "success"

    async def get_status(
        self, found: ManagedSwitch, _vlan: int, _body: Any, _origin: Origin
    ) -> Any:
        """Counters of the queues of a switch."""
        said = await self._service.statistics(found.name)
        queues = []
        for one in said["classes"]:
            queue = translate.queue_number(one["name"] or "")
            if queue is not None:
                accepted = one["accepted"] or {"packets": 0, "bytes": 0}
                queues.append(
                    {
                        "port_no": one["port"] or "ANY",
                        "queue_id": queue,
                        "tx_bytes": accepted["bytes"],
                        "tx_packets": accepted["packets"],
                        "tx_errors": (one["limit_dropped"] or {"packets": 0})["packets"],
                    }
                )
        return {str(int(self.dpid(found), 16)): queues}

    # ---- rules ----

    def _rules(self, found: ManagedSwitch, vlan: int) -> dict[tuple[int, int], FlowRecord]:
        rules = {}
        for name, record in found.stored("flow").items():
            rule = translate.rule_of(name)
            if rule is not None and vlan in (_ALL_VLANS, rule[0]):
                rules[rule] = record
        return dict(sorted(rules.items()))

    async def get_rules(self, found: ManagedSwitch, vlan: int, _body: Any, _origin: Origin) -> Any:
        """Rules of a switch."""
        by_vlan: dict[int, list[dict[str, Any]]] = {}
        for (of_vlan, rule), record in self._rules(found, vlan).items():
            meter = record.spec.meter_name
            shown = meter.removeprefix("meter-") if meter is not None else None
            by_vlan.setdefault(of_vlan, []).append(translate.rule_view(record, rule, shown))
        return [
            {"qos": rules} if of_vlan == 0 else {"vlan_id": of_vlan, "qos": rules}
            for of_vlan, rules in by_vlan.items()
        ]

    async def set_rule(self, found: ManagedSwitch, vlan: int, body: Any, origin: Origin) -> Any:
        """Add a rule; one of the same match and priority is replaced."""
        body = translate.members(body, "body")
        vlans = [vlan]
        if vlan == _ALL_VLANS:
            vlans = sorted({of_vlan for of_vlan, _ in self._rules(found, vlan)}) or [0]
        results = []
        for one in vlans:
            rule = await self._add_rule(found, one, body, origin)
            result = {"result": "success", "details": f"QoS added. : qos_id={rule}"}
            results.append(result | ({"vlan_id": one} if one else {}))
        return results

    async def _add_rule(
        self, found: ManagedSwitch, vlan: int, body: Mapping[str, Any], origin: Origin
    ) -> int:
        rule = 0

        def change(found: ManagedSwitch, state: State) -> None:
            nonlocal rule
            meter_of = partial(self._rule_meter, found)
            spec, queue = translate.rule_flow(body, vlan, meter_of)
            for name, record in found.stored("flow").items():
                same = (record.spec.match, record.spec.priority) == (spec.match, spec.priority)
                if same and translate.rule_of(name) is not None:
                    del state["flows"][name]
            if queue is not None:
                name = translate.queue_name(queue)
                state["classes"].setdefault(name, stored(ClassSpec(mode="unpaced")))
            used = [rule for of_vlan, rule in self._rules(found, vlan) if of_vlan == vlan]
            rule = max([self._last_rule.get((found.name, vlan), 0), *used]) + 1
            state["flows"][translate.rule_name(vlan, rule)] = stored(spec)

        await self._change(found.name, change, origin)
        self._last_rule[found.name, vlan] = rule
        return rule

    def _rule_meter(
        self, found: ManagedSwitch, meter: int, dscp: int | None
    ) -> str | dict[str, Any]:
        """Return the meter with a number, for a rule that matches a DSCP."""
        name = translate.meter_name(meter)
        record = found.stored("meter").get(name)
        if record is None:
            raise RyuError(f"Invalid rule parameter. : no meter {meter}")
        precedence = self._remarks.get((found.name, meter), 0)
        if not precedence:
            return name
        return stored(translate.marked(record.spec, precedence, dscp))

    async def delete_rule(self, found: ManagedSwitch, vlan: int, body: Any, origin: Origin) -> Any:
        """Delete a rule, or all."""
        wanted = translate.members(body, "body").get("qos_id")
        number = 0 if wanted == ALL else translate.number(wanted, "Invalid qos id.", 1, 2**32 - 1)
        by_vlan: dict[int, list[str]] = {}

        def change(found: ManagedSwitch, state: State) -> None:
            by_vlan.clear()
            for of_vlan, rule in self._rules(found, vlan):
                if wanted == ALL or rule == number:
                    del state["flows"][translate.rule_name(of_vlan, rule)]
                    by_vlan.setdefault(of_vlan, []).append(str(rule))

        await self._change(found.name, change, origin)
        if not by_vlan:
            details = "QoS rule is not exist."
            details += "" if wanted == ALL else f" : QoS ID={wanted}"
            return {"result": "failure", "details": details}
        return [
            {"result": "success", "details": f" deleted. : QoS ID={','.join(numbers)}"}
            | ({"vlan_id": of_vlan} if of_vlan else {})
            for of_vlan, numbers in by_vlan.items()
        ]

    # ---- meters ----

    async def get_meter(self, found: ManagedSwitch, _vlan: int, _body: Any, _origin: Origin) -> Any:
        """Meters of a switch."""
        meters = []
        for name, record in sorted(found.stored("meter").items()):
            if name.startswith("meter-") and name[6:].isdigit():
                meter = int(name[6:])
                users = sum(f.spec.meter_name == name for f in found.stored("flow").values())
                bands = _bands(record.spec, self._remarks.get((found.name, meter), 0))
                meters.append(
                    {"meter_id": meter, "flow_count": users, "flags": ["KBPS"], "bands": bands}
                )
        return {str(int(self.dpid(found), 16)): meters}

    async def set_meter(self, found: ManagedSwitch, _vlan: int, body: Any, origin: Origin) -> Any:
        """Set a meter."""
        body = translate.members(body, "body")
        meter = translate.number(body.get("meter_id"), "meter_id", 1, 2**32 - 1)
        spec, precedence = translate.meter_spec(body)
        name = translate.meter_name(meter)
        await self._service.put(found.name, "meter", name, spec, origin=origin)
        self._remarks[found.name, meter] = precedence
        return [{"result": "success", "details": f"Meter added. : Meter ID={meter}"}]

    async def delete_meter(
        self, found: ManagedSwitch, _vlan: int, body: Any, origin: Origin
    ) -> Any:
        """Delete a meter."""
        body = translate.members(body, "body")
        meter = translate.number(body.get("meter_id"), "meter_id", 1, 2**32 - 1)
        name = translate.meter_name(meter)
        try:
            await self._service.delete(found.name, "meter", name, origin=origin)
        except Problem as problem:
            if problem.kind != "unknown-meter":
                raise
        self._remarks.pop((found.name, meter), None)
        return {"result": "success", "details": f"Meter deleted. : Meter ID={meter}"}


def _bands(spec: MeterSpec, precedence: int) -> list[dict[str, Any]]:
    bands: list[dict[str, Any]] = []
    if precedence:
        bands.append({"type": "DSCP_REMARK", "rate": spec.cir // 1000, "prec_level": precedence})
    if spec.drop_red:
        bands.append({"type": "DROP", "rate": spec.pir_bps // 1000})
    return bands
