"""Links from the textbook, in NumPy: log-partition, mean, slope, by the name of the class."""

import numpy as np
from scipy.special import expit

LINKS = {
    "Gaussian": (lambda z: 0.5 * z * z, lambda z: z, lambda z: np.ones_like(z)),
    "Logistic": (lambda z: np.logaddexp(0.0, z), expit, lambda z: expit(z) * expit(-z)),
    "Binomial": (lambda z: 5 * np.logaddexp(0.0, z), lambda z: 5 * expit(z), lambda z: 5 * expit(z) * expit(-z)),
    "Poisson": (np.exp, np.exp, np.exp),
    "Gamma": (lambda z: -np.log(12.0 - z), lambda z: 1.0 / (12.0 - z), lambda z: (12.0 - z) ** -2.0),
    "CustomLink": (np.cosh, np.sinh, np.cosh),
}
