"""Prior precisions of weights as estimators ask for them: of independent weights, and ``S = k(X, X)``."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from .._internal.pytree import pytree_dataclass
from ..bases.frozen_kernel import covariances, evaluate, variances
from ..kernels import Kernel
from . import estimators
from .estimators import Sets


class Given(NamedTuple):
    """What is known of the union, and of all weights.

    :ivar union: numbers of functions, (u,).
    :ivar unit: units of the weights, (u,): all else is in these.
    :ivar precision: prior precisions of independent weights, (u,).
    :ivar features: of a control variate, (r, u), with their products with all of μ, (r,), and C, (r, K).
    """

    union: jax.Array
    unit: jax.Array
    precision: jax.Array
    features: Any
    of_mu: jax.Array
    of_columns: jax.Array


@pytree_dataclass
class DiagonalPrecision:
    """Independent weights, whose precisions the step knows."""

    def terms(self, mu: jax.Array, diagonal: jax.Array, columns: jax.Array, sets: Sets, given: Given) -> jax.Array:
        """``μᵀSμ + tr SΣ − log|S|`` without bias, from sums over one set (proposition 6.2 of Evans 2022)."""
        square = mu**2 + diagonal**2 + jnp.sum(columns**2, axis=1)
        return sets.total(given.precision * square - jnp.log(given.precision))

    def diagonal(self, given: Given) -> jax.Array:
        """The diagonal of S at the union, (u,)."""
        return given.precision

    def pull(self, given: Given) -> jax.Array:
        """The precisions that pull each weight towards zero by itself, (u,)."""
        return given.precision

    def features(self, union: jax.Array, unit: jax.Array) -> jax.Array:
        """No control variate is needed: (0, u)."""
        return jnp.zeros((0, len(union)), unit.dtype)


@pytree_dataclass
class KernelPrecision:
    """``S = k(Z, Z)`` for features ``k(x, Z)``: a GP of covariance ``k(x, Z) k(Z, Z)⁻¹ k(Z, x)`` (section 6.4.5).

    :param centres: Z, (m, d).
    :param kernel: k.
    :param points: points U of the Nyström control variate, (r, d); r may be zero.
    :param root: Cholesky factor of k(U, U), (r, r).
    """

    centres: Any
    kernel: Kernel
    points: Any
    root: Any

    def terms(self, mu: jax.Array, diagonal: jax.Array, columns: jax.Array, sets: Sets, given: Given) -> jax.Array:
        """``μᵀSμ + tr SΣ`` without bias: products of two sets, with a control variate (D.1.2 of Evans 2022)."""
        chosen = jnp.take(self.centres, given.union, axis=0, mode="clip").astype(mu.dtype)
        S = evaluate(covariances, (self.kernel, chosen), chosen, jnp) * given.unit[:, None] * given.unit[None, :]
        often = sets.share * sets.first, sets.share * sets.second
        total = (often[1] * mu) @ S @ (often[0] * mu)
        total += sets.total(sets.alone(columns) * self.diagonal(given) * diagonal**2)
        if columns.shape[1]:
            C = sets.factor(diagonal, columns)
            total += jnp.sum((often[1][:, None] * C) * (S @ (often[0][:, None] * C)))
        if self.points.shape[0]:
            total += estimators.control(given.features, mu, sets, given.of_mu, 1.0)
            if columns.shape[1]:
                total += estimators.control(given.features, C, sets, given.of_columns, 1.0)
        return total

    def diagonal(self, given: Given) -> jax.Array:
        """The diagonal of S at the union, (u,)."""
        chosen = jnp.take(self.centres, given.union, axis=0, mode="clip").astype(given.unit.dtype)
        return evaluate(variances, self.kernel, chosen, jnp) * given.unit**2

    def pull(self, given: Given) -> jax.Array:
        """None: weights pull on each other."""
        return jnp.zeros_like(given.unit)

    def features(self, union: jax.Array, unit: jax.Array) -> jax.Array:
        """``L⁻¹k(U, Z_I)`` in units of the weights, (r, u)."""
        if not self.points.shape[0]:
            return jnp.zeros((0, len(union)), unit.dtype)
        chosen = jnp.take(self.centres, union, axis=0, mode="clip").astype(unit.dtype)
        values = evaluate(covariances, (self.kernel, chosen), jnp.asarray(self.points, unit.dtype), jnp)
        return solve_triangular(jnp.asarray(self.root, unit.dtype), values, lower=True) * unit[None, :]
