"""Gaussian posteriors of whitened inducing values: what SVGP optimises, and its bound.

With ``LLᵀ = k(Z, Z)``, ``u = Lv`` and ``q(v) = N(m, S)``, a row has features ``v(x) = L⁻¹k(Z, x)`` and

    q(f(x)) = N(v(x)ᵀm, k(x, x) − ‖v(x)‖² + v(x)ᵀSv(x)),
    bound   = Σᵢ E_q(fᵢ) log p(yᵢ | fᵢ) − KL(N(m, S) ‖ N(0, I))        (Hensman and others 2015, eq 19).

K functions (predictors of one row) share kernel and points, and are independent in q.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from ..evidence.inducing import factor_at_points
from ..evidence.inducing_blocks import Parameters
from ..kernels import Kernel
from ..likelihoods.likelihood import Likelihood
from .expectation import expected_log_prob


class Whitened(NamedTuple):
    """``q(v) = N(loc, root rootᵀ)`` of K functions and m points.

    :ivar loc: (K, m).
    :ivar root: triangular, lower or upper, (K, m, m).
    """

    loc: jax.Array
    root: jax.Array

    @classmethod
    def prior(cls, num_functions: int, num_points: int) -> Whitened:
        """The prior, N(0, I)."""
        eye = jnp.eye(num_points)
        return cls(jnp.zeros((num_functions, num_points)), jnp.broadcast_to(eye, (num_functions, *eye.shape)))

    def divergence(self) -> jax.Array:
        """``KL(q ‖ N(0, I))``, in nats, of all functions together."""
        spread = jnp.sum(self.root**2) + jnp.sum(self.loc**2) - self.loc.size
        log_determinant = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.root, axis1=1, axis2=2))))
        return 0.5 * spread - log_determinant

    def moments(self, features: Features) -> tuple[jax.Array, jax.Array]:
        """Means and variances of f, (K, b) each."""
        spread = jnp.sum((self.root.swapaxes(1, 2) @ features.V) ** 2, axis=1)
        return self.loc @ features.V, spread + features.lacking[None]


class Features(NamedTuple):
    """``V = L⁻¹k(Z, X)`` (m, b), and the variance that it lacks at each row (b,)."""

    V: jax.Array
    lacking: jax.Array


def inverse_root(kernel: Kernel, Z: jax.Array) -> jax.Array:
    """``L⁻¹`` for ``LLᵀ = k(Z, Z)`` and a jitter, in O(m³)."""
    L = factor_at_points(kernel, Z)
    return solve_triangular(L, jnp.eye(len(L), dtype=L.dtype), lower=True)


def point_features(kernel: Kernel, Z: jax.Array, X: jax.Array) -> Features:
    """Features of rows (b, d) at points (m, d): O(m³ + m²b)."""
    V = Parameters(kernel, Z, inverse_root(kernel, Z)).whitened(X)
    return Features(V, jnp.maximum(kernel.diag(X) - jnp.sum(V**2, axis=0), 0))


def predictors(likelihood: Likelihood, q: Whitened, features: Features, level: Any) -> tuple[jax.Array, jax.Array]:
    """Means and variances of ``level + f`` as the likelihood takes them: (b,), or (b, K) and (b, K, K).

    :param level: (K,).
    """
    mean, variance = q.moments(features)
    mean = mean + jnp.asarray(level, mean.dtype)[:, None]
    return for_likelihood(likelihood, mean, variance)


def for_likelihood(likelihood: Likelihood, mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances (K, b) as the likelihood takes them: (b,), or (b, K) and (b, K, K)."""
    if likelihood.num_latents == 1:
        return mean[0], variance[0]
    return mean.T, variance.T[:, :, None] * jnp.eye(len(mean), dtype=mean.dtype)[None]


def rows_term(
    likelihood: Likelihood, q: Whitened, features: Features, level: Any, y: jax.Array, parameters: jax.Array
) -> jax.Array:
    """``E log p(y | level + f)`` of each row, (b,)."""
    return expected_log_prob(likelihood, *predictors(likelihood, q, features, level), y, parameters)
