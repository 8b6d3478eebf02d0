"""The constant kernel: a level that is the same everywhere."""

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
class Constant(Kernel):
    """``amplitude**2`` for all pairs of inputs: f is one number everywhere. Add it to a kernel for an unknown level.

    :param amplitude: standard deviation of the level, units of ``f``.
    :raises ValueError: if it is not a positive number.

    >>> import numpy as np
    >>> Constant(2.0)(np.zeros((1, 1)), np.ones((2, 1))).tolist()
    [[4.0, 4.0]]
    """

    amplitude: ArrayLike = 1.0
    separable = True

    def __post_init__(self) -> None:
        checks.positive("amplitude", self.amplitude, "Constant")
        if np.ndim(self.amplitude):
            raise ValueError(f"Constant: `amplitude` must be a scalar; got shape {np.shape(self.amplitude)}.")

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        X, X2 = input_pair(self, X, X2)
        shape = (np.shape(X)[0], np.shape(X2)[0])
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype_of(self, X, X2)) ** 2, shape)

    def diag(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, "Constant")
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype_of(self, X)) ** 2, np.shape(X)[:1])

    def along_inputs(self, input_dim: int) -> tuple[Kernel, ...]:
        """The kernel of the first input, and ones."""
        return (self, *(Constant(1.0) for _ in range(input_dim - 1)))
