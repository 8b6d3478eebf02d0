"""Covariance functions: value, diagonal, spectral density and spectral sampling; sums and products.

Every base kernel with a spectral density is a scale mixture of Gaussians, and that one fact gives all of its spectral
side (the others are Constant, Categorical, Periodic, Linear, Polynomial, ArcCosine and ArcSine, which have none).
A frequency of the kernel (cycles per unit of ``x``) is ``mix * z / (2 pi lengthscale)`` with ``z`` standard
normal in ``d`` dimensions, and ``mix**2`` is

* 1 for the squared exponential,
* ``1 / m`` with ``m ~ Gamma(nu) / nu`` for the Matern kernel of smoothness ``nu``,
* ``m`` with ``m ~ Gamma(alpha) / alpha`` for the rational quadratic.

Matern kernels of other orders are left out: JAX has no derivative of the Bessel function K in its order, which a free
order needs, and data hardly tell orders of 7/2 and more from the squared exponential (Rasmussen & Williams 2006,
section 4.2.1). Between smoothnesses choose by evidence.

Conventions: an amplitude is a standard deviation, and ``S(xi) = int k(tau) exp(-2 pi i xi . tau) dtau``, hence
``int S(xi) dxi = k(0) = amplitude**2``. Results follow the dtype of the arrays passed in; Python numbers do
not promote.

References: Rasmussen & Williams (2006), chapter 4, for the kernels and their spectra; Evans (2022), Eq. (5.13),
for the squared-exponential spectrum in cycles.
"""

from .arc_sine import ArcSine
from .categorical import Categorical
from .constant import Constant
from .kernel import Kernel, Product, Sum
from .nonstationary import ArcCosine, Linear, Polynomial
from .of_columns import OfColumns
from .periodic import Periodic
from .spectra import Spectral
from .stationary import Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential

__all__ = [
    "ArcCosine",
    "ArcSine",
    "Categorical",
    "Constant",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OfColumns",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Spectral",
    "SquaredExponential",
    "Sum",
]
