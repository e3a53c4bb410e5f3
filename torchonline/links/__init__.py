r"""Links of generalized linear models: the mean reward as a function of :math:`z = x^\top\theta`.

Each link is a canonical exponential family. Given the past, the reward has the density
:math:`\exp\{(rz - m(z))/g + h(r)\}`. Its mean is :math:`\mu(z) = m'(z)`, and its variance is :math:`g\,\mu'(z)`.

=================  =======================  =================  ==========================  ==============
link               mean                     slope              rewards                     dispersion g
=================  =======================  =================  ==========================  ==============
:class:`Gaussian`  z                        1                  any                         noise_scale^2
:class:`Logistic`  1 / (1 + exp(-z))        p (1 - p)          in [0, 1]                   1
:class:`Binomial`  trials x logistic        trials p (1 - p)   0, 1, ..., trials           1
:class:`Poisson`   exp(z)                   exp(z)             0, 1, 2, ...                1
:class:`Gamma`     1 / (offset - z)         the mean squared   at least 0                  1 / shape
=================  =======================  =================  ==========================  ==============

A link is an ``nn.Module`` without state. Its ``log_partition``, ``mean`` and ``slope`` take tensors and NumPy arrays.
:class:`Gaussian` is a link; the noise of an environment is :class:`torchonline.environments.GaussianNoise`.
"""

from torchonline.links.base import Link
from torchonline.links.custom import CustomLink
from torchonline.links.families import Binomial, Gamma, Gaussian, Logistic, Poisson

__all__ = ["Binomial", "CustomLink", "Gamma", "Gaussian", "Link", "Logistic", "Poisson"]
