"""The imaginary device catches what it is there to catch; rule 10 of the contract runs every learner on it."""

import json
import subprocess
import sys

from tests import fake_device

PROGRAM = """
import json
import torch
from tests import fake_device
from torchonline import UCB, RidgeRegression

FAULTS = {
    "none": lambda self, radius: radius,
    "a constant of the CPU": lambda self, radius: radius + torch.ones(1),
    "a value read": lambda self, radius: radius * radius.sum().item(),
    "a branch on a value": lambda self, radius: radius if bool((self.V > 0).all()) else 2.0 * radius,
}

fake_device.install()
fake_device.pretend_to_be_real()
found = {}
for name, fault in FAULTS.items():

    class Planted(RidgeRegression):
        def radius(self):
            return fault(self, super().radius())

    found[name] = list(fake_device.problems(lambda **options: UCB(Planted(fake_device.DIM, **options))))
print(json.dumps(found))
"""

CAUGHT = {
    "a constant of the CPU": "FakeTensorDeviceMismatchError",
    "a value read": "DataDependentOutputException",
    "a branch on a value": "DataDependentOutputException",
}


def test_planted_faults_are_caught() -> None:
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, env=fake_device.environment(), timeout=300)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found.pop("none") == []
    assert found.keys() == CAUGHT.keys()
    for name, error in CAUGHT.items():
        assert len(found[name]) == 2
        assert all(error in problem for problem in found[name])
