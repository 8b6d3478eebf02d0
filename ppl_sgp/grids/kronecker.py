"""Products with Kronecker matrices, one axis at a time; the matrices themselves are never formed.

Row-major, as NumPy and JAX order arrays: ``(A ⊗ B) x = ravel(A X Bᵀ)``, ``X = x.reshape(l, n)`` (Evans 2022, app. A,
where a column-major reshape is printed in the place of a transpose). With d axes a product costs O(M Σ m_l) in time and
O(M) in memory, for M = Π m_l cells.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._internal.batching import full_precision


def apply(factors: Sequence[Any], x: Any) -> jax.Array:
    """``(A₁ ⊗ … ⊗ A_d) x`` for arrays of cells, batched.

    :param factors: matrices (k_l, m_l), or objects that multiply one axis, such as
        :class:`~ppl_sgp.grids.toeplitz.Toeplitz`.
    :param x: shape batch + (m_1, …, m_d).
    :return: shape batch + (k_1, …, k_d).

    >>> import jax.numpy as jnp
    >>> A, B = jnp.array([[1.0, 2.0], [0.0, 1.0]]), jnp.array([[1.0, 1.0]])
    >>> apply([A, B], jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[17.0], [7.0]]
    """
    x = jnp.asarray(x)
    batch = x.shape[: x.ndim - len(factors)]
    x = jnp.moveaxis(x.reshape(-1, *x.shape[len(batch) :]), 0, -1)
    # Each factor takes the first axis and leaves its own as the last: after all of them the batch is first again.
    for factor in factors:
        with full_precision():
            x = factor.last(x) if hasattr(factor, "last") else jnp.tensordot(x, factor, ((0,), (1,)))
    return x.reshape(*batch, *x.shape[1:])


def outer(vectors: Sequence[Any]) -> jax.Array:
    """``v₁ ⊗ … ⊗ v_d`` as an array of cells, shape (m_1, …, m_d)."""
    rank = len(vectors)
    spread = [jnp.reshape(v, (1,) * axis + (-1,) + (1,) * (rank - axis - 1)) for axis, v in enumerate(vectors)]
    return functools.reduce(operator.mul, spread)


class Eigen(NamedTuple):
    """``⊗ K_l = (⊗ Q_l) diag(⊗ t_l) (⊗ Q_l)ᵀ`` of symmetric positive semi-definite factors, O(Σ m_l³).

    :ivar values: eigenvalues t_l, ascending, clipped at zero; what is below is rounding.
    :ivar vectors: eigenvectors Q_l, in columns.
    """

    values: tuple[jax.Array, ...]
    vectors: tuple[jax.Array, ...]

    @property
    def spectrum(self) -> jax.Array:
        """Eigenvalues of the product, shape (m_1, …, m_d), row-major."""
        return outer(self.values)

    def to_basis(self, x: Any) -> jax.Array:
        """Coordinates among eigenvectors, ``Qᵀx``."""
        return apply([Q.T for Q in self.vectors], x)

    def from_basis(self, x: Any) -> jax.Array:
        """``Q x``."""
        return apply(self.vectors, x)

    def log_determinant(self, noise_variance: Any) -> jax.Array:
        """``log |K + σ²I|``, O(M)."""
        return jnp.sum(jnp.log(self.spectrum + noise_variance))

    def others(self, axis: int) -> jax.Array:
        """The product of the eigenvalues of all other axes, shape (m_1, …, 1, …, m_d)."""
        ones = [jnp.ones(1, t.dtype) if number == axis else t for number, t in enumerate(self.values)]
        return outer(ones)


def eigen(factors: Sequence[Any]) -> Eigen:
    """Eigendecompositions of symmetric factors. Not to be differentiated where eigenvalues may coincide.

    >>> import jax.numpy as jnp
    >>> print(round(float(eigen([jnp.eye(2), 3 * jnp.eye(3)]).log_determinant(1.0)), 3))  # 6 log 4
    8.318
    """
    with full_precision():
        pairs = [jnp.linalg.eigh(factor) for factor in factors]
    return Eigen(tuple(jnp.maximum(t, 0) for t, _ in pairs), tuple(Q for _, Q in pairs))


def cholesky(factors: Sequence[Any]) -> tuple[jax.Array, ...]:
    """Lower factors of each axis: their Kronecker product is the Cholesky factor of the product. O(Σ m_l³)."""
    with full_precision():
        return tuple(jnp.linalg.cholesky(factor) for factor in factors)


def cholesky_log_determinant(roots: Sequence[Any]) -> jax.Array:
    """``log |⊗ L_l L_lᵀ|`` of Cholesky factors: each counts once for every cell of the other axes.

    >>> import jax.numpy as jnp
    >>> print(round(float(cholesky_log_determinant(cholesky([4 * jnp.eye(2), jnp.eye(3)]))), 3))  # 6 log 4
    8.318
    """
    size = functools.reduce(operator.mul, [len(L) for L in roots], 1)
    return sum(2 * (size // len(L)) * jnp.sum(jnp.log(jnp.diagonal(L))) for L in roots)  # type: ignore[return-value]


def at_cells(factors: Sequence[Any], rows: Any, columns: Any, shape: tuple[int, ...]) -> jax.Array:
    """Entries of ``⊗ A_l`` at flat numbers of rows and columns, shape (rows, columns). O(d · rows · columns)."""
    left, right = jnp.unravel_index(rows, shape), jnp.unravel_index(columns, shape)
    parts = [A[i[:, None], j[None, :]] for A, i, j in zip(factors, left, right, strict=True)]
    return functools.reduce(operator.mul, parts)
