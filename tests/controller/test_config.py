"""Options and configuration file."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_harness import COMPILED
from pacer_controller import config
from pacer_controller.p4rt.burstiness import DYNAMIC_UNKNOWN
from pacer_controller.server import main


def test_switch_option() -> None:
    parsed = config.parse_switch(
        "wan=127.0.0.1:9560,device-id=3,program=gtrcnet,wire=1:2,bottleneck=500mbit"
    )
    assert isinstance(parsed, config.SwitchConfig)
    assert parsed.name == "wan"
    assert parsed.address == "127.0.0.1:9560"
    assert parsed.device_id == 3
    assert parsed.wire == ((1, 2),)
    assert parsed.bottleneck_bps == 500_000_000


def test_wires_without_a_bottleneck_may_be_at_any_ports() -> None:
    parsed = config.parse_switch("wan=127.0.0.1:9560,program=gtrcnet,wire=1:2,wire=3:4,wire=9:5")
    assert isinstance(parsed, config.SwitchConfig)
    assert parsed.wire == ((1, 2), (3, 4), (9, 5))
    assert parsed.bottleneck_bps is None


def test_measured_ports_are_those_of_the_program() -> None:
    source = (COMPILED.parent / "include" / "burstiness.p4").read_text()
    assert f"#define MEASURED_PORTS {config.MEASURED_PORTS}\n" in source
    assert f"#define SLOTS {config.SLOTS}\n" in source


def test_the_mark_of_an_unknown_window_is_that_of_the_program() -> None:
    source = (COMPILED.parent / "include" / "burstiness.p4").read_text()
    assert f"#define DYNAMIC_UNKNOWN 64w0x{DYNAMIC_UNKNOWN:X}\n" in source


def test_ports() -> None:
    parsed = config.parse_switch("s1=[::1]:9559,ports=1-3+7")
    assert isinstance(parsed, config.SwitchConfig)
    assert parsed.ports == (1, 2, 3, 7)


def test_bridge() -> None:
    parsed = config.parse_switch("s2=unix:/run/openvswitch/db.sock,bridge=br0,qos-type=pacer")
    assert isinstance(parsed, config.OpenVSwitchConfig)
    assert parsed.openflow == "unix:/run/openvswitch/br0.mgmt"
    assert config.switch_from("s2", parsed.settings()) == parsed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s1", "NAME=HOST:PORT"),
        ("s1=", "address"),
        ("s1=host", "address"),
        ("s1=host:99999", "address"),
        ("s 1=h:1", "a name is"),
        ("s1=h:1,device-id=x", "device_id 'x': a number"),
        ("s1=h:1,program=fancy", "program 'fancy': one of"),
        ("s1=h:1,target=tofino", "target 'tofino': one of"),
        ("s1=h:1,ports=1-x", "ports '1-x'"),
        ("s1=h:1,ports=1+1", "twice"),
        ("s1=h:1,ports=510", "1 to 509"),
        ("s1=h:1,colour=red", "unknown setting 'colour'; known:"),
        ("s1=h:1,cpu-port=1,cpu-port=2", "given twice"),
        ("s1=unix:/x", "bridge is needed"),
        ("s1=unix:/x,bridge=br0,qos-type=red", "qos_type 'red': one of"),
        ("s1=tcp:h:1,bridge=br0", "openflow None: want"),
        ("s1=unix:/x,bridge=br0,colour=red", "unknown setting 'colour'"),
        ("s1=h:1,wire=1:2", "belong to program gtrcnet"),
        ("s1=h:1,program=gtrcnet,wire=1:2,wire=2:3", "port 2 is wired twice"),
        (
            "s1=h:1,program=gtrcnet,wire=5:6,bottleneck=1mbit",
            "wire 5:6: port 6 cannot be measured: a bottleneck is measured at ports below 4",
        ),
        ("s1=h:1,program=gtrcnet,wire=3:4,bottleneck=1mbit", "wire 3:4: port 4 cannot be"),
        ("s1=h:1,program=gtrcnet,bottleneck=fast", "bottleneck: 'fast' is not a rate"),
    ],
)
def test_wrong_option(text: str, said: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse_switch(text)
    assert said in str(caught.value)


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "pacer.toml"
    path.write_text(
        """
        [controller]
        listen = "127.0.0.1:0"
        [switches.s1]
        address = "127.0.0.1:9559"
        [switches.s1.stations]
        "02:00:00:00:00:01" = 1
        [switches.wan]
        address = "127.0.0.1:9560"
        program = "gtrcnet"
        wire = ["1:2"]
        bottleneck = "500mbit"
        """
    )
    loaded = config.load(path)
    assert loaded.listen == "127.0.0.1:0"
    assert [switch.name for switch in loaded.switches] == ["s1", "wan"]
    assert isinstance(loaded.switches[0], config.SwitchConfig)
    assert loaded.switches[0].stations == {0x020000000001: 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = ", "Invalid value"),
        ("[servers]", "unknown section 'servers'"),
        ("[controller]\nport = 1", "unknown setting 'port'"),
        ("[controller]\nlisten = 8080", "listen is a string"),
        ("[switches.s1]", "address None"),
        ("switches = 5", "switches are tables"),
        ('[switches.s1]\naddress = "h:1"\n[switches.s2]\naddress = "h:1"', "the same device"),
        ('[switches.s1]\naddress = "h:1"\nstations = {"x" = 1}', "not a MAC address"),
    ],
)
def test_wrong_file(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "pacer.toml"
    path.write_text(content)
    with pytest.raises(config.ConfigError) as caught:
        config.load(path)
    assert said in str(caught.value)


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Undo the command's changes of the process's logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "nonsense"], "want HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "not loopback"),
        (["--switch", "s1=h:1", "--switch", "s1=h:2"], "given twice"),
        (["--listen", "127.0.0.1:0", "--switch", "s1=h:1,program=/none"], "no file /none.json"),
        (["--config", "/none.toml"], "No such file"),
    ],
)
def test_command_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(options) == 2
    assert said in capsys.readouterr().err
