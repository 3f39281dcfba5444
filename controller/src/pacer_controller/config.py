"""Configuration: the switches, and the settings of the service.

From a TOML file (`--config`), from options, or both; options win. A file looks like this:

    [controller]
    listen = "127.0.0.1:8080"
    store = "sqlite:pacer.sqlite"   # or "etcd://10.0.0.1:2379,10.0.0.2:2379/pacer"

    [switches.s1]
    address = "127.0.0.1:9559"

    [switches.s1.stations]          # stations that never move, optional
    "02:00:00:00:00:01" = 1

    [switches.wan]
    address = "127.0.0.1:9560"
    program = "gtrcnet"
    wire = ["1:2"]
    bottleneck = "500mbit"

    [switches.wan.measured.web]     # a flow that gtrcnet measures apart, optional
    match = { protocol = "tcp", dst_port = 80 }
    bottleneck = "40mbit"

    [switches.br0]
    kind = "openvswitch"
    ovsdb = "unix:/run/openvswitch/db.sock"
    bridge = "br0"

The last two as options:

    --switch wan=127.0.0.1:9560,program=gtrcnet,wire=1:2,bottleneck=500mbit
    --switch br0=unix:/run/openvswitch/db.sock,bridge=br0
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pacer_controller import rates
from pacer_controller.fields import NAME_PATTERN, format_mac
from pacer_controller.measured import MAX_MEASURED_FLOWS, MeasuredFlowSpec, Problems
from pacer_controller.schemas import stored
from pacer_controller.state_schema import OpenVSwitchSpec, P4RuntimeSpec

DEFAULT_LISTEN = "127.0.0.1:8080"
DEFAULT_CPU_PORT = 510
DEFAULT_TARGET = "pacing_switch"
PROGRAMS = ("pacer", "gtrcnet")
QOS_TYPES = ("auto", "linux-htb", "pacer")
TARGETS = ("pacing_switch", "bmv2")
MAX_SWITCHES = 1024
MAX_PORT = 510
MEASURED_PORTS = 4
"""gtrcnet's rings (`MEASURED_PORTS` of p4src/include/burstiness.p4): ports 0 to 3 are measured."""

SLOTS = MEASURED_PORTS + MAX_MEASURED_FLOWS
"""`SLOTS` of p4src/include/burstiness.p4: a slot is a measured port or flow."""

MAX_STATIONS = 16384

TLS_PREFIX = "tls:"
"""Prefix of the address of a switch that uses TLS."""

PLAIN_PREFIX = "plain:"
"""Prefix of the address of a remote switch without TLS, even if there are credentials."""

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_ADDRESS = re.compile(rf"(?:{TLS_PREFIX}|{PLAIN_PREFIX})?{_HOST}:([0-9]{{1,5}})", re.ASCII)
_REMOTE = re.compile(rf"unix:/[^\0]{{1,107}}|tcp:{_HOST}:[0-9]{{1,5}}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}", re.ASCII)


SQLITE = "sqlite:"
"""Prefix of the URL of a store in a file."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names the place and the expected value."""


@dataclass(frozen=True)
class SwitchConfig:
    """One switch.

    Attributes:
        name: the switch's name for clients.
        address: HOST:PORT of its gRPC server; tls:HOST:PORT if the server uses TLS.
        device_id: P4Runtime device id.
        target: the target of the program: a directory below the compiled programs.
        program: "pacer", "gtrcnet" or the path of a compiled program (PROGRAM.json, with
            PROGRAM.p4info.txtpb beside it).
        cpu_port: port number of packets to the controller.
        ports: port numbers, for switches that cannot list theirs; empty: ask the switch.
        wire: pairs of ports that gtrcnet connects.
        bottleneck_bps: rate of gtrcnet's virtual bottleneck, at wired ports below
            MEASURED_PORTS; None: no measuring.
        stations: port by MAC address, for stations that never move.
        measured: the measured flows of gtrcnet, by name; the first one is in slot MEASURED_PORTS,
            and so on.

    """

    name: str
    address: str
    device_id: int = 0
    target: str = DEFAULT_TARGET
    program: str = "pacer"
    cpu_port: int = DEFAULT_CPU_PORT
    ports: tuple[int, ...] = ()
    wire: tuple[tuple[int, int], ...] = ()
    bottleneck_bps: int | None = None
    stations: Mapping[int, int] = field(default_factory=dict)
    measured: Mapping[str, MeasuredFlowSpec] = field(default_factory=dict)

    @property
    def wired_ports(self) -> tuple[int, ...]:
        """The ports of all wires."""
        return tuple(port for pair in self.wire for port in pair)

    def slot_of(self, flow: str) -> int:
        """Return the slot of a measured flow; KeyError if gtrcnet does not measure it."""
        for slot, name in enumerate(self.measured, start=MEASURED_PORTS):
            if name == flow:
                return slot
        raise KeyError(flow)

    def settings(self) -> dict[str, Any]:
        """Return the settings for `switch_from`, without defaults."""
        given: dict[str, Any] = {"kind": "p4runtime", "address": self.address}
        defaults = SwitchConfig(self.name, self.address)
        for key in ("device_id", "target", "program", "cpu_port"):
            if getattr(self, key) != getattr(defaults, key):
                given[key] = getattr(self, key)
        others = {
            "ports": list(self.ports),
            "wire": [f"{first}:{second}" for first, second in self.wire],
            "bottleneck": self.bottleneck_bps and rates.format_rate(self.bottleneck_bps),
            "stations": {format_mac(mac): port for mac, port in self.stations.items()},
            "measured": {name: stored(spec) for name, spec in self.measured.items()},
        }
        return given | {key: value for key, value in others.items() if value}

    def files(self, compiled: Path) -> tuple[Path, Path]:
        """Return the paths of the program's JSON and P4Info.

        Raises:
            ConfigError: there are no such files.

        """
        if self.program in PROGRAMS:
            base = compiled / self.target / self.program
        else:
            base = Path(self.program.removesuffix(".json"))
        json_path = base.with_name(base.name + ".json")
        p4info_path = base.with_name(base.name + ".p4info.txtpb")
        for path in (json_path, p4info_path):
            if not path.is_file():
                raise ConfigError(f"switch {self.name}: no file {path}")
        return json_path, p4info_path


@dataclass(frozen=True)
class OpenVSwitchConfig:
    """One bridge of Open vSwitch.

    Attributes:
        name: the bridge's name for clients.
        ovsdb: the address of its database, unix:PATH or tcp:HOST:PORT.
        bridge: the name of the bridge in the database.
        openflow: the address of its OpenFlow connection, unix:PATH or tcp:HOST:PORT.
        qos_type: type of QoS rows: "linux-htb"; "pacer", of the patched Open vSwitch; or "auto":
            "pacer" where the switch has it, else "linux-htb".

    """

    name: str
    ovsdb: str
    bridge: str
    openflow: str
    qos_type: str = QOS_TYPES[0]

    def settings(self) -> dict[str, Any]:
        """Return the settings for `switch_from`."""
        return {"kind": "openvswitch", **{n: v for n, v in asdict(self).items() if n != "name"}}


AnySwitchConfig = SwitchConfig | OpenVSwitchConfig


@dataclass(frozen=True)
class Config:
    """Settings of the service at start; `store` is None if no store is named."""

    switches: tuple[AnySwitchConfig, ...]
    listen: str = DEFAULT_LISTEN
    store: str | None = None


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT"; an IPv6 host is in brackets.

    Raises:
        ConfigError: not of that form.

    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        raise ConfigError(f"listen {text!r}: want HOST:PORT, such as {DEFAULT_LISTEN}")
    if int(port) > 65535:
        raise ConfigError(f"listen {text!r}: a port is 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_switch(text: str) -> AnySwitchConfig:
    """Read a `--switch` option: NAME=HOST:PORT[,key=value...]; `wire` may be repeated.

    Raises:
        ConfigError: the option is wrong.

    """
    name, separator, rest = text.partition("=")
    if not separator:
        raise ConfigError(f"--switch {text!r}: want NAME=HOST:PORT[,key=value...]")
    address, *options = rest.split(",")
    values: dict[str, Any] = {"address": address}
    if address.startswith(("unix:", "tcp:")):
        values = {"kind": "openvswitch", "ovsdb": address}
    for option in options:
        key, separator, value = option.partition("=")
        key = key.strip().replace("-", "_")
        if not separator:
            raise ConfigError(f"switch {name}: {option!r} is not key=value")
        if key == "wire":
            values.setdefault("wire", []).append(value)
        elif key in values:
            raise ConfigError(f"switch {name}: {key} is given twice")
        elif key in ("device_id", "cpu_port") and re.fullmatch(r"[0-9]{1,20}", value, re.ASCII):
            values[key] = int(value)
        else:
            values[key] = value
    return switch_from(name, values)


def _check_known(at: str, given: Iterable[str], known: Iterable[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{at}: unknown {what} {key!r}; known: {', '.join(sorted(known))}")


def _one_of(at: str, what: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ConfigError(f"{at}: {what} {value!r}: one of {', '.join(choices)}")
    return str(value)


def _bridge_from(name: str, values: Mapping[str, Any]) -> OpenVSwitchConfig:
    at = f"switch {name}"
    _check_known(at, values, OpenVSwitchSpec.model_fields, "setting")
    for key in ("ovsdb", "bridge"):
        if not isinstance(values.get(key), str):
            raise ConfigError(f"{at}: {key} is needed")
    ovsdb, openflow = values["ovsdb"], values.get("openflow")
    if openflow is None and ovsdb.startswith("unix:"):
        # Open vSwitch's default path.
        openflow = f"{ovsdb.rpartition('/')[0]}/{values['bridge']}.mgmt"
    for key, value in (("ovsdb", ovsdb), ("openflow", openflow)):
        if not isinstance(value, str) or _REMOTE.fullmatch(value) is None:
            raise ConfigError(f"{at}: {key} {value!r}: want unix:PATH or tcp:HOST:PORT")
    qos_type = _one_of(at, "qos_type", values.get("qos_type", QOS_TYPES[0]), QOS_TYPES)
    return OpenVSwitchConfig(name, ovsdb, values["bridge"], str(openflow), qos_type)


def switch_from(name: str, values: Mapping[str, Any]) -> AnySwitchConfig:
    """Check one switch's settings, from a file, an option or a request.

    Raises:
        ConfigError: a setting is wrong.

    """
    at = f"switch {name}"
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ConfigError(f"{at}: a name is 1 to 64 of A-Z a-z 0-9 . _ -, not {name!r}")
    if values.get("kind") == "openvswitch":
        return _bridge_from(name, values)
    _check_known(at, values, P4RuntimeSpec.model_fields, "setting")
    address = values.get("address")
    found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 0 < int(found.group(1)) < 65536:
        raise ConfigError(f"{at}: address {address!r}: want HOST:PORT or tls:HOST:PORT")
    target = _one_of(at, "target", values.get("target", DEFAULT_TARGET), TARGETS)
    program = values.get("program", "pacer")
    if not isinstance(program, str) or (program not in PROGRAMS and "/" not in program):
        raise ConfigError(f"{at}: program {program!r}: one of {', '.join(PROGRAMS)}, or a path")
    wire = values.get("wire", [])
    bottleneck = values.get("bottleneck")
    measured = values.get("measured") or {}
    if program == "pacer" and (wire or bottleneck is not None or measured):
        raise ConfigError(f"{at}: wire, bottleneck and measured belong to program gtrcnet")
    pairs = _wire(at, wire)
    if bottleneck is not None:
        _check_measured(at, pairs)
    return SwitchConfig(
        name=name,
        address=str(address),
        device_id=_number(at, "device_id", values.get("device_id", 0), 0, 2**64 - 1),
        target=target,
        program=program,
        cpu_port=_number(at, "cpu_port", values.get("cpu_port", DEFAULT_CPU_PORT), 1, MAX_PORT),
        ports=_ports(at, values.get("ports", ())),
        wire=pairs,
        bottleneck_bps=_bottleneck(at, bottleneck),
        stations=_stations(at, values.get("stations", {})),
        measured=_measured(at, measured, has_bottleneck=bottleneck is not None),
    )


def load(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        ConfigError: the file is unreadable, is not TOML, or has wrong settings.

    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    _check_known(str(path), content, ("controller", "switches"), "section")
    service = content.get("controller", {})
    _check_known(f"{path}: [controller]", service, ("listen", "state", "store"), "setting")
    for key, value in service.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: [controller]: {key} is a string")
    if "state" in service and "store" in service:
        raise ConfigError(f"{path}: [controller]: state and store: one of them")
    if "state" in service:
        service["store"] = f"{SQLITE}{service.pop('state')}"
    switches = content.get("switches", {})
    if not isinstance(switches, dict) or not all(isinstance(v, dict) for v in switches.values()):
        raise ConfigError(f"{path}: switches are tables, [switches.NAME]")
    return Config(
        switches=check_switches([switch_from(name, v) for name, v in switches.items()]), **service
    )


def check_switches(switches: Sequence[AnySwitchConfig]) -> tuple[AnySwitchConfig, ...]:
    """Check switches against each other.

    Raises:
        ConfigError: there are too many, or a name or device occurs twice.

    """
    if len(switches) > MAX_SWITCHES:
        raise ConfigError(f"{len(switches)} switches; at most {MAX_SWITCHES}")
    names: set[str] = set()
    devices: dict[tuple[str, int | str], str] = {}
    for switch in switches:
        if switch.name in names:
            raise ConfigError(f"switch {switch.name} is given twice")
        names.add(switch.name)
        device: tuple[str, int | str] = (
            (switch.ovsdb, switch.bridge)
            if isinstance(switch, OpenVSwitchConfig)
            else (switch.address, switch.device_id)
        )
        if device in devices:
            what = "bridge" if isinstance(device[1], str) else "device_id"
            raise ConfigError(
                f"switches {devices[device]} and {switch.name} are the same device: "
                f"{device[0]}, {what} {device[1]}"
            )
        devices[device] = switch.name
    return tuple(switches)


def _number(at: str, what: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{at}: {what} {value!r}: a number from {low} to {high}")
    return value


def _ports(at: str, value: Any) -> tuple[int, ...]:
    """Read "1-4", "1+3+5-7" (commas separate options), a list of numbers, or nothing."""
    numbers: list[int] = []
    if isinstance(value, str):
        for part in re.split(r"[+,]", value):
            found = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", part.strip(), re.ASCII)
            if found is None:
                raise ConfigError(f'{at}: ports {value!r}: want numbers such as "1-4" or "1+3"')
            first = int(found.group(1))
            numbers += range(first, int(found.group(2) or first) + 1)
    else:
        numbers = list(value)
    for number in numbers:
        _number(at, "port", number, 1, MAX_PORT - 1)
    if len(set(numbers)) != len(numbers):
        raise ConfigError(f"{at}: ports {value!r}: a port is given twice")
    return tuple(numbers)


def _wire(at: str, value: Any) -> tuple[tuple[int, int], ...]:
    pairs: list[tuple[int, int]] = []
    seen: set[int] = set()
    for text in [value] if isinstance(value, str) else value:
        found = re.fullmatch(r"([0-9]{1,3}):([0-9]{1,3})", str(text), re.ASCII)
        if found is None:
            raise ConfigError(f'{at}: wire {text!r}: want two ports, such as "1:2"')
        pair = (int(found.group(1)), int(found.group(2)))
        for port in pair:
            _number(at, "wire: port", port, 1, MAX_PORT - 1)
            if port in seen:
                raise ConfigError(f"{at}: wire {text!r}: port {port} is wired twice")
            seen.add(port)
        pairs.append(pair)
    return tuple(pairs)


def _check_measured(at: str, pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse a bottleneck at ports for which gtrcnet has no rings: nothing would be measured."""
    for first, second in pairs:
        port = max(first, second)
        if port >= MEASURED_PORTS:
            raise ConfigError(
                f"{at}: wire {first}:{second}: port {port} cannot be measured: a bottleneck is "
                f"measured at ports below {MEASURED_PORTS}; wire those, or give no bottleneck"
            )


def _bottleneck(at: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        return rates.parse_rate(value)
    except rates.RateError as error:
        raise ConfigError(f"{at}: bottleneck: {error}; want {error.expected}") from None


def _measured(at: str, value: Any, *, has_bottleneck: bool) -> dict[str, MeasuredFlowSpec]:
    if not isinstance(value, Mapping) or len(value) > MAX_MEASURED_FLOWS:
        raise ConfigError(f"{at}: measured: want at most {MAX_MEASURED_FLOWS} of NAME = flow")
    flows: dict[str, MeasuredFlowSpec] = {}
    for name, given in value.items():
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise ConfigError(f"{at}: measured: {name!r} is no name: want {NAME_PATTERN}")
        try:
            flows[name] = MeasuredFlowSpec.checked(given)
        except Problems as error:
            raise ConfigError(f"{at}: measured: {name}: {error}") from None
        if flows[name].bottleneck is None and not has_bottleneck:
            raise ConfigError(
                f"{at}: measured: {name}: against what rate? give it, or the switch, a bottleneck"
            )
    return flows


def _stations(at: str, value: Any) -> dict[int, int]:
    if not isinstance(value, Mapping) or len(value) > MAX_STATIONS:
        raise ConfigError(f"{at}: stations: want at most {MAX_STATIONS} of MAC = port")
    stations: dict[int, int] = {}
    for text, port in value.items():
        if _MAC.fullmatch(text) is None:
            raise ConfigError(f"{at}: stations: {text!r} is not a MAC address")
        mac = int(text.replace(":", ""), 16)
        stations[mac] = _number(at, f"stations: {text}: port", port, 1, MAX_PORT - 1)
    return stations
