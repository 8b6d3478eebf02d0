"""The kernel of a function together with its derivatives, by automatic differentiation."""

from __future__ import annotations

from typing import Any

import jax
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
class DerivativeKernel(Kernel):
    """Covariances between values and first derivatives of a function with a given kernel.

    Inputs have a column more than those of the kernel, the last one, which says what a row is of: 0 for ``f(x)``, and
    j from 1 to d for ``∂f/∂x_j``. So an exact GP sees slopes as rows (Rasmussen & Williams 2006, section 9.4):
    ``Cov(∂ᵢf(x), ∂ⱼf(x')) = ∂ᵢ∂'ⱼ k(x, x')``. Some four times the cost of the kernel. On a basis there is
    :class:`~ppl_sgp.DerivativeBasis`, and :func:`~ppl_sgp.predict_gradient` needs neither.

    :param kernel: the kernel of f, of d inputs.
    :raises ValueError: for a kernel whose functions have no derivatives, such as :class:`~ppl_sgp.Matern12`, or none;
        when called, for a last column that is not whole numbers from 0 to d, where it can be read.

    >>> import numpy as np
    >>> from ppl_sgp.kernels import SquaredExponential
    >>> kernel = DerivativeKernel(SquaredExponential(2.0))
    >>> kernel(np.array([[0.0, 0], [0.0, 1]])).tolist()
    [[1.0, 0.0], [0.0, 0.25]]
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_differentiable(self.kernel, "DerivativeKernel")

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """False: the last column has no derivative, and second derivatives are not looked at."""
        return False

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        X, X2 = input_pair(self, X, X2)
        dtype = dtype_of(self, X, X2)
        (left, codes, V), (right, codes2, V2) = (_separated(inputs, dtype) for inputs in (X, X2))

        def along_second(left: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda right: self.kernel(left, right), (right,), (V2,))

        # A row of a covariance depends on its own inputs alone: one tangent has the direction of every row.
        (values, second), (first, both) = jax.jvp(along_second, (left,), (V,))
        in_second = (codes2 > 0)[None, :]
        return jnp.where((codes > 0)[:, None], jnp.where(in_second, both, first), jnp.where(in_second, second, values))

    def diag(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, "DerivativeKernel")
        inputs, codes, V = _separated(X, dtype_of(self, X))

        def of_row(x: Array, v: Array) -> Array:
            def along_second(left: Array) -> Array:
                return jax.jvp(lambda right: self.kernel(left[None], right[None])[0, 0], (x,), (v,))[1]

            return jax.jvp(along_second, (x,), (v,))[1]

        return jnp.where(codes > 0, jax.vmap(of_row)(inputs, V), self.kernel.diag(inputs))


def require_differentiable(kernel: Any, owner: str) -> None:
    """Refuse what is no kernel, and kernels whose functions have no derivatives."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{owner}: `kernel` must be a kernel such as sgp.Matern52; got {type(kernel).__name__}.")
    if isinstance(kernel, DerivativeKernel):
        raise ValueError(
            f"{owner}: the kernel has a column for derivatives already: give inputs with 1 to d in their last column."
        )
    if not kernel.differentiable:
        raise ValueError(
            f"{owner}: functions of {kernel!r} have no derivatives in all inputs: the mean square of their slopes is "
            "infinite, or inputs are codes. Take a smoother kernel, such as Matern32 or Matern52."
        )


def with_codes(X: Any, codes: Any) -> np.ndarray:
    """Inputs (n, d) with what each row is of, a number or (n,), as their last column."""
    X = np.asarray(X, dtype=np.float64)
    return np.concatenate([X, np.broadcast_to(np.asarray(codes, dtype=np.float64), (len(X),))[:, None]], axis=1)


def _separated(X: Any, dtype: Any) -> tuple[Array, Array, Array]:
    """Inputs (n, d), codes (n,) and directions (n, d), zero for values."""
    d = np.shape(X)[1] - 1
    if checks.is_concrete(X) and not np.isin(np.asarray(X)[:, -1], range(d + 1)).all():
        bad = np.asarray(X)[~np.isin(np.asarray(X)[:, -1], range(d + 1)), -1][0]
        raise ValueError(
            f"DerivativeKernel: the last column of `X` must be 0 for values, or the number of an input from 1 to {d} "
            f"for derivatives; got {bad}."
        )
    X = jnp.asarray(X, dtype)
    codes = X[:, -1]
    directions = (codes[:, None] == jnp.arange(1, d + 1, dtype=dtype)[None, :]).astype(dtype)
    return X[:, :-1], codes, directions
