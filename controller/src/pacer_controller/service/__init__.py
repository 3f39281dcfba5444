"""What requests mean: checks against the whole state, storing, applying, reporting."""

from pacer_controller.service.checks import NO_CONDITION, Condition
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch, Origin

__all__ = ["NO_CONDITION", "Condition", "ManagedSwitch", "Origin", "Service"]
