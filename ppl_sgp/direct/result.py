"""What a fit of discrete weights found, and its predictions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from .._internal import checks
from .._internal.random import random_key
from ..posteriors.predict import prediction_inputs
from ..posteriors.prediction import gaussian_log_density
from .posterior import DiscretePosterior, FunctionPrediction, LinearPosterior


@dataclasses.dataclass(frozen=True)
class RegressionPosterior(DiscretePosterior):
    """Of weights, and of noise levels independent of them.

    :ivar noise_scales: standard deviations the noise may have, shape (S,).
    :ivar noise_probabilities: posterior probabilities of them, shape (S,).
    """

    noise_scales: np.ndarray
    noise_probabilities: np.ndarray

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance."""
        return float(self.noise_probabilities @ self.noise_scales**2)


@dataclasses.dataclass(frozen=True)
class DiscreteFit(LinearPosterior, RegressionPosterior):
    """An approximate posterior over discrete weights: a mixture of R factorised distributions.

    :ivar levels: of each weight, shape (b, m̄).
    :ivar log_probabilities: of the levels under each component, shape (R, b, m̄).
    :ivar elbo_trace: the bound after each iteration, in nats, shape (t,): the ELBO itself for one component and a
        factorised prior, else below it.
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    :ivar noise_scales: standard deviations the noise may have, shape (S,).
    :ivar noise_probabilities: posterior probabilities of them, shape (S,).
    :ivar mixture_weights: probabilities of the components, shape (R,).
    :ivar elbo_standard_error: of ``elbo``, where it is an estimate (after :func:`~ppl_sgp.direct.refine`); else zero.
    """

    mixture_weights: np.ndarray
    elbo_standard_error: float = 0.0

    @property
    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of the components, (R,), and log-probabilities of the levels under each, (R, b, m̄)."""
        return self.mixture_weights, self.log_probabilities

    def predict(self, X_new: Any, *, row_weights: Any = None, max_memory: float = 2e9) -> DiscretePrediction:
        """Predict at new inputs. O(R b) a row.

        :param X_new: new inputs, shape (n_new, d).
        :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
        :param max_memory: bytes that features may take.
        :return: as of :func:`~ppl_sgp.predict`.
        """
        max_memory = checks.memory_cap(max_memory, "predict")
        X_new, omega = prediction_inputs(X_new, row_weights, self.basis.input_dim)
        return DiscretePrediction(self, X_new, omega, max_memory)


class DiscretePrediction(FunctionPrediction):
    """A posterior predictive of discrete weights; made by the fit's ``predict``.

    The variance of a new y is ``variance + noise_variance``.
    """

    def __init__(self, fit: RegressionPosterior, X_new: np.ndarray, row_weights: np.ndarray, max_memory: float) -> None:
        super().__init__(fit, X_new, max_memory)
        self._fit, self._row_weights = fit, row_weights

    def _outputs(self, weights: np.ndarray) -> np.ndarray:
        """f for weights (s, b), shape (s, n_new)."""
        return np.concatenate([weights @ Phi.T for Phi in self._features()], axis=1)

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance (of a row of weight one)."""
        return self._fit.noise_variance

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density of each new observation, in nats, shape (n_new,).

        Of f under each component a normal of the exact mean and variance is taken: a sum over b weights, or of a
        network a polynomial in them.

        :param y_new: observations, shape (n_new,).
        :raises ValueError: if the shape differs.
        """
        y_new = checks.observations("y_new", y_new, (len(self._X_new),), "log_density")
        means, variances = self._components
        noise = self._fit.noise_scales[:, None, None] ** 2 / self._row_weights
        weights = self._fit.noise_probabilities[:, None, None] * self._fit.mixture[0][:, None]
        return logsumexp(gaussian_log_density(y_new - means, variances + noise), axis=(0, 1), b=weights)

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool = True) -> np.ndarray:
        """Joint draws at all new inputs, shape (num_samples, n_new).

        :param key: a JAX random key.
        :param num_samples: how many.
        :param noise: add observation noise, for draws of y; without it, draws of f.
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_weights, key_level, key_noise = jax.random.split(random_key(key, "sample"), 3)
        weights = self._fit.sample(key_weights, (num_samples,))
        result = self._outputs(weights)
        if not noise:
            return result
        level = jax.random.categorical(key_level, np.log(self._fit.noise_probabilities), shape=(num_samples,))
        scale = self._fit.noise_scales[np.asarray(level)][:, None] / np.sqrt(self._row_weights)
        return result + scale * np.asarray(jax.random.normal(key_noise, result.shape))
