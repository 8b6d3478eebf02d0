"""The inputs themselves as features: Bayesian linear regression."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel, Linear, Polynomial
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import checked_kernel


@pytree_dataclass
class LinearBasis(Basis):
    """Features ``[1, x₁, …, x_d]``, or without the constant.

    A trend beside the features of a Gaussian process, or a linear model of its own: weights are the
    intercept and the slopes. Inputs are taken as they come, so centre them first if the intercept is
    to mean the level of the data.

    :param input_dim: the number of input columns d.
    :param bias: whether there is a constant feature, the first one.
    :raises ValueError: if ``input_dim`` is not a positive integer.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.LinearBasis(input_dim=2)
        >>> basis.host_features([[3.0, 4.0]]).tolist()
        [[1.0, 3.0, 4.0]]
        >>> basis.weight_prior(sgp.Linear(weight_scale=[0.5, 2.0], bias=10.0)).scale.tolist()
        [10.0, 0.5, 2.0]
    """

    dim: int = static()
    bias: bool = static(default=True)

    def __init__(self, input_dim: int, bias: bool = True) -> None:
        object.__setattr__(self, "dim", checks.whole_number("input_dim", input_dim, 1, "LinearBasis"))
        object.__setattr__(self, "bias", bool(bias))

    @property
    def num_features(self) -> int:
        """The number of features m: d, and one for the constant."""
        return self.dim + self.bias

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.dim

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is the constant, shape (m,), Boolean."""
        return np.arange(self.num_features) < self.bias

    def feature_names(self, inputs: Sequence[str]) -> list[str]:
        """``constant``, and the names of the inputs."""
        return ["constant"] * self.bias + list(inputs)

    def features(self, X: Any, xp: ModuleType) -> Any:
        return xp.concatenate([xp.ones_like(X[:, :1]), X], axis=1) if self.bias else X

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Prior standard deviations of intercept and slopes; f then has the kernel exactly. O(d).

        :param kernel: a :class:`~ppl_sgp.Linear` kernel; its hyperparameters may be traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,).
        :raises ValueError: for another kernel, or one with a bias for a basis without.
        """
        remedy = "For a sum of kernels stack a basis for each; for curves see PolynomialBasis."
        linear = checked_kernel(kernel, Linear, "LinearBasis", remedy)
        if not self.bias and not (checks.is_concrete(linear.bias) and float(linear.bias) == 0):  # type: ignore[arg-type]
            raise ValueError(
                "LinearBasis: the kernel has a `bias`, but the basis was made with `bias=False`. Leave it out of the "
                "kernel, or make the basis with `bias=True`."
            )
        scales = log_input_scales(linear, self.dim)
        return DiagonalPrior.from_log_scale(scales if self.bias else scales[1:])


def log_input_scales(kernel: Linear | Polynomial, input_dim: int) -> jax.Array:
    """Logarithms of a kernel's bias and input scales, (d + 1,), with no bias as one that underflows when squared."""
    dtype = checks.common_dtype(*jax.tree.leaves(kernel))
    return jnp.log(jnp.maximum(kernel.input_scales(input_dim, dtype), jnp.finfo(dtype).tiny))
