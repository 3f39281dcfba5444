"""Bridges of Open vSwitch: OpenFlow 1.3 for flows and meters, OVSDB for queues and their rates."""

from pacer_controller.openvswitch.switch import OpenVSwitch

__all__ = ["OpenVSwitch"]
