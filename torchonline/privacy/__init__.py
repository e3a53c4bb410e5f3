"""Differential privacy under continual release: noise, calibration, accounting."""

from torchonline.privacy.accounting import (
    Accountant,
    BoundedRangeEvent,
    Event,
    GaussianAccountant,
    GaussianEvent,
    Ledger,
    NonPrivateEvent,
    PureAccountant,
    PureEvent,
    RepeatedEvent,
    SmallStepsEvent,
    ZCDPAccountant,
    ZCDPEvent,
)
from torchonline.privacy.audit import AuditResult, clopper_pearson, epsilon_lower_bound
from torchonline.privacy.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from torchonline.privacy.clipping import clipped
from torchonline.privacy.composition import private_learners, total_ledger
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.mechanisms.blt import trace_lower_bound
from torchonline.privacy.mechanisms.prefix_sums import PrefixSum, prefix_sum
from torchonline.privacy.noise import NoiseSource, noise_source
from torchonline.privacy.small_steps import small_steps_mu

__all__ = [
    "Accountant",
    "AuditResult",
    "BoundedRangeEvent",
    "Event",
    "GaussianAccountant",
    "GaussianEvent",
    "Ledger",
    "NoiseSource",
    "NonPrivateEvent",
    "PrefixSum",
    "PrivateLearner",
    "PureAccountant",
    "PureEvent",
    "RepeatedEvent",
    "SmallStepsEvent",
    "ZCDPAccountant",
    "ZCDPEvent",
    "clipped",
    "clopper_pearson",
    "epsilon_lower_bound",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "noise_source",
    "prefix_sum",
    "private_learners",
    "small_steps_mu",
    "total_ledger",
    "trace_lower_bound",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
