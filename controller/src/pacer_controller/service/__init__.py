"""Carries out requests: checks them against the whole state, stores, applies and reports."""

from pacer_controller.service.checks import NO_CONDITION, Condition
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch, Origin

__all__ = ["NO_CONDITION", "Condition", "ManagedSwitch", "Origin", "Service"]
