"""What every prior over weights offers: products with its covariance and with a root of it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks


class DiagonalAxes(NamedTuple):
    """Independent coordinates of weights: their prior, and the rotation of the data to them with its cost."""

    prior: Any
    to_axes: Callable[[jax.Array], jax.Array] | None
    cost: str


class WeightPrior(abc.ABC):
    """A Gaussian prior ``w ~ N(mean, C)`` over the m weights of a basis.

    Subclasses are pytree dataclasses with a field ``mean``. What the evidence needs of the covariance
    C are its products with vectors, so a structured C is never formed.
    """

    mean: Any

    @property
    @abc.abstractmethod
    def num_weights(self) -> int | None:
        """The number of weights m; ``None`` if one number stands for all of them."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of a batch of priors; ``()`` for one. Structured priors come one at a time: use ``jax.vmap``."""
        return ()

    @property
    def independent(self) -> np.ndarray:
        """Whether each weight is independent of all others, whatever the numbers: shape (m,), Boolean."""
        return np.zeros(int(self.num_weights or 1), dtype=bool)

    @property
    def log_variance(self) -> jax.Array:
        """Logarithms of the prior variances, shape ``batch + (m,)``."""
        return jnp.log(self.variance)

    @property
    @abc.abstractmethod
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape ``batch + (m,)``."""

    @abc.abstractmethod
    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column v of ``vectors``, shape (m, k)."""

    @abc.abstractmethod
    def apply_root(self, vectors: Any) -> jax.Array:
        """``Fv`` for each column v of ``vectors``, shape (m, k), with one fixed F such that ``C = FFᵀ``."""

    def diagonal_along(self, num_orthonormal: int) -> DiagonalAxes | None:
        """The same prior as independent coordinates, if rotating the first ``num_orthonormal`` weights makes it so."""
        return None

    @property
    def covariance(self) -> jax.Array:
        """The covariance C of the weights, shape (m, m). O(m²) memory."""
        return self.apply(jnp.eye(self.num_weights, dtype=checks.common_dtype(*jax.tree.leaves(self))))

    @property
    def effective_features(self) -> jax.Array:
        """``(Σγ)²/Σγ²`` of the prior variances γ: m if all weights matter alike, near 1 if one dominates."""
        return _effective_features(self)

    def sized(self, num_weights: int) -> WeightPrior:
        """The same prior with one entry for each of ``num_weights`` weights.

        :param num_weights: the number of weights m.
        :raises ValueError: for a prior of another number of weights.
        """
        if self.num_weights != num_weights:
            raise ValueError(
                f"{type(self).__name__}: the prior has {self.num_weights} weights, but {num_weights} are wanted; give "
                "one entry for each."
            )
        return self

    def distribution(self) -> dist.Distribution:
        """The prior as a NumPyro distribution over w, for models that keep their weights.

        :raises ValueError: if the covariance is singular (to rounding), so that w has no density, and can be read.
        """
        return self._with_factor(jnp.linalg.cholesky(self.covariance))

    def _with_factor(self, factor: jax.Array) -> dist.Distribution:
        diagonal = jnp.diagonal(factor)
        if checks.is_concrete(factor) and not bool((jnp.isfinite(diagonal) & (diagonal > 0)).all()):
            raise ValueError(
                f"{type(self).__name__}.distribution: the covariance is singular to rounding, so the weights have no "
                "density. Keep them non-centred, as `sgp.latent` does, or marginalise them with `sgp.observe`."
            )
        mean = jnp.zeros(len(factor), factor.dtype) if self.mean is None else self.mean
        return dist.MultivariateNormal(mean, scale_tril=factor)


@jax.jit
def _effective_features(prior: WeightPrior) -> jax.Array:
    return effective_number(prior.log_variance)


def effective_number(log_variance: jax.Array) -> jax.Array:
    """``(Σγ)²/Σγ²`` over the last axis, of positive γ given by their logarithms, which underflow later than they do."""
    largest = jax.lax.stop_gradient(jnp.max(log_variance, axis=-1, keepdims=True))
    relative = jnp.exp(log_variance - largest)
    return jnp.sum(relative, axis=-1) ** 2 / jnp.sum(relative**2, axis=-1)


def checked_mean(mean: Any, num_weights: int, owner: str) -> jax.Array | None:
    """A prior mean of shape (m,), or ``None`` for zero."""
    if mean is None:
        return None
    mean = jnp.asarray(checks.real_numbers("mean", mean, owner))
    if mean.shape != (num_weights,):
        raise ValueError(f"{owner}: `mean` must have shape ({num_weights},), one entry a weight; got {mean.shape}.")
    if checks.is_concrete(mean) and not np.isfinite(np.asarray(mean)).all():
        raise ValueError(f"{owner}: `mean` must be finite; pass None for zero.")
    return mean


def checked_covariance(name: str, value: Any, owner: str) -> jax.Array:
    """A symmetric matrix; whether it is positive semi-definite is checked where its values can be read."""
    matrix = jnp.asarray(checks.real_numbers(name, value, owner))
    matrix = matrix.astype(checks.common_dtype(matrix))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{owner}: `{name}` must be a square matrix of shape (m, m); got {matrix.shape}. A batch of priors goes "
            "through `jax.vmap`."
        )
    if checks.is_concrete(matrix):
        values = np.asarray(matrix, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"{owner}: `{name}` must be finite.")
        tolerance = 100 * len(values) * float(jnp.finfo(matrix.dtype).eps) * np.abs(values).max()
        if np.abs(values - values.T).max() > tolerance:
            raise ValueError(f"{owner}: `{name}` must be symmetric; make it so, e.g. `(C + C.T) / 2`.")
        if np.linalg.eigvalsh((values + values.T) / 2)[0] < -tolerance:
            raise ValueError(
                f"{owner}: `{name}` must be positive semi-definite; its smallest eigenvalue is negative. Pass a "
                "`scale_tril` instead if you have one."
            )
    return matrix
