"""Filters of packets in the language of tcpdump (pcap-filter(7)), compiled by libpcap."""

import ctypes
import ctypes.util
import functools
import re
from typing import Any

from pacer_controller.southbound import FilterInstruction

LENGTH_MAX = 1000
"""Most characters of a filter."""

_ETHERNET = 1
_SNAPSHOT_BYTES = 262_144
_NETMASK_UNKNOWN = 0xFFFFFFFF

_SHORT = (re.compile(r"\bdport\b"), "dst port"), (re.compile(r"\bsport\b"), "src port")
"""Words of nftables and iptables that pcap-filter spells out."""


class FilterError(ValueError):
    """A filter that libpcap refuses; the text is its reason."""


class NoLibpcapError(Exception):
    """libpcap is not installed."""


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction))]


@functools.cache
def _libpcap() -> Any:
    for name in (ctypes.util.find_library("pcap"), "libpcap.so.0.8", "libpcap.so.1"):
        if name is None:
            continue
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_open_dead.argtypes = [ctypes.c_int, ctypes.c_int]
        library.pcap_compile.argtypes = [
            ctypes.c_void_p,
            ctypes.POINTER(_Program),
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint,
        ]
        library.pcap_geterr.restype = ctypes.c_char_p
        library.pcap_geterr.argtypes = [ctypes.c_void_p]
        library.pcap_freecode.argtypes = [ctypes.POINTER(_Program)]
        library.pcap_close.argtypes = [ctypes.c_void_p]
        return library
    raise NoLibpcapError("libpcap is not installed (Debian: libpcap0.8), which compiles filters")


def compile_filter(text: str) -> list[FilterInstruction]:
    """Compile a filter such as "tcp dst port 80" for Ethernet frames.

    `dport` and `sport` are short for `dst port` and `src port`. Names of hosts are looked up, so
    this may take seconds.

    Raises:
        FilterError: it is no filter, or it is too long.
        NoLibpcapError: libpcap is missing.

    """
    if len(text) > LENGTH_MAX:
        raise FilterError(f"{len(text)} characters, at most {LENGTH_MAX} are possible")
    if "\0" in text:
        raise FilterError("it has a character of code 0")
    for short, long in _SHORT:
        text = short.sub(long, text)
    library = _libpcap()
    handle = library.pcap_open_dead(_ETHERNET, _SNAPSHOT_BYTES)
    program = _Program()
    try:
        if library.pcap_compile(handle, program, text.encode(), 1, _NETMASK_UNKNOWN) != 0:
            raise FilterError(library.pcap_geterr(handle).decode(errors="replace"))
        compiled = [
            FilterInstruction(one.code, one.jump_true, one.jump_false, one.k)
            for one in program.instructions[: program.length]
        ]
        library.pcap_freecode(program)
    finally:
        library.pcap_close(handle)
    return compiled
