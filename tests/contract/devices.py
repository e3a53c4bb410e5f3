"""Rule 10: no constant and no reading of values ties a learner to the CPU."""

from tests.contract.matrix import rule
from tests.fake_device import failures
from tests.learners import Case


@rule(10)
def runs_on_a_device_of_its_own(case: Case) -> None:
    """Nothing meets a tensor of another device, and no value is asked for, on a device that only shapes exist on."""
    assert failures(str(case)) == []
