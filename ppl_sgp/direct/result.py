"""What a fit of discrete weights found, and its predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from ..bases.basis import Basis
from ..predict import gaussian_log_density, prediction_inputs
from .quantize import QuantizedWeights, quantized


@dataclasses.dataclass(frozen=True)
class DiscreteFit:
    """An approximate posterior over discrete weights: a mixture of R factorised distributions.

    :ivar levels: of each weight, shape (b, m̄).
    :ivar mixture_weights: probabilities of the components, shape (R,).
    :ivar log_probabilities: of the levels under each component, shape (R, b, m̄).
    :ivar noise_scales: standard deviations the noise may have, shape (S,).
    :ivar noise_probabilities: posterior probabilities of them, shape (S,).
    :ivar elbo_trace: the bound after each iteration, in nats, shape (t,).
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    """

    basis: Basis
    levels: np.ndarray
    mixture_weights: np.ndarray
    log_probabilities: np.ndarray
    noise_scales: np.ndarray
    noise_probabilities: np.ndarray
    elbo_trace: np.ndarray
    converged: bool
    reason: str

    @property
    def elbo(self) -> float:
        """The bound reached, in nats: the ELBO itself for one component and a factorised prior, else below it."""
        return float(self.elbo_trace[-1])

    @property
    def iterations(self) -> int:
        """Iterations of the last maximisation."""
        return len(self.elbo_trace) - 1

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Marginal posterior probabilities of each weight's levels, shape (b, m̄)."""
        return np.einsum("r,rbl->bl", self.mixture_weights, np.exp(self.log_probabilities))

    @cached_property
    def mean(self) -> np.ndarray:
        """Posterior means of the weights, shape (b,)."""
        return np.sum(self.probabilities * self.levels, axis=1)

    @cached_property
    def variance(self) -> np.ndarray:
        """Posterior variances of the weights, shape (b,)."""
        return np.sum(self.probabilities * (self.levels - self.mean[:, None]) ** 2, axis=1)

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance."""
        return float(self.noise_probabilities @ self.noise_scales**2)

    @property
    def sparsity(self) -> float:
        """The expected share of weights that are exactly zero in a posterior draw."""
        return float(np.sum(self.probabilities[self.levels == 0]) / len(self.levels))

    @cached_property
    def component_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the weights under each component, both (R, b)."""
        q = np.exp(self.log_probabilities)
        mean = np.sum(q * self.levels, axis=-1)
        return mean, np.sum(q * (self.levels - mean[..., None]) ** 2, axis=-1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Draw weights from the approximate posterior, shape ``shape`` + (b,).

        :param key: a JAX random key.
        :param shape: of the batch of draws.
        """
        key_component, key_level = jax.random.split(key)
        count = int(np.prod(shape))
        components = np.asarray(jax.random.categorical(key_component, np.log(self.mixture_weights), shape=(count,)))
        uniform = np.asarray(jax.random.uniform(key_level, (count, len(self.levels))), dtype=np.float64)
        cumulative = np.cumsum(np.exp(self.log_probabilities), axis=-1)
        draws = np.empty((count, len(self.levels)))
        for i, component in enumerate(components):  # one at a time: levels and draws together may not fit
            codes = np.sum(uniform[i, :, None] * cumulative[component][:, -1:] >= cumulative[component][:, :-1], axis=1)
            draws[i] = np.take_along_axis(self.levels, codes[:, None], axis=1)[:, 0]
        return draws.reshape(*shape, len(self.levels))

    def predict(self, X_new: Any, *, row_weights: Any = None, max_memory: float = 2e9) -> DiscretePrediction:
        """Predict at new inputs. O(R b) a row.

        :param X_new: new inputs, shape (n_new, d).
        :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
        :param max_memory: bytes that features may take.
        :return: as of :func:`~ppl_sgp.predict`.
        """
        X_new, omega = prediction_inputs(X_new, row_weights, self.basis.input_dim)
        return DiscretePrediction(self, X_new, omega, max_memory)

    def quantize(self, key: jax.Array | None = None) -> QuantizedWeights:
        """Integer codes of one weight vector, for storage and integer arithmetic.

        :param key: a JAX random key, for a draw from the posterior; ``None`` takes each weight's most probable level.
        :raises ValueError: if levels are not multiples of a common step.
        """
        if key is None:
            codes = np.argmax(self.probabilities, axis=1)
            weights = np.take_along_axis(self.levels, codes[:, None], axis=1)[:, 0]
        else:
            weights = self.sample(key)
        return quantized(self.basis, self.levels, weights)


class DiscretePrediction:
    """A posterior predictive of discrete weights; made by :meth:`DiscreteFit.predict`.

    :attr:`mean` and :attr:`variance` are exact moments under the approximate posterior (Evans 2022, eq 7.17, which
    leaves the variance to the reader); the variance of a new y is ``variance + noise_variance``.
    """

    def __init__(self, fit: DiscreteFit, X_new: np.ndarray, row_weights: np.ndarray, max_memory: float) -> None:
        self._fit, self._X_new, self._row_weights, self._max_memory = fit, X_new, row_weights, max_memory

    def _features(self) -> Iterator[np.ndarray]:
        size = max(1, int(self._max_memory // (16 * self._fit.basis.num_features)))
        for start in range(0, len(self._X_new), size):
            yield self._fit.basis.host_features(self._X_new[start : start + size])

    @cached_property
    def _components(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f under each component, both (R, n_new)."""
        mean, variance = self._fit.component_moments
        parts = [(mean @ Phi.T, variance @ (Phi**2).T) for Phi in self._features()]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, and of y, shape (n_new,)."""
        return self._fit.mixture_weights @ self._components[0]

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f, shape (n_new,)."""
        means, variances = self._components
        return self._fit.mixture_weights @ (variances + (means - self.mean) ** 2)

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance (of a row of weight one)."""
        return self._fit.noise_variance

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density of each new observation, in nats, shape (n_new,).

        Of f under each component a normal of the exact mean and variance is taken: a sum over b weights.

        :param y_new: observations, shape (n_new,).
        :raises ValueError: if the shape differs.
        """
        y_new = np.asarray(y_new, dtype=np.float64)
        if y_new.shape != (len(self._X_new),):
            raise ValueError(f"log_density: `y_new` must have shape ({len(self._X_new)},); got {y_new.shape}.")
        means, variances = self._components
        noise = self._fit.noise_scales[:, None, None] ** 2 / self._row_weights
        weights = self._fit.noise_probabilities[:, None, None] * self._fit.mixture_weights[:, None]
        return logsumexp(gaussian_log_density(y_new - means, variances + noise), axis=(0, 1), b=weights)

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool = True) -> np.ndarray:
        """Joint draws at all new inputs, shape (num_samples, n_new).

        :param key: a JAX random key.
        :param num_samples: how many.
        :param noise: add observation noise, for draws of y; without it, draws of f.
        """
        key_weights, key_level, key_noise = jax.random.split(key, 3)
        weights = self._fit.sample(key_weights, (num_samples,))
        result = np.concatenate([weights @ Phi.T for Phi in self._features()], axis=1)
        if not noise:
            return result
        level = jax.random.categorical(key_level, np.log(self._fit.noise_probabilities), shape=(num_samples,))
        scale = self._fit.noise_scales[np.asarray(level)][:, None] / np.sqrt(self._row_weights)
        return result + scale * np.asarray(jax.random.normal(key_noise, result.shape))
