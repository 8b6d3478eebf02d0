"""The posterior predictive at new inputs: moments, densities and draws of a mixture over draws of hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from .._internal import checks
from .._internal.random import random_key
from .draws import Draws, KnownDraws


class Prediction:
    """A posterior predictive; made by :func:`~ppl_sgp.predict`. With q outputs, arrays end in an axis q.

    Moments are computed when first asked for. The variance of a new y is ``variance + noise_variance``.

    :ivar mean: mean of f (and of y), shape (n_new,).
    :ivar variance: variance of f, shape (n_new,).
    :ivar noise_variance: posterior mean of the noise variance, shape ().
    """

    def __init__(
        self, draws: Draws | KnownDraws, X_new: np.ndarray, row_weights: np.ndarray, one_output: bool, max_memory: float
    ) -> None:
        self._draws, self._X_new, self._row_weights = draws, X_new, row_weights
        self._one_output, self._max_memory = one_output, max_memory

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, and of y."""
        return self._shaped(np.concatenate([self._moments[0] @ Phi.T for _, Phi in self._features()], axis=-1))

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f."""
        parts = []
        for _, Phi in self._features():
            parts.append(np.stack([np.sum((Phi @ covariance) * Phi, axis=1) for covariance in self._moments[1]]))
        return self._shaped(np.concatenate(parts, axis=-1).clip(min=0))

    @property
    def noise_variance(self) -> Any:
        """Posterior mean of the noise variance (of a row of weight one)."""
        return self._moments[2][0] if self._one_output else self._moments[2]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _mixture_moments(self._draws)

    def _block_size(self, per_row: int) -> int:
        """How many rows, with their features and ``per_row`` numbers more each, keep within the memory cap."""
        return max(1, int(self._max_memory // (8 * (per_row + self._draws.basis.num_features))))

    def _features(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Features of the new rows, in slices that fit the memory cap."""
        for rows in row_blocks(len(self._X_new), self._block_size(1)):
            yield rows, self._features_of(self._X_new[rows])

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        return self._draws.basis.host_features(X_new)

    def _pointwise(self, rows: slice, Phi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Mean and variance (b, q, n) of f at rows with these features, and noise (b, q), by batches of draws."""
        return self._draws.pointwise(Phi)

    @property
    def component_weights(self) -> np.ndarray:
        """Weights of :meth:`components` in the mixture, shape (draws,): equal ones."""
        return np.full(self._draws.num_draws, 1 / self._draws.num_draws)

    def components(self, noise: bool = True, arrays: int = 3) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """The Gaussians whose mixture the prediction is, one a draw, in blocks of rows.

        :param noise: of a new y; if false, of f.
        :param arrays: how many arrays of a block's size its user holds, for the memory cap.
        :return: rows, and means and variances, shape (draws, q, rows).
        """
        for rows in row_blocks(len(self._X_new), self._block_size(arrays * self._draws.num_draws * self.num_outputs)):
            yield rows, *self._components_of(rows, noise)

    def _components_of(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            (mean, variance + scale[..., None] ** 2 / self._row_weights[rows] if noise else variance)
            for mean, variance, scale in self._pointwise(rows, self._features_of(self._X_new[rows]))
        ]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    @property
    def num_outputs(self) -> int:
        """The number of outputs q."""
        return self._draws.num_outputs

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """From (…, q, n) to (…, n) for one output, else (…, n, q)."""
        return values[..., 0, :] if self._one_output else np.moveaxis(values, -2, -1)

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density of each new observation, of the mixture. O(n_new m²) a draw, O(n_new m) if rotated.

        :param y_new: observations, shape of :attr:`mean`.
        :return: log densities in nats, shape of :attr:`mean`.
        :raises ValueError: if the shape differs.
        """
        y_rows = self.observations("y_new", y_new, "log_density")
        parts = [
            mixture_log_density(y_rows[:, rows], mean, variance, self.component_weights)
            for rows, mean, variance in self.components(arrays=4)
        ]
        return self._shaped(np.concatenate(parts, axis=-1))

    def observations(self, name: str, y_new: Any, owner: str) -> np.ndarray:
        """New observations in the shape of :attr:`mean` as (q, n_new), in float64; other shapes are refused."""
        shape = self._shaped(np.empty((self._draws.num_outputs, len(self._X_new)))).shape
        y_new = checks.observations(name, y_new, shape, owner)
        return y_new[None, :] if self._one_output else y_new.T

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool = True) -> np.ndarray:
        """Joint draws at all new inputs: hyperparameters from the draws, then weights, then noise.

        :param key: a JAX random key.
        :param num_samples: how many; hyperparameter draws are taken evenly, in random order.
        :param noise: add observation noise, for draws of y; without it, draws of f.
        :return: shape (num_samples, n_new), or (num_samples, n_new, q).
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_order, key_draws = jax.random.split(random_key(key, "sample"))
        repeats = -(-num_samples // self._draws.num_draws)
        order = np.asarray(jax.random.permutation(key_order, self._draws.num_draws))
        return self.sample_draws(key_draws, np.tile(order, repeats)[:num_samples], noise)

    def sample_draws(self, key: jax.Array, indices: np.ndarray, noise: bool = True) -> np.ndarray:
        """One joint draw for each of the given hyperparameter draws, in that order.

        :param key: a JAX random key.
        :param indices: positions of draws, shape (s,).
        :param noise: add observation noise.
        :return: shape (s, n_new), or (s, n_new, q).
        """
        key_weights, key_noise = jax.random.split(key)
        q, m = self._draws.num_outputs, self._draws.basis.num_features
        z = np.asarray(jax.random.normal(key_weights, (len(indices), q, m)), dtype=np.float64)
        weights, noise_scale = [], []
        for start in range(0, len(indices), self._draws.batch_size):
            part = slice(start, start + self._draws.batch_size)
            chosen = self._draws.take(indices[part])
            weights.append(chosen.weights(z[part]))
            noise_scale.append(chosen.noise_scale)
        stacked = np.concatenate(weights)
        result = np.concatenate([stacked @ Phi.T for _, Phi in self._features()], axis=-1)
        if noise:
            scale = np.concatenate(noise_scale)[..., None] / np.sqrt(self._row_weights)
            result += scale * np.asarray(jax.random.normal(key_noise, result.shape))
        return self._shaped(result)


def gaussian_log_density(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """``log N(residual; 0, variance)``, elementwise."""
    return -0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)


def mixture_log_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Log density of y, any shape, under a mixture of S Gaussians, with weights (S,): moments have an axis S first."""
    return logsumexp(gaussian_log_density(y - mean, variance), axis=0, b=weights.reshape(-1, *[1] * y.ndim))


def row_blocks(num_rows: int, size: int) -> Iterator[slice]:
    """Slices of rows, one after the other."""
    return (slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size))


def _mixture_moments(draws: Draws | KnownDraws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (q, m) and covariance (q, m, m) of the weights over all draws, and the mean noise variance (q,)."""
    q, m = draws.num_outputs, draws.basis.num_features
    locs, second, noise_variance = [], np.zeros((q, m, m)), np.zeros(q)
    for batch in draws:
        locs.append(batch.loc)
        second = second + batch.summed_covariance()
        noise_variance = noise_variance + np.sum(batch.noise_scale**2, axis=0)
    loc = np.concatenate(locs)
    deviation = np.moveaxis(loc - loc.mean(axis=0), 0, -1)
    covariance = (second + deviation @ deviation.swapaxes(-1, -2)) / len(loc)
    return loc.mean(axis=0), covariance, noise_variance / len(loc)
