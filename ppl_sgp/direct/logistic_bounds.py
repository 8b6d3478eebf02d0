"""Lower bounds of ``E log p(labels | w)`` of a logistic regression under a factorised q, with their gradients.

With ``zᵢ = tᵢ φ(xᵢ)ᵀw`` and ``t = ±1`` the log likelihood is ``−Σ log(1 + exp(−zᵢ))``, and in closed form over m̄ᵇ
configurations are ``mᵢ = E zᵢ``, ``E zᵢ²`` and ``Lᵢ = log E exp(−zᵢ) = Σⱼ log qⱼᵀ exp(−tᵢφᵢⱼw̄ⱼ)``:

    taylor    −Σ exp(Lᵢ)                                        Evans (2022), theorem 7.2
    jensen    −Σ log(1 + exp(Lᵢ))                               tighter at the same cost
    jaakkola  −Σ log(1 + exp(−ξᵢ)) + ½ Σ (mᵢ − ξᵢ),  ξᵢ² = E zᵢ²  Jaakkola & Jordan (2000), at the best ξ

Evans prints ``qᵢᵀ(φᵢⱼw̄ⱼ)`` for ``qⱼᵀ(φᵢⱼw̄ⱼ)`` in (7.18) and (7.24), from which theorem 7.2 follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit, log_expit, log_softmax

from .elbo import component_entropy, through_softmax
from .factorised import FactorisedObjective
from .problem import LevelPrior, Problem

#: Numbers that rows, weights and levels together may take in one array: few enough for a processor's cache.
MAX_VALUES = 2**18
#: Above this Lᵢ the Taylor bound is cut off: its value is beyond any use, and sums over rows must not overflow.
LARGEST = 600.0
#: The least ξ, where λ(ξ) = tanh(ξ/2)/4ξ has reached its limit 1/8 in float64.
SMALLEST = 1e-8
#: Rounds of the Gaussian approximation that the quadratic bound starts from.
ROUNDS = 20

#: The bound summed over rows with signed features tᵢφᵢ (k, b), and its gradient in the logits of q (b, m̄).
RowBound = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, np.ndarray]]


def taylor(signed: np.ndarray, levels: np.ndarray, log_probs: np.ndarray) -> tuple[float, np.ndarray]:
    """Theorem 7.2. O(k b m̄) time, and memory in blocks of rows."""
    return _products(signed, levels, log_probs, _taylor_of)


def jensen(signed: np.ndarray, levels: np.ndarray, log_probs: np.ndarray) -> tuple[float, np.ndarray]:
    """``E log(1 + e⁻ᶻ) ≤ log(1 + E e⁻ᶻ)``. O(k b m̄) time, and memory in blocks of rows."""
    return _products(signed, levels, log_probs, lambda L: (log_expit(-L), -expit(L)))


def jaakkola(signed: np.ndarray, levels: np.ndarray, log_probs: np.ndarray) -> tuple[float, np.ndarray]:
    """The quadratic bound at the best ξ. O(k b + b m̄)."""
    probs = np.exp(log_probs)
    value, linear, square = _quadratic(signed, *_moments(levels, probs))
    return value, through_softmax(log_probs, linear[:, None] * levels - 0.5 * square[:, None] * levels**2)


BOUNDS: dict[str, RowBound] = {"taylor": taylor, "jensen": jensen, "jaakkola": jaakkola}


def _taylor_of(L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = -np.exp(np.minimum(L, LARGEST))
    return value, value


def _products(
    signed: np.ndarray,
    levels: np.ndarray,
    log_probs: np.ndarray,
    of: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> tuple[float, np.ndarray]:
    """The sum over rows of a function of Lᵢ, given with its derivative; products over weights stay in logarithms."""
    value, total, gradient = 0.0, 0.0, np.zeros(levels.shape)
    size = max(1, MAX_VALUES // levels.size)
    for start in range(0, len(signed), size):
        tilted = log_probs - signed[start : start + size, :, None] * levels
        largest = tilted.max(axis=-1, keepdims=True)
        tilted = np.exp(np.subtract(tilted, largest, out=tilted), out=tilted)
        norms = tilted.sum(axis=-1)
        values, slopes = of(np.sum(np.log(norms) + largest[..., 0], axis=1))
        value, total = value + float(values.sum()), total + float(slopes.sum())
        gradient += np.einsum("kb,kbl->bl", slopes[:, None] / norms, tilted)
    return value, gradient - total * np.exp(log_probs)


def _moments(levels: np.ndarray, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each weight, both (b,)."""
    mean = np.sum(probs * levels, axis=1)
    return mean, np.sum(probs * (levels - mean[:, None]) ** 2, axis=1)


def best_xi(m: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The root of ``E zᵢ²``, from means and variances of zᵢ."""
    return np.maximum(np.sqrt(m**2 + variance), SMALLEST)


def _quadratic(signed: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The quadratic bound, and c and d, both (b,), of its gradient ``cⱼw − ½dⱼw²`` in qⱼ(w). O(k b)."""
    squares = signed**2
    m = signed @ mean
    xi = best_xi(m, squares @ variance)
    slope = curvature(xi)
    value = float(np.sum(log_expit(xi) + 0.5 * (m - xi)))
    square = slope @ squares
    return value, signed.T @ (0.5 - slope * m) + square * mean, square


def curvature(xi: np.ndarray) -> np.ndarray:
    """``2λ(ξ) = tanh(ξ/2) / 2ξ``."""
    return np.tanh(0.5 * xi) / (2 * xi)


class LogitObjective:
    """The evidence lower bound as a function of free logits, shape (b, m̄), flat.

    :param signed: features times ±1, shape (n, b).
    :param prior: factorised.
    :param bound: of the likelihood.
    :param share: how many rows each row stands for.
    """

    def __init__(self, signed: np.ndarray, prior: LevelPrior, bound: RowBound, share: float = 1.0) -> None:
        self._signed, self._prior, self._bound, self._share = signed, prior, bound, share

    def distribution(self, vector: np.ndarray) -> np.ndarray:
        """Log-probabilities, shape (b, m̄)."""
        return log_softmax(vector.reshape(self._prior.levels.shape), axis=-1)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient, of the cost of the bound."""
        log_probs = self.distribution(vector)
        value, gradient = self._bound(self._signed, self._prior.levels, log_probs)
        divergence, of_divergence = negative_divergence(self._prior, log_probs)
        return self._share * value + divergence, (self._share * gradient + of_divergence).ravel()


def negative_divergence(prior: LevelPrior, log_probs: np.ndarray) -> tuple[float, np.ndarray]:
    """``Σⱼ qⱼᵀ(log pⱼ − log qⱼ)`` and its gradient in the logits of q."""
    entropy, slope = component_entropy(log_probs)
    log_prior = prior.log_probs[0]
    return entropy + float(np.sum(np.exp(log_probs) * log_prior)), through_softmax(log_probs, slope + log_prior)


class QuadraticObjective:
    """The evidence lower bound with the quadratic bound, in two parameters a weight instead of one a level.

    Wherever it is stationary in qⱼ it has the form ``qⱼ(w) ∝ pⱼ(w) exp(ηⱼw − ½aⱼw²)``: nothing is lost by optimising
    (η, a), flat, over this family, which is much faster than alternating with ξ or free logits.

    :param signed: features times ±1, shape (n, b).
    :param prior: factorised.
    """

    def __init__(self, signed: np.ndarray, prior: LevelPrior) -> None:
        self._signed, self._prior = signed, prior

    def start(self) -> np.ndarray:
        """Each weight given the others at their means under Gaussian priors of the same moments. O(n b² + b³).

        ξ is that of this Gaussian posterior, after some rounds: with ξ of the prior, which is far too large where data
        say much, fits end in worse places.
        """
        prior_mean, prior_variance = mean, variance = _moments(self._prior.levels, np.exp(self._prior.log_probs[0]))
        scale = np.sqrt(prior_variance)
        problem = self._weighted(self._signed @ mean, self._signed**2 @ variance)
        for _ in range(ROUNDS):
            factor = cho_factor(np.eye(len(scale)) + scale[:, None] * problem.gram * scale, lower=True)
            mean = prior_mean + scale * cho_solve(factor, scale * (problem.projection - problem.gram @ prior_mean))
            half = solve_triangular(factor[0], scale[:, None] * self._signed.T, lower=True)
            problem = self._weighted(self._signed @ mean, np.sum(half**2, axis=0))
        size = np.diag(problem.gram)
        return np.concatenate([problem.projection - problem.gram @ mean + size * mean, size])

    def sweep(self, vector: np.ndarray) -> np.ndarray:
        """The best ξ, then one weight after the other: no step lowers the bound. O(n b² + b m̄)."""
        probs = np.exp(self.distribution(vector))
        mean, variance = _moments(self._prior.levels, probs)
        problem = self._weighted(self._signed @ mean, self._signed**2 @ variance)
        return np.concatenate([FactorisedObjective(problem).swept(mean), np.diag(problem.gram)])

    def _weighted(self, m: np.ndarray, variance: np.ndarray) -> Problem:
        """The Gaussian regression with noise of scale one that the bound is, at the best ξ for these moments of z."""
        signed, xi = self._signed, best_xi(m, variance)
        slope = curvature(xi)
        return Problem(
            gram=signed.T @ (slope[:, None] * signed),
            projection=0.5 * signed.sum(axis=0),
            sum_squares=0.0,
            num_rows=0.0,
            log_weights=float(np.sum(log_expit(xi) - 0.5 * xi + 0.5 * slope * xi**2)),
            prior=self._prior,
            noise_scales=np.ones(1),
            log_noise_prior=np.zeros(1),
        )

    def distribution(self, vector: np.ndarray) -> np.ndarray:
        """Log-probabilities, shape (b, m̄)."""
        eta, a = vector.reshape(2, -1, 1)
        levels = self._prior.levels
        return log_softmax(self._prior.log_probs[0] + eta * levels - 0.5 * a * levels**2, axis=-1)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient. O(n b + b m̄)."""
        levels, log_probs = self._prior.levels, self.distribution(vector)
        probs = np.exp(log_probs)
        mean, variance = _moments(levels, probs)
        value, linear, square = _quadratic(self._signed, mean, variance)
        eta, a = vector.reshape(2, -1)
        # The derivative in qⱼ is away·w − ½excess·w², up to constants.
        away, excess = linear - eta, square - a
        divergence = float(np.sum(probs * (self._prior.log_probs[0] - log_probs)))
        centred = probs * (levels - mean[:, None])
        mixed = np.sum(centred * levels**2, axis=1)  # the covariance of w and w²
        spread = _moments(levels**2, probs)[1]
        of_eta = away * variance - 0.5 * excess * mixed
        of_a = -0.5 * (away * mixed - 0.5 * excess * spread)
        return value + divergence, np.concatenate([of_eta, of_a])
