"""The kernel of independent levels: rows of one level share a value, others nothing."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .inputs import input_pair
from .kernel import Kernel
from .spectra import dtype_of


@pytree_dataclass
class Categorical(Kernel):
    """``amplitude**2`` where ``x = x'``, else 0: an independent value for each level of a category.

    Times a kernel of other inputs it makes independent functions, one a level, with hyperparameters that all share;
    plus a :class:`~ppl_sgp.Constant` it makes levels that have a part in common.

    :param amplitude: standard deviation of the values, units of ``f``.
    :raises ValueError: if it is not a positive number.

    >>> import numpy as np
    >>> Categorical(2.0)(np.array([[0.0], [1.0]]), np.array([[1.0]])).tolist()
    [[0.0], [4.0]]
    """

    amplitude: ArrayLike = 1.0
    separable = True
    differentiable = False

    def __post_init__(self) -> None:
        checks.positive("amplitude", self.amplitude, "Categorical")
        if np.ndim(self.amplitude):
            raise ValueError(f"Categorical: `amplitude` must be a scalar; got shape {np.shape(self.amplitude)}.")

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        X, X2 = input_pair(self, X, X2)
        same = jnp.all(jnp.asarray(X)[:, None, :] == jnp.asarray(X2)[None, :, :], axis=-1)
        dtype = dtype_of(self, X, X2)
        return jnp.asarray(self.amplitude, dtype) ** 2 * same.astype(dtype)

    def diag(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, "Categorical")
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype_of(self, X)) ** 2, np.shape(X)[:1])

    def along_inputs(self, input_dim: int) -> tuple[Kernel, ...]:
        """The kernel of the first input, and those of unit amplitude of the others."""
        return (self, *(Categorical(1.0) for _ in range(input_dim - 1)))
