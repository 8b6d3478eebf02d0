"""The exact ELBO of a factorised distribution over the weights of a network, with its gradient.

With features φ(x), the monomials of the inputs, ``f = φ(x)ᵀa(w)``. With mean μ and covariance K of the polynomials a
under q, and ``A = ΦᵀΦ``, ``r = Φᵀy``,

    E‖y − f‖² = yᵀy − 2 rᵀμ + μᵀAμ + Σᵢⱼ Aᵢⱼ Kᵢⱼ,

which is (E.8)-(E.12) of Evans (2022) with p = c∘r and V = c∘A∘c at the monomials' features. Monomials of w without a
common weight are independent, so K needs only pairs with one.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import log_softmax

from .elbo import best_noise, component_entropy, expected_log_prior, noise_terms, precision_of, through_softmax
from .network_polynomial import NetworkPolynomial
from .problem import Problem


class NetworkObjective:
    """The ELBO as a function of a flat vector: logits of levels (b, m̄) and, with several, those of noise levels (S,).

    :param problem: sums over rows of m monomials of the inputs; the prior of the b weights.
    :param polynomial: the network.
    :param positions: which of the m monomials belongs to each of the network's, shape (h,).
    """

    def __init__(self, problem: Problem, polynomial: NetworkPolynomial, positions: np.ndarray) -> None:
        self.problem, self._singles, self._positions = problem, polynomial.singles, positions
        self._coefficients = polynomial.coefficients
        (first, second), (self._squares, which) = polynomial.pairs, polynomial.squares
        weights = (
            self._coefficients[first] * self._coefficients[second] * problem.gram[positions[first], positions[second]]
        )
        weights *= np.where(first == second, 1.0, 2.0)
        self._of_squares = np.bincount(which, weights)
        self._of_singles = csr_array((weights, (first, second)), shape=(len(positions),) * 2)
        self._powers = polynomial.table(problem.prior.levels)

    def start(self, perturbation: np.ndarray) -> np.ndarray:
        """The prior, with its logits perturbed, (b, m̄)."""
        return self._vector(self.problem.prior.log_probs[0] + perturbation, self.problem.log_noise_prior)

    def distribution(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of levels (b, m̄) and of noise levels (S,)."""
        shape = self.problem.prior.levels.shape
        logits, noise = np.split(vector, [shape[0] * shape[1]])
        return log_softmax(logits.reshape(shape), axis=-1), log_softmax(noise) if noise.size else np.zeros(1)

    def _vector(self, logits: np.ndarray, log_noise: np.ndarray) -> np.ndarray:
        return np.concatenate([logits.ravel(), log_noise if len(log_noise) > 1 else np.zeros(0)])

    def moments(self, log_probs: np.ndarray) -> np.ndarray:
        """``E[wⱼʳ]``, shape (b · num_powers,)."""
        return np.einsum("bl,blr->br", np.exp(log_probs), self._powers).ravel()

    def residual(self, moments: np.ndarray) -> tuple[float, np.ndarray]:
        """``E‖y − f‖²`` and its gradient in the moments, shape (b, num_powers)."""
        problem, positions = self.problem, self._positions
        single = self._singles(moments)
        mean = np.bincount(positions, self._coefficients * single, len(problem.gram))
        fitted, paired = problem.gram @ mean, self._of_singles @ single
        value = problem.sum_squares + mean @ (fitted - 2 * problem.projection) - single @ paired
        of_singles = 2 * self._coefficients * (fitted - problem.projection)[positions]
        of_singles -= paired + self._of_singles.T @ single
        gradient = self._singles.pullback(moments, of_singles) + self._squares.pullback(moments, self._of_squares)
        value += self._of_squares @ self._squares(moments)
        return float(value), gradient.reshape(len(problem.prior.levels), -1)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient. O(m² + pairs + b m̄ r) for moments up to power r."""
        problem = self.problem
        log_probs, log_noise = self.distribution(vector)
        residual, of_moments = self.residual(self.moments(log_probs))
        prior, of_prior = expected_log_prior(problem, log_probs[None])
        entropy, of_entropy = component_entropy(log_probs[None])
        terms = noise_terms(problem, log_noise, residual)
        value = float(np.exp(log_noise) @ terms) + float(prior[0]) + entropy + problem.log_weights
        likelihood = -0.5 * precision_of(problem, log_noise) * np.einsum("br,blr->bl", of_moments, self._powers)
        gradient = through_softmax(log_probs, of_prior[0] + of_entropy[0] + likelihood)
        return value, self._vector(gradient, through_softmax(log_noise, terms - 1))

    def sweep(self, vector: np.ndarray) -> np.ndarray:
        """The noise at its optimum, then one weight after the other: no step lowers the ELBO. b evaluations."""
        problem, (log_probs, log_noise) = self.problem, self.distribution(vector)
        residual = self.residual(self.moments(log_probs))[0]
        if len(log_noise) > 1:
            log_noise = best_noise(problem, residual)
        precision, log_probs = precision_of(problem, log_noise), log_probs.copy()
        for j, own in enumerate(problem.prior.log_probs[0]):
            # Linear in each weight's moments given the others.
            slope = self.residual(self.moments(log_probs))[1][j]
            log_probs[j] = log_softmax(own - 0.5 * precision * self._powers[j] @ slope)
        return self._vector(log_probs, log_noise)
