"""Unbiased estimators of the bound of Gaussian rows, and a bound of any log-concave likelihood, from some functions.

Of ``q(w) = N(μ, CCᵀ)``, ``w ~ N(0, S⁻¹)``, features Φ (n, m), and Gaussian noise, the bound is ``−½(L_μ + L_Σ +
const)`` (Evans 2022, eq 6.2). Sums over rows and functions are replaced by sums over random ones; a product of two
sums over functions needs two independent sets. What the thesis estimates by two or three sets where one suffices is
estimated by one: the diagonal of C apart from its dense columns, the diagonal of S. A sum over one set is the mean of
those over the two sets there are.

Arguments that all functions have: features of some rows and of the union of both sets, (b, u), ``mu`` (u,), and the
factor as ``diagonal`` (u,) with ``columns`` (u, K), zero on and above the diagonal.

References
    1. Evans, T. W. (2022), PhD thesis, theorems 6.1 to 6.3, eqs 6.2, 6.3 and 6.5, proposition 6.2. Theorem 6.3 as
       printed is not a bound (with all functions it can exceed what it should bound); see :func:`predictors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..likelihoods.expected import gauss_hermite
from ..likelihoods.likelihood import Likelihood

#: Nodes of the quadrature over the one normal that a row's predictor depends on.
NODES = 40


class Sets(NamedTuple):
    """Two independent random sets of m̃ of m functions, made by :func:`~.indices.choose`.

    Their features are computed once, over the union, which is filled up to 2m̃ with the number m, of no function.

    :ivar union: numbers of functions, ascending, shape (u,), u = 2m̃.
    :ivar first: how often each is in the first set, shape (u,); ``second`` likewise.
    :ivar share: m/m̃: a sum over one set times this estimates the sum over all functions without bias.
    """

    union: jax.Array
    first: jax.Array
    second: jax.Array
    share: jax.Array

    def total(self, values: jax.Array) -> jax.Array:
        """An estimate of the sum over all functions of values (u, …) of those in the union."""
        return 0.5 * self.share * jnp.tensordot(self.first + self.second, values, axes=1)

    def factor(self, diagonal: jax.Array, columns: jax.Array) -> jax.Array:
        """The dense columns of C at the union, their diagonals included, shape (u, K)."""
        on = self.union[:, None] == jnp.arange(columns.shape[1], dtype=self.union.dtype)[None, :]
        return columns + jnp.where(on, diagonal[:, None], jnp.zeros_like(columns))

    def alone(self, columns: jax.Array) -> jax.Array:
        """Which of the union have no dense column of C, shape (u,)."""
        return (self.union >= columns.shape[1]).astype(self.first.dtype)


def products(Phi: jax.Array, vectors: jax.Array, sets: Sets) -> tuple[jax.Array, jax.Array]:
    """Two independent estimates of Φv, for a vector (u,) or several (u, k), from the two sets."""
    often = [part.reshape(-1, *[1] * (vectors.ndim - 1)) for part in (sets.first, sets.second)]
    first, second = (sets.share * (Phi @ (each * vectors)) for each in often)
    return first, second


def squared_error(Phi: jax.Array, y: jax.Array, mu: jax.Array, sets: Sets, scale: Any) -> jax.Array:
    """``‖y − Φμ‖²`` without bias: the data terms of L_μ (theorem 6.1 of [1]) and of the constant, times σ².

    :param y: outcomes of the rows, (b,).
    :param scale: n/b.
    """
    first, second = products(Phi, mu, sets)
    return scale * jnp.sum((y - first) * (y - second))


def squared_spread(Phi: jax.Array, diagonal: jax.Array, columns: jax.Array, sets: Sets, scale: Any) -> jax.Array:
    """``‖ΦC‖²`` without bias: the data term of L_Σ (theorem 6.2 of [1]), times σ²; dense columns one by one."""
    own = scale * sets.total(sets.alone(columns) * jnp.sum(Phi**2, axis=0) * diagonal**2)
    if not columns.shape[1]:
        return own
    first, second = products(Phi, sets.factor(diagonal, columns), sets)
    return own + scale * jnp.sum(first * second)


def control(
    Phi: jax.Array, vectors: jax.Array, sets: Sets, known: jax.Array, scale: Any, y: jax.Array | None = None
) -> jax.Array:
    """What has mean zero and goes along with the error of estimates of ``‖y − Φv‖²`` (eq 6.3 of [1], times σ²).

    The rows are n̄ ones that stay, scaled by n/n̄. With y = 0 it is for ``‖ΦC‖²``, and with ``L⁻¹k(U, ·)`` in place of Φ
    for a quadratic form in ``k(X, U) k(U, U)⁻¹ k(U, X)`` (Nyström, appendix D.1.2 of [1]).
    Its gradient needs all functions; that of the union alone is taken, weighed by how often each is there, which is
    unbiased too (appendix D.1.1 of [1], with m/|I| instead).

    :param Phi: features of the rows, (n̄, u).
    :param vectors: v at the union, (u,) or (u, k).
    :param known: Φv with all functions, (n̄,) or (n̄, k): a constant here.
    :param y: (n̄,); zero if ``None``.
    """
    y = jnp.zeros_like(known) if y is None else y
    first, second = products(Phi, vectors, sets)
    moved = sum(products(Phi, vectors - jax.lax.stop_gradient(vectors), sets))
    left = y - known
    return scale * (jnp.sum(left**2) - jnp.sum(left * moved) - jnp.sum((y - first) * (y - second)))


def predictors(
    Phi: jax.Array, mu: jax.Array, diagonal: jax.Array, columns: jax.Array, sets: Sets
) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of a random predictor of each row, (b,) each, for a bound of ``E_q log p(y | w)``.

    Given w = μ + Cε and the row, the sum over random functions times m/m̃ has the mean φᵀw. So by Jensen's inequality
    ``E log g((m/m̃) φ_i(μ_i + C_i ε)) ≤ E log g(φᵀw)`` for log-concave g, where given the functions the argument is
    normal. That is theorem 6.3 of [1], corrected: printed are three sums, and a variance in place of a standard
    deviation, which is no bound. One set for μ, C and all its columns suffices, and is tighter than two; here it is
    both sets taken together. With all functions there is equality.
    """
    often = 0.5 * (sets.first + sets.second)
    mean = sets.share * (Phi @ (often * mu))
    variance = (Phi**2) @ ((often * diagonal) ** 2 * sets.alone(columns))
    if columns.shape[1]:
        variance = variance + jnp.sum((Phi @ (often[:, None] * sets.factor(diagonal, columns))) ** 2, axis=1)
    return mean, sets.share * jnp.sqrt(variance + jnp.finfo(variance.dtype).tiny)


def expected_log_prob(
    likelihood: Likelihood, mean: jax.Array, deviation: jax.Array, y: jax.Array, parameters: jax.Array
) -> jax.Array:
    """``E log p(y | η)`` of each row, (b,), of predictors ``η ~ N(mean, deviation²)``.

    In closed form where the likelihood has one, else by Gauss-Hermite quadrature over one scalar (eq 6.5 of [1], where
    the standard deviation is printed as a variance).
    """
    if type(likelihood).averaged is not Likelihood.averaged:
        return likelihood.averaged(mean, deviation**2, y, parameters).log_prob
    nodes, weights = (jnp.asarray(part, mean.dtype) for part in gauss_hermite(NODES))
    values = jax.vmap(lambda node: likelihood.log_prob(mean + node * deviation, y, parameters))(nodes)
    return weights @ values
