"""Logs with decisions in them."""

import torch

from torchonline import OFUL
from torchonline.feedback import FeedbackLog

ARMS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)


def fill(log: FeedbackLog, rounds: int, seed: int = 0, start: int = 0) -> None:
    """Log decisions and rewards of 0 or 1, of which a tenth never comes."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(start, start + rounds):
        action = int(torch.randint(3, (), generator=generator))
        log.decide(f"decision {i}", ARMS, action, 1 / 3, time=float(i))
        value = float(torch.rand((), generator=generator))
        if value > 0.1:
            log.reward(f"decision {i}", value, time=float(i))


def learnt_from(log: FeedbackLog) -> dict[str, torch.Tensor]:
    """Return the state of a learner that has learnt all rounds of a log without a stop."""
    policy = OFUL(2)
    for entry in log.read(limit=10**6):
        policy.step(entry.inputs, entry.action, torch.tensor(entry.reward, dtype=torch.float64))
    return policy.state_dict()
