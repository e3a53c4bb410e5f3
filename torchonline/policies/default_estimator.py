"""The default estimator of a policy: ridge regression on a number of features."""

import functools
import inspect
from typing import Any

from torchonline.core.checks import kind, positive_integer
from torchonline.core.options import LearnerOptions, family_of
from torchonline.regression.estimator import Estimator
from torchonline.regression.ridge import RidgeRegression


class RidgeOptions(LearnerOptions, total=False):
    """Arguments of the default estimator, ridge regression, for ``Unpack``."""

    dim: int
    noise_scale: float
    theta_bound: float
    ridge: float
    delta: float
    radius: str
    radius_scale: float
    restart_every: int | None


def estimator_or_default(policy: str, estimator: Any, options: Any) -> Any:
    """Return the given estimator, or ridge regression; or raise.

    An estimator must have one response, and allows no ``options``. A number of features, as ``estimator`` or as the option
    ``dim``, builds ridge regression with the ``options``. ``policy`` is the class's name in errors.
    """
    options = {name: value for name, value in options.items() if name != "dim" or value is not None}
    for name in options:
        if name not in RidgeOptions.__annotations__:
            raise TypeError(f"{policy}() got an unexpected keyword argument {name!r}")
    if isinstance(estimator, Estimator) and not estimator.output_shape:
        for name, value in options.items():
            wanted = f"expected this option in the constructor of the {type(estimator).__name__}"
            raise TypeError(f"{name}: {wanted}, got {value!r} beside an estimator that is already built")
        return estimator
    if estimator is None and "dim" in options:
        return RidgeRegression(**options)
    try:
        dim = positive_integer("estimator", estimator)
    except TypeError:
        wanted = "expected an Estimator or a number of features"
        raise TypeError(f"estimator: {wanted}, got {kind(estimator)}") from None
    if "dim" in options:
        raise TypeError(f"dim: expected one number of features, got estimator={dim} and dim={options['dim']!r}")
    return RidgeRegression(dim, **options)


def suggestion(value: Any) -> str:
    """Return an error's suggestion for a number, or an empty string."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f" such as RidgeRegression({value})" if is_number else ""


class PolicySignature:
    """The signature of a policy's class, with the options of ridge regression."""

    def __get__(self, instance: Any, cls: Any) -> inspect.Signature:
        if instance is not None:  # instances are called with arms
            raise AttributeError("__signature__")
        return _signature_of(cls)


@functools.cache
def _signature_of(cls: Any) -> inspect.Signature:
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if family_of(own) is RidgeOptions:
        own = [one.replace(annotation=Estimator | int | None) if one.name == "estimator" else one for one in own[:-1]]
        taken = {parameter.name for parameter in own}
        (dim, *theirs) = inspect.signature(RidgeRegression).parameters.values()
        theirs = [dim.replace(kind=dim.KEYWORD_ONLY, default=None, annotation=int | None), *theirs]
        own += [one for one in theirs if one.name in RidgeOptions.__annotations__ and one.name not in taken]
    return inspect.Signature(own)
