"""The exact ELBO of one factorised distribution, in one parameter a weight instead of one a level.

Wherever the ELBO of theorem 7.1 (Evans 2022) is stationary in ``qⱼ`` it has, with ``β = E[σ⁻²]``, the form

    qⱼ(w) ∝ pⱼ(w) exp(ηⱼ w − ½ β Aⱼⱼ w²),   ηⱼ = β (rⱼ − Σ_{k≠j} Aⱼₖ sₖ),

so that nothing is lost by optimising η, shape (b,), over this family; its gradient is ``(β(rⱼ − …) − ηⱼ) Var[wⱼ]``.
Over free logits, as in the thesis, L-BFGS takes many times the iterations and ends lower. Where levels are far apart,
for what the data say, variances and gradients vanish; sweeps that set one ηⱼ after the other go on there.
"""

from __future__ import annotations

from functools import cached_property

import jax
import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import log_softmax

from .elbo import Variational, best_noise, expected_residuals, noise_terms, precision_of, through_softmax
from .problem import Problem

#: Sweeps that cool down: as many as visit so many weights, between these numbers.
SWEPT_WEIGHTS, SWEEPS = 40_000, (20, 60)


class FactorisedObjective:
    """The ELBO as a function of η (b,) and, with several noise levels, their logits (S,).

    :param problem: with a factorised prior.
    :ivar several: whether there are several noise levels.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, prior = problem, problem.prior
        self._size, self.several = np.diag(problem.gram).copy(), len(problem.noise_scales) > 1
        # (m̄, b): sums over a few levels are then sums of long rows, several times as fast.
        self._levels, self._log_prior = (np.ascontiguousarray(a.T) for a in (prior.levels, prior.log_probs[0]))
        self._squares = self._levels**2

    def start(self, key: jax.Array | None = None) -> np.ndarray:
        """Each weight given the others at their posterior means under Gaussian priors of the same moments. O(b³).

        From the largest noise: where it is small at the start the levels of each weight are fixed too soon.

        :param key: a JAX random key, to start from a draw of that posterior instead of its mean.
        """
        precision, mean, scale, factor = self._relaxed
        if key is not None:
            z = np.asarray(jax.random.normal(key, mean.shape), dtype=np.float64)
            mean = mean + scale * solve_triangular(factor, z, lower=True, trans="T")
        return self._given(mean, precision)

    def start_at_noise(self) -> np.ndarray:
        """The best of starts at the posterior mean under Gaussian priors and each noise level. O(S b³).

        Noise and the uncertainty of weights support each other: from the largest noise a fit may stay above the best.
        """
        relaxed = (self._relaxed_at(scale**-2.0) for scale in self._problem.noise_scales)
        starts = [self._given(mean, precision) for precision, mean, _, _ in relaxed]
        return max(starts, key=lambda vector: self(vector)[0])

    def _given(self, mean: np.ndarray, precision: float) -> np.ndarray:
        """Each weight given the others at these means, and the noise given those; then the weights once more."""
        eta = self._cavity(precision, mean)
        if not self.several:
            return eta
        means, squares = self._moments(self._tilted(eta, precision)[1])
        log_noise = self._noise_given(means, squares)
        return self._joined(self._cavity(precision_of(self._problem, log_noise), means), log_noise)

    @cached_property
    def _relaxed(self) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        return self._relaxed_at(float(np.max(self._problem.noise_scales)) ** -2.0)

    def _relaxed_at(self, precision: float) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Gaussian priors and noise of this precision: it, the posterior mean, the priors' scales S and L.

        The posterior covariance is ``S(LLᵀ)⁻¹S``.
        """
        problem = self._problem
        prior = np.exp(self._log_prior)
        mean = self._moments(prior)[0]
        scale = np.sqrt(np.sum(prior * (self._levels - mean) ** 2, axis=0))
        matrix = precision * scale[:, None] * problem.gram * scale
        # A little more than the prior's precision: with much larger entries rounding takes that away.
        matrix[np.diag_indices_from(matrix)] += 1.0 + len(mean) * np.finfo(np.float64).eps * np.diag(matrix).max()
        factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        gradient = precision * (problem.projection - problem.times_gram(mean))
        return precision, mean + scale * cho_solve((factor, True), scale * gradient), scale, factor

    def annealed(self) -> np.ndarray:
        """A start that cools down: sweeps with precisions that rise from almost none to the noise's.

        Where levels are far apart for what the data say it ends in better places than :meth:`start`; with many close
        levels in worse ones. O(b²) a sweep.
        """
        problem = self._problem
        means, squares = self._moments(np.exp(self._log_prior))
        log_noise = problem.log_noise_prior
        information = np.max(self._size * (squares - means**2)) * float(np.max(problem.noise_scales**-2.0))
        count = int(np.clip(SWEPT_WEIGHTS // len(means), *SWEEPS))
        eta = np.zeros(len(means))
        for cooling in np.geomspace(min(1.0, 0.01 / max(information, 1e-300)), 1.0, count):
            if self.several:
                log_noise = self._noise_given(means, squares)
            precision = cooling * precision_of(problem, log_noise)
            eta = self.swept(means, precision)
            means, squares = self._moments(self._tilted(eta, precision)[1])
        return self._joined(eta, log_noise)

    def _noise_given(self, means: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """The noise levels' log-probabilities at their optimum given moments of the weights."""
        residual = float(expected_residuals(self._problem, means[None], squares[None])[0][0])
        return best_noise(self._problem, residual)

    def _cavity(self, precision: float, means: np.ndarray) -> np.ndarray:
        """η of each weight given the means of all others."""
        return precision * (self._problem.projection - self._problem.times_gram(means) + self._size * means)

    def sweep(self, vector: np.ndarray) -> np.ndarray:
        """The noise at its optimum, then one weight after the other: no step lowers the ELBO. O(b m̄ + b²)."""
        problem = self._problem
        eta, log_noise = self._parts(vector)
        means, squares = self._moments(self._tilted(eta, precision_of(problem, log_noise))[1])
        if self.several:
            log_noise = self._noise_given(means, squares)
        return self._joined(self.swept(means, precision_of(problem, log_noise)), log_noise)

    def swept(self, means: np.ndarray, precision: float = 1.0) -> np.ndarray:
        """η after each weight, one after the other, is set to its best given the means of all others."""
        problem, prior = self._problem, self._problem.prior
        own = prior.log_probs[0] - 0.5 * precision * self._size[:, None] * prior.levels**2
        fitted, means, eta = problem.times_gram(means), means.copy(), np.empty(len(means))
        for j, levels in enumerate(prior.levels):
            eta[j] = precision * (problem.projection[j] - fitted[j] + self._size[j] * means[j])
            logits = own[j] + eta[j] * levels
            weights = np.exp(logits - logits.max())
            moved = float(weights @ levels / weights.sum()) - means[j]
            fitted += moved * problem.gram[j]
            means[j] += moved
        return eta

    def distribution(self, vector: np.ndarray) -> Variational:
        """The distribution with these parameters."""
        eta, log_noise = self._parts(vector)
        precision = precision_of(self._problem, log_noise)
        log_normaliser, _ = self._tilted(eta, precision)
        log_probs = self._log_prior + self._tilt(eta, precision) - log_normaliser
        return Variational(np.zeros(1), np.ascontiguousarray(log_probs.T)[None], log_noise)

    def _joined(self, eta: np.ndarray, log_noise: np.ndarray) -> np.ndarray:
        return np.concatenate([eta, log_noise]) if self.several else eta

    def _parts(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta, noise = np.split(vector, [len(self._size)])
        return eta, log_softmax(noise) if noise.size else np.zeros(1)

    def _tilt(self, eta: np.ndarray, precision: float) -> np.ndarray:
        return eta * self._levels - (0.5 * precision * self._size) * self._squares

    def _tilted(self, eta: np.ndarray, precision: float) -> tuple[np.ndarray, np.ndarray]:
        """Log normalisers (b,) and probabilities (m̄, b) of the family."""
        logits = self._tilt(eta, precision)
        logits += self._log_prior
        top = logits.max(axis=0)
        logits -= top
        probs = np.exp(logits, out=logits)
        total = probs.sum(axis=0)
        probs /= total
        return top + np.log(total), probs

    def _moments(self, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means of the weights and of their squares, from probabilities (m̄, b)."""
        return (probs * self._levels).sum(axis=0), (probs * self._squares).sum(axis=0)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient. O(b m̄ + b²)."""
        problem = self._problem
        eta, log_noise = self._parts(vector)
        precision = precision_of(problem, log_noise)
        log_normaliser, probs = self._tilted(eta, precision)
        mean, square = self._moments(probs)
        residual, slope = expected_residuals(problem, mean[None], square[None])
        terms = noise_terms(problem, log_noise, float(residual[0]))
        divergence = float(eta @ mean - 0.5 * precision * (self._size @ square) - log_normaliser.sum())
        value = float(np.exp(log_noise) @ terms) - divergence + problem.log_weights
        # The derivative in qⱼ is `away·w`, up to constants.
        away = -0.5 * precision * slope[0] - eta
        probs *= self._levels - mean
        of_eta = away * (probs * self._levels).sum(axis=0)
        if not self.several:
            return value, of_eta
        of_precision = -0.5 * float(np.sum(self._size * away * (probs * self._squares).sum(axis=0)))
        of_noise = terms - 1 + of_precision * problem.noise_scales**-2.0
        return value, self._joined(of_eta, through_softmax(log_noise, of_noise))
