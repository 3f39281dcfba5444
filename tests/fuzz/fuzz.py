"""Looks for inputs that break a part of the controller, guided by coverage (atheris).

    make fuzz TARGET=openflow MINUTES=60

Inputs that reach new code are kept in tests/fuzz/corpus/TARGET. One that breaks is written to the
current directory, as libFuzzer does.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pacer_controller", "targets", "ovs", "os_ken.ofproto"]):
    from targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")


def main() -> None:
    """Fuzz the target named by the first argument; the others are libFuzzer's."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: fuzz.py {'|'.join(TARGETS)} [LIBFUZZER-OPTION ...]")
    name = sys.argv[1]
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], TARGETS[name])
    atheris.Fuzz()


main()
