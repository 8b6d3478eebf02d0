"""Posteriors of exact GPs, one a draw: a Cholesky factor of the rows' covariance, O(n³), answers all questions.

With ``K + σ²Ω⁻¹ = σ²Ω^-½ LLᵀ Ω^-½`` and ``d = (K + σ²Ω⁻¹)⁻¹y``, new rows have mean ``k*ᵀd`` and covariance
``k** − VᵀV``, ``V = L⁻¹Ω^½k*/σ`` (Rasmussen & Williams 2006, eqs 2.25 and 2.26); and without row i its residual is
``dᵢ/Pᵢᵢ``, its predictive variance ``1/Pᵢᵢ``, with P the inverse of the covariance (eqs 5.10-5.12).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from ..evidence import exact
from ..evidence.scaled import inverse_diagonal
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from .functions import (
    FactoredDraws,
    FactoredPosteriors,
    Moments,
    covariance_root,
    mapped,
    require_resolved,
)
from .joint import JointMoments
from .site_draws import KernelParameters


class Factors(NamedTuple):
    """What a draw is solved with, for b draws: kernels, noise (b, q), L (b, p, n, n) and d (b, q, n).

    p is 1 where outputs share the noise, else q.
    """

    kernel: Kernel
    noise_scale: Any
    factor: Any
    dual: Any


class ExactDraws(FactoredDraws):
    """A batch of draws of an exact GP, which share the rows."""

    def moments(self, rows: np.ndarray) -> Moments:
        """Means and variances of f at inputs (k, d), (b, q, k) each. O(n² k) a draw."""
        mean, variance = mapped(_moments, self.shared, self.factors, rows)
        return np.asarray(mean), np.asarray(variance)

    def joint(self, rows: np.ndarray) -> Iterator[JointMoments]:
        """Means and covariances of f at inputs (k, d), a draw after the other. O(n² k + n k² + k³) a draw."""
        for index in range(len(self.noise_scale)):
            one = self.take(slice(index, index + 1)).factors
            mean, covariance = (np.asarray(each)[0] for each in mapped(_joint_moments, self.shared, one, rows))
            root = np.stack([covariance_root(each, np.zeros(len(each))) for each in covariance])
            yield JointMoments(mean, np.broadcast_to(root, (len(mean), *root.shape[1:])), np.zeros_like(mean))

    def left_out(self, rows: np.ndarray) -> Moments:
        """Residuals and variances of training rows of these numbers given all others. O(n³) a draw."""
        dual, precision, kept = map(np.asarray, mapped(_precisions, self.shared, self.factors, None))
        require_resolved(kept[..., rows], np.finfo(kept.dtype))
        residual, variance = dual / precision, np.broadcast_to(1 / precision, dual.shape)
        return residual[..., rows], variance[..., rows]

    def sample(self, rng: np.random.Generator, rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """One joint draw of each at inputs (k, d), (b, q, k). O(n² k + n k² + k³) a draw."""
        results = []
        for index, scales in enumerate(self.noise_scale):
            one = self.take(slice(index, index + 1)).factors
            mean, covariance = (np.asarray(each)[0] for each in mapped(_joint_moments, self.shared, one, rows))
            roots = [covariance_root(each, scale**2 * noise) for each, scale in zip(covariance, scales, strict=False)]
            z = rng.standard_normal(mean.shape)
            shared = len(roots) == 1
            results.append(mean + np.stack([roots[0 if shared else j] @ z[j] for j in range(len(z))]))
        return np.stack(results)


class ExactPosteriors(FactoredPosteriors):
    """The posteriors of f that draws of hyperparameters of an exact GP imply, O(n³) each."""

    @property
    def numbers_per_row(self) -> int:
        """Covariances with the training rows, and their products with a factor."""
        return 3 * self.rows.num_rows

    def at(self, X: np.ndarray) -> np.ndarray:
        """The inputs themselves: features of an exact GP move with its hyperparameters."""
        return X

    def at_training_rows(self, numbers: np.ndarray, *_: Any) -> np.ndarray:
        """Their numbers: the draws know the rows."""
        return numbers

    @staticmethod
    def _factors(rows: Rows, parameters: KernelParameters) -> Factors:
        return _factors(rows, parameters)

    def _draws_of(self, factors: Factors) -> ExactDraws:
        return ExactDraws(self.rows, factors)


@jax.jit
def _factors(rows: Rows, parameters: KernelParameters) -> Factors:
    """Of parameters stacked over draws."""

    def of_draw(each: KernelParameters) -> Factors:
        factor, dual = exact.posterior_factors(rows, each.kernel, each.noise_scale)
        noise_scale = jnp.broadcast_to(each.noise_scale, (rows.num_outputs,))
        return Factors(each.kernel, noise_scale, factor, dual)

    # Mapped, not vmapped: on a CPU a batched factorisation is much slower than one at a time.
    return jax.lax.map(of_draw, parameters)


def _moments(rows: Rows, each: Factors, X_new: Any) -> tuple[jax.Array, jax.Array]:
    """Means and variances (q, k)."""
    mean, halves = _projected(rows, each, X_new)
    explained = jnp.sum(halves**2, axis=1)
    variance = jnp.maximum(each.kernel.diag(X_new)[None, :] - explained, 0)
    return mean, jnp.broadcast_to(variance, mean.shape)


def _joint_moments(rows: Rows, each: Factors, X_new: Any) -> tuple[jax.Array, jax.Array]:
    """Means (q, k) and covariances (p, k, k)."""
    mean, halves = _projected(rows, each, X_new)
    return mean, each.kernel(X_new)[None] - halves.swapaxes(1, 2) @ halves


def _projected(rows: Rows, each: Factors, X_new: Any) -> tuple[jax.Array, jax.Array]:
    """Means (q, k) and V, (p, n, k)."""
    cross = each.kernel(rows.X, X_new)
    scaled = jnp.sqrt(rows.weights)[:, None] * cross
    scales = each.noise_scale[: len(each.factor)]
    halves = jax.vmap(lambda L, scale: solve_triangular(L, scaled / scale, lower=True))(each.factor, scales)
    return each.dual @ cross, halves


def _precisions(rows: Rows, each: Factors, _: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """d, the diagonal of P and that of (LLᵀ)⁻¹, which is one less the leverage: (q or p, n) each."""
    kept = jax.vmap(inverse_diagonal)(each.factor)
    scales = each.noise_scale[: len(each.factor), None]
    return each.dual, jnp.asarray(rows.weights)[None, :] * kept / scales**2, kept
