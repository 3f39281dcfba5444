"""Switches over P4Runtime: `pacing_switch` and `simple_switch_grpc`."""

from pacer_controller.p4rt.switch import P4Switch

__all__ = ["P4Switch"]
