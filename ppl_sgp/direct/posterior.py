"""What approximate posteriors over discrete weights have in common: moments, draws, integer codes, predictions of f."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from functools import cached_property

import jax
import numpy as np

from .._internal.random import random_key
from .._internal.shown import ShownFields
from ..bases.basis import Basis
from .quantize import QuantizedWeights, quantized
from .sampling import draw_codes


@dataclasses.dataclass(frozen=True, repr=False)
class DiscretePosterior(ShownFields, abc.ABC):
    """A mixture of R factorised distributions over the levels of b weights, and how the fit went.

    :ivar levels: of each weight, shape (b, m̄).
    :ivar log_probabilities: of the levels; see the subclass.
    :ivar elbo_trace: the bound after each iteration, in nats, shape (t,).
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    """

    basis: Basis
    levels: np.ndarray
    log_probabilities: np.ndarray
    elbo_trace: np.ndarray
    converged: bool
    reason: str

    @property
    @abc.abstractmethod
    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of the components, (R,), and log-probabilities of the levels under each, (R, b, m̄)."""

    @property
    def elbo(self) -> float:
        """The bound reached, in nats: the last of :attr:`elbo_trace`."""
        return float(self.elbo_trace[-1])

    @property
    def iterations(self) -> int:
        """Iterations of the last maximisation."""
        return len(self.elbo_trace) - 1

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Marginal posterior probabilities of each weight's levels, shape (b, m̄)."""
        weights, log_probs = self.mixture
        return np.einsum("r,rbl->bl", weights, np.exp(log_probs))

    @cached_property
    def mean(self) -> np.ndarray:
        """Posterior means of the weights, shape (b,)."""
        return np.sum(self.probabilities * self.levels, axis=1)

    @cached_property
    def variance(self) -> np.ndarray:
        """Posterior variances of the weights, shape (b,)."""
        return np.sum(self.probabilities * (self.levels - self.mean[:, None]) ** 2, axis=1)

    @property
    def sparsity(self) -> float:
        """The expected share of weights that are exactly zero in a posterior draw."""
        return float(np.sum(self.probabilities[self.levels == 0]) / len(self.levels))

    @cached_property
    def component_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the weights under each component, both (R, b)."""
        q = np.exp(self.mixture[1])
        mean = np.sum(q * self.levels, axis=-1)
        return mean, np.sum(q * (self.levels - mean[..., None]) ** 2, axis=-1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Draw weights from the approximate posterior, shape ``shape`` + (b,).

        :param key: a JAX random key.
        :param shape: of the batch of draws.
        """
        codes = draw_codes(random_key(key, "sample"), *self.mixture, int(np.prod(shape)))
        return np.take_along_axis(self.levels.T, codes, axis=0).reshape(*shape, len(self.levels))


@dataclasses.dataclass(frozen=True, repr=False)
class LinearPosterior(DiscretePosterior):
    """Of weights of features, ``f = φᵀw``."""

    def quantize(self, key: jax.Array | None = None) -> QuantizedWeights:
        """Integer codes of one weight vector, for storage and integer arithmetic.

        Of the features of ``basis``: rotated ones, unless levels were given or ``rotate=False``; to predict from
        codes of those the rotation is needed, b² numbers.

        :param key: a JAX random key, for a draw from the posterior; ``None`` takes each weight's most probable level.
        :raises ValueError: if levels are not multiples of a common step.
        """
        if key is None:
            codes = np.argmax(self.probabilities, axis=1)
            weights = np.take_along_axis(self.levels, codes[:, None], axis=1)[:, 0]
        else:
            weights = self.sample(key)
        return quantized(self.basis, self.levels, weights)


class FunctionPrediction:
    """``f = φᵀw`` at new inputs. :attr:`mean` and :attr:`variance` are exact under the approximate posterior (Evans
    2022, eq 7.17, which leaves the variance to the reader).
    """

    def __init__(self, fit: DiscretePosterior, X_new: np.ndarray, max_memory: float) -> None:
        self._posterior, self._X_new, self._max_memory = fit, X_new, max_memory

    def _features(self) -> Iterator[np.ndarray]:
        for _, Phi in feature_blocks(self._posterior.basis, self._X_new, self._max_memory):
            yield Phi

    @cached_property
    def _components(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f under each component, both (R, n_new)."""
        mean, variance = self._posterior.component_moments
        parts = [(mean @ Phi.T, variance @ (Phi**2).T) for Phi in self._features()]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, shape (n_new,)."""
        return self._posterior.mixture[0] @ self._components[0]

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f, shape (n_new,)."""
        means, variances = self._components
        return self._posterior.mixture[0] @ (variances + (means - self.mean) ** 2)


def feature_blocks(basis: Basis, X: np.ndarray, max_memory: float) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows, and their features, in slices of which two arrays fit into so many bytes."""
    size = max(1, int(max_memory // (16 * basis.num_features)))
    for start in range(0, max(1, len(X)), size):  # of no rows one block: results keep their shapes
        rows = slice(start, start + size)
        yield rows, basis.host_features(X[rows])
