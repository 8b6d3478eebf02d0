"""What a fit of a network with discrete weights found, and its predictions."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property
from typing import Any

import numpy as np

from .._internal import checks
from ..bases.polynomial import PolynomialBasis
from ..posteriors.predict import prediction_inputs
from .network_polynomial import NetworkPolynomial
from .result import DiscretePrediction, RegressionPosterior


@dataclasses.dataclass(frozen=True, repr=False)
class DiscreteNetwork(RegressionPosterior):
    """A factorised approximate posterior over the weights of a network; made by :func:`ppl_sgp.direct.fit_network`.

    :ivar basis: the monomials of the inputs through which the rows were seen.
    :ivar levels: of each weight, shape (b, m̄).
    :ivar log_probabilities: of the levels, shape (b, m̄).
    :ivar elbo_trace: the ELBO after each iteration, in nats, shape (t,).
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    :ivar noise_scales: standard deviations the noise may have, shape (S,).
    :ivar noise_probabilities: posterior probabilities of them, shape (S,).
    :ivar polynomial: the network, multiplied out.
    """

    basis: PolynomialBasis
    polynomial: NetworkPolynomial

    @property
    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        """One component: its probability, (1,), and log-probabilities of the levels, (1, b, m̄)."""
        return np.ones(1), self.log_probabilities[None]

    @property
    def weight_names(self) -> tuple[tuple[int, int, int], ...]:
        """Layer, unit of that layer, and input of that unit, of each of the b weights, all from zero."""
        layers = enumerate(itertools.pairwise(self.polynomial.widths))
        return tuple(
            (layer, unit, source) for layer, (d, units) in layers for unit in range(units) for source in range(d)
        )

    @cached_property
    def coefficient_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (m,) and covariance (m, m) of the coefficients of the basis, which are polynomials in the weights."""
        moments = self.polynomial.moments(self.levels, self.probabilities)
        features = self.basis.powers
        return self.polynomial.output_moments(moments, self.polynomial.positions(features), len(features))

    def predict(self, X_new: Any, *, row_weights: Any = None, max_memory: float = 2e9) -> NetworkPrediction:
        """Predict at new inputs. O(m²) a row for m monomials of the inputs, and once O(pairs of monomials).

        :param X_new: new inputs, shape (n_new, d).
        :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
        :param max_memory: bytes that features and, for draws, units may take.
        :raises ValueError: for inputs of another shape or not finite.
        """
        max_memory = checks.memory_cap(max_memory, "predict")
        X_new, omega = prediction_inputs(X_new, row_weights, self.basis.input_dim)
        return NetworkPrediction(self, X_new, omega, max_memory)


class NetworkPrediction(DiscretePrediction):
    """A posterior predictive of a network; made by :meth:`DiscreteNetwork.predict`.

    :attr:`mean` and :attr:`variance` are exact moments under the approximate posterior (Evans 2022, appendix E); the
    variance of a new y is ``variance + noise_variance``.
    """

    def __init__(self, fit: DiscreteNetwork, X_new: np.ndarray, row_weights: np.ndarray, max_memory: float) -> None:
        super().__init__(fit, X_new, row_weights, max_memory)
        self._network = fit

    @cached_property
    def _components(self) -> tuple[np.ndarray, np.ndarray]:
        mean, covariance = self._network.coefficient_moments
        parts = [np.stack([Phi @ mean, np.sum((Phi @ covariance) * Phi, axis=1)]) for Phi in self._features()]
        means, variances = np.concatenate(parts, axis=1)[:, None]
        return means, variances.clip(min=0)

    def _outputs(self, weights: np.ndarray) -> np.ndarray:
        """f for weights (s, b), shape (s, n_new): the forward pass."""
        basis, widths = self._network.basis, self._network.polynomial.widths
        size = max(1, int(self._max_memory // (24 * len(weights) * max(widths))))
        Z = (self._X_new - basis.centre) / basis.scale
        parts = [_forward(Z[start : start + size], weights, widths) for start in range(0, max(1, len(Z)), size)]
        return np.concatenate(parts, axis=1)


def _forward(Z: np.ndarray, weights: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    u, end = Z.T[None], 0
    for inputs, units in itertools.pairwise(widths):
        u = u if end == 0 else u**2
        start, end = end, end + inputs * units
        u = weights[:, start:end].reshape(-1, units, inputs) @ u
    return u[:, 0]
