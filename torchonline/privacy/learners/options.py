"""Constructor options that all private learners share."""

import inspect
from typing import Required, Unpack

from torchonline.core.options import LearnerOptions
from torchonline.privacy.noise import NoiseSource


class PrivateOptions(LearnerOptions, total=False):
    """Options of all private learners. ``PrivateLearner`` explains them and sets their defaults."""

    horizon: Required[int]
    epsilon: Required[float]
    delta: Required[float]
    adjacency: str
    max_participations: int
    noise_source: str | NoiseSource
    seed: int | None


def signature_with(signature: inspect.Signature, promise: inspect.Signature) -> inspect.Signature:
    """Return a constructor's signature with ``PrivateOptions`` expanded as in ``promise``, required keywords first."""
    own = list(signature.parameters.values())
    if not own or own[-1].annotation != Unpack[PrivateOptions]:
        return signature
    names = {parameter.name for parameter in own}
    keywords = [*own[:-1], *(parameter for parameter in promise.parameters.values() if parameter.name not in names)]
    keywords.sort(key=lambda parameter: (parameter.kind, parameter.default is not inspect.Parameter.empty))
    return inspect.Signature(keywords)
