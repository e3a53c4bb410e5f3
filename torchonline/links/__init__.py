"""Links of generalized linear models: the mean reward at ``z = x'theta``."""

from torchonline.links.base import Link
from torchonline.links.custom import CustomLink
from torchonline.links.families import Binomial, Gamma, Gaussian, Logistic, Poisson

__all__ = ["Binomial", "CustomLink", "Gamma", "Gaussian", "Link", "Logistic", "Poisson"]
