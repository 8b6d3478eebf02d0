"""What a fit of discrete weights found, and its predictions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import random_key
from ..posteriors.mixture import MixturePrediction
from ..posteriors.predict import prediction_inputs
from .posterior import DiscretePosterior, FunctionPrediction, LinearPosterior


@dataclasses.dataclass(frozen=True, repr=False)
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


@dataclasses.dataclass(frozen=True, repr=False)
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
    :ivar outermost: whether a weight of a relaxed continuous prior is more likely than not on its first or last level,
        while the data ask for more, shape (b,); ``None`` if nobody looked.
    :ivar log_prior_mass: log of the share of a Gaussian prior that its placed levels stand for, an interval of one step
        each. ``elbo + log_prior_mass`` bounds the evidence under the Gaussian prior, up to the rule of midpoints, and
        compares fits on different grids; ``elbo`` itself is of a prior that was told where the posterior is. Zero for
        levels that were given.
    :ivar elbo_standard_error: of ``elbo``, where it is an estimate (after :func:`~ppl_sgp.direct.refine`); else zero.
    """

    mixture_weights: np.ndarray
    outermost: np.ndarray | None = None
    log_prior_mass: float = 0.0
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


class DiscretePrediction(FunctionPrediction, MixturePrediction):
    """A posterior predictive of discrete weights; made by the fit's ``predict``.

    The variance of a new y is ``variance + noise_variance``. Of f under each component a normal of the exact mean and
    variance is taken: a sum over b weights, or of a network a polynomial in them.
    """

    def __init__(self, fit: RegressionPosterior, X_new: np.ndarray, row_weights: np.ndarray, max_memory: float) -> None:
        super().__init__(fit, X_new, max_memory)
        self._fit, self._row_weights, self.num_outputs = fit, row_weights, 1
        # A component for each noise level and component of the weights.
        self.component_weights = np.outer(fit.noise_probabilities, fit.mixture[0]).ravel()

    def _outputs(self, weights: np.ndarray) -> np.ndarray:
        """f for weights (s, b), shape (s, n_new)."""
        return np.concatenate([weights @ Phi.T for Phi in self._features()], axis=1)

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance (of a row of weight one)."""
        return self._fit.noise_variance

    @property
    def num_rows(self) -> int:
        """The number of new rows."""
        return len(self._X_new)

    @property
    def one_output(self) -> bool:
        """Always: fits are of one output."""
        return True

    def rows_at_once(self, arrays: int) -> int:
        """How many rows keep within the memory cap."""
        return max(1, int(self._max_memory // (8 * max(1, arrays) * len(self.component_weights))))

    def gaussians(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the components at some rows, (S, 1, rows)."""
        shape = (len(self._fit.noise_scales), *self._components[0].shape)
        mean, variance = (np.broadcast_to(part, shape)[..., rows] for part in self._components)
        if noise:
            variance = variance + self._fit.noise_scales[:, None, None] ** 2 / self._row_weights[rows]
        count = mean.shape[-1]
        return mean.reshape(-1, 1, count).copy(), variance.reshape(-1, 1, count).copy()

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool | None = None) -> np.ndarray:
        """Joint draws at all new inputs, shape (num_samples, n_new).

        :param key: a JAX random key.
        :param num_samples: how many.
        :param noise: add observation noise, for draws of y; without it, draws of f.
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_weights, key_level, key_noise = jax.random.split(random_key(key, "sample"), 3)
        weights = self._fit.sample(key_weights, (num_samples,))
        result = self._outputs(weights)
        if not self._with_noise(noise):
            return result
        level = jax.random.categorical(key_level, np.log(self._fit.noise_probabilities), shape=(num_samples,))
        scale = self._fit.noise_scales[np.asarray(level)][:, None] / np.sqrt(self._row_weights)
        return result + scale * np.asarray(jax.random.normal(key_noise, result.shape))
