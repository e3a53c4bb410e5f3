"""What the constructors of the generalized linear baselines share."""

from collections.abc import Mapping
from typing import Any

SHARED = ("dim", "horizon", "link", "theta_bound", "feature_bound", "ridge", "delta", "radius_scale")


def shared_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the base class, from a constructor's ``locals()``: the shared ones and the ``options``."""
    return {name: values[name] for name in SHARED if name in values} | values["options"]
