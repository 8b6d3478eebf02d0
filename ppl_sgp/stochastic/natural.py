"""Natural-gradient steps for Gaussian posteriors of whitened inducing values.

The natural parameters of ``q(v) = N(m, S)`` are the precision ``Λ = S⁻¹`` and the shift Λm. A step of size ρ goes to

    Λ ← (1 − ρ)Λ + ρ(I + c V diag(h) Vᵀ),  Λm ← (1 − ρ)Λm + ρ c V(g + h∘μ),

with averages g of gradients and h of curvatures of the log densities at the rows of a batch, whose means are μ, and n/b
for c (Hensman and others 2013, eqs 8-9; Khan & Lin 2017). For Gaussian noise and all rows a step of size one is exact.
Where curvatures may be negative, ``½(Λ + (Λ + ρG)Λ⁻¹(Λ + ρG))`` for the first, G being target less Λ: positive definite
whatever G (Lin, Schmidt & Khan 2020, eq 19).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from ..likelihoods.likelihood import Likelihood
from .whitened import Features, Whitened, predictors


class Natural(NamedTuple):
    """Precisions (K, m, m) and shifts (K, m) of K functions."""

    precision: jax.Array
    shift: jax.Array

    @classmethod
    def prior(cls, num_functions: int, num_points: int) -> Natural:
        """That of N(0, I)."""
        prior = Whitened.prior(num_functions, num_points)
        return cls(prior.root, prior.loc)

    @classmethod
    def of(cls, q: Whitened) -> Natural:
        """Those of a posterior, by the inverse of its root, lower or upper."""
        inverse = jnp.linalg.inv(q.root)
        precision = inverse.swapaxes(1, 2) @ inverse
        return cls(precision, jnp.einsum("kij,kj->ki", precision, q.loc))

    def whitened(self) -> Whitened:
        """Mean and a root of the covariance, the transposed inverse of the Cholesky factor. O(K m³)."""
        factor = jnp.linalg.cholesky(self.precision, symmetrize_input=False)
        eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
        root = jax.vmap(lambda L, one: solve_triangular(L, one, lower=True))(factor, eye).swapaxes(1, 2)
        half = jnp.einsum("kji,kj->ki", root, self.shift)
        return Whitened(jnp.einsum("kij,kj->ki", root, half), root)


class Sums(NamedTuple):
    """What rows say: ``Σ hᵢvᵢvᵢᵀ`` (K, m, m) and ``Σ vᵢ(gᵢ + hᵢμᵢ)`` (K, m)."""

    curvature: jax.Array
    pull: jax.Array


def row_sums(
    likelihood: Likelihood,
    q: Whitened,
    features: Features,
    level: Any,
    y: jax.Array,
    parameters: jax.Array,
    weights: Any,
) -> Sums:
    """Sums over rows at a posterior, each row counted so often: O(K m² b).

    :param weights: a number, or one a row, (b,).
    """
    averages = likelihood.averaged(*predictors(likelihood, q, features, level), y, parameters)
    if likelihood.num_latents == 1:
        gradient, curvature = averages.gradient[None], averages.curvature[None]
    else:
        gradient = averages.gradient.T
        curvature = jnp.diagonal(averages.curvature, axis1=-2, axis2=-1).T
    V = features.V
    mean = q.loc @ V
    weights = jnp.broadcast_to(jnp.asarray(weights, V.dtype), V.shape[1:])[None]
    scaled = V[None] * (weights * curvature)[:, None, :]
    return Sums(scaled @ V.T, (weights * (gradient + curvature * mean)) @ V.T)


def natural_step(likelihood: Likelihood, current: Natural, q: Whitened, sums: Sums, size: Any) -> Natural:
    """A step from ``current``, which is ``q``. O(K m²), and O(K m³) where curvatures may be negative.

    :param sums: over all rows, or estimates of these.
    :param size: ρ, of at most one.
    """
    target = jnp.eye(q.loc.shape[-1], dtype=q.loc.dtype)[None] + sums.curvature
    precision = current.precision + size * (target - current.precision)
    if likelihood.is_log_concave:
        return Natural(precision, current.shift + size * (sums.pull - current.shift))
    # ½(Λ + AΛ⁻¹A) with A = Λ + ρG and Λ⁻¹ = root rootᵀ; the mean goes to m + ρΛ⁻¹(gradient in m).
    half = q.root.swapaxes(1, 2) @ precision
    precision = 0.5 * (current.precision + half.swapaxes(1, 2) @ half)
    ascent = sums.pull - jnp.einsum("kij,kj->ki", target, q.loc)
    loc = q.loc + size * jnp.einsum("kij,klj,kl->ki", q.root, q.root, ascent)
    return Natural(precision, jnp.einsum("kij,kj->ki", precision, loc))
