"""The modes of a class, and the settings that not all of them take."""

from collections.abc import Mapping
from typing import Literal, get_args

Mode = Literal[
    "static", "unpaced", "ipg", "timer", "pspd", "dynamic", "slow-start", "clustered", "shared"
]

MODES: tuple[Mode, ...] = get_args(Mode)

_PACED: tuple[Mode, ...] = tuple(mode for mode in MODES if mode != "unpaced")

MODES_OF_SETTING: Mapping[str, tuple[Mode, ...]] = {
    "rate": ("static", "ipg", "timer", "dynamic", "slow-start", "shared"),
    "gap_bytes": ("ipg",),
    "tick_hz": ("timer",),
    "headroom_percent": ("dynamic", "slow-start"),
    "threshold_ns": ("slow-start", "clustered"),
    "allowance_ns": _PACED,
    "window_margin_bytes": ("static", "dynamic", "slow-start", "shared"),
    "ecn_threshold_bytes": _PACED,
    "quantum_bytes": ("static",),
    "slots": ("static", "pspd", "dynamic"),
    "slot_ns": ("static", "pspd", "dynamic"),
    "slot": ("static",),
    "follow": ("static", "timer"),
}
"""The modes in which a setting has an effect. Other modes refuse it, since a client that gives it
expects an effect."""
