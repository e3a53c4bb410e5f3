"""Rule 10 on an imaginary device, in a process that has it."""

from tests.fake_device import failures
from torchonline.testing.rules import Rule
from torchonline.testing.subject import Subject
from torchonline.testing.tools import require


def runs_on_another_device(subject: Subject) -> None:
    """No operation mixes devices, and no value is asked for, on a device whose tensors have only shapes."""
    require(not (wrong := failures(str(subject))), f"on an imaginary device: {wrong}")


ON_ANOTHER_DEVICE = Rule(10, runs_on_another_device, of_estimators=True, of_deciders=True)
