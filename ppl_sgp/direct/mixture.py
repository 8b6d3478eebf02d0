"""The lower bound of the ELBO of a mixture of factorised distributions, or under a mixture prior, in free logits."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, logsumexp

from .elbo import (
    Variational,
    component_entropy,
    expected_log_prior,
    expected_residuals,
    mixture_entropy,
    noise_terms,
    through_softmax,
)
from .problem import Problem


class MixtureObjective:
    """The bound as a function of a flat vector: logits of the components (R, b, m̄); for R > 1 those of their weights
    (R,) and log a (b, m̄) of the entropy's bound; with several noise levels their logits (S,).

    :param problem: the regression.
    :param num_mixtures: R. With one component and a factorised prior the bound is the ELBO.
    """

    def __init__(self, problem: Problem, num_mixtures: int) -> None:
        self._problem, self._several = problem, num_mixtures > 1
        levels = problem.prior.levels.shape
        self._shapes = [
            (num_mixtures, *levels),
            (num_mixtures,) if self._several else (0,),
            levels if self._several else (0,),
            problem.noise_scales.shape if len(problem.noise_scales) > 1 else (0,),
        ]

    def vector(self, q: Variational) -> np.ndarray:
        """Parameters of a distribution, with its marginals for a."""
        marginals = logsumexp(q.log_weights[:, None, None] + q.log_probs, axis=0)
        parts = [q.log_probs, q.log_weights, marginals, q.log_noise]
        return np.concatenate([part.ravel() for part, shape in zip(parts, self._shapes, strict=True) if shape != (0,)])

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), self._shapes, strict=True)]

    def distribution(self, vector: np.ndarray) -> Variational:
        """The distribution with these parameters."""
        logits, weights, _, noise = self._parts(vector)
        return Variational(
            log_softmax(weights) if weights.size else np.zeros(1),
            log_softmax(logits, axis=-1),
            log_softmax(noise) if noise.size else np.zeros(1),
        )

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient. O(R² b m̄ + R b²)."""
        problem, q = self._problem, self.distribution(vector)
        alpha, probs, levels = np.exp(q.log_weights), np.exp(q.log_probs), problem.prior.levels
        residuals, slope = expected_residuals(
            problem, np.sum(probs * levels, axis=-1), np.sum(probs * levels**2, axis=-1)
        )
        prior, of_probs = expected_log_prior(problem, q.log_probs)
        precision = float(np.exp(q.log_noise) @ problem.noise_scales**-2.0)
        squares = np.diag(problem.gram)[:, None] * levels**2
        of_probs = alpha[:, None, None] * (of_probs - 0.5 * precision * (slope[..., None] * levels + squares))
        of_weights, of_a = prior - 0.5 * precision * residuals, np.zeros(0)
        if self._several:
            entropy, *slopes, of_a = mixture_entropy(q.log_weights, q.log_probs, self._parts(vector)[2])
            of_weights, of_probs = of_weights + slopes[0], of_probs + slopes[1]
        else:
            entropy, of_entropy = component_entropy(q.log_probs)
            of_probs = of_probs + of_entropy
        terms = noise_terms(problem, q.log_noise, float(alpha @ residuals))
        value = float(alpha @ prior) + entropy + float(np.exp(q.log_noise) @ terms) + problem.log_weights
        gradient = [through_softmax(q.log_probs, of_probs)]
        if self._several:
            gradient += [through_softmax(q.log_weights, of_weights), of_a]
        if self._shapes[3] != (0,):
            gradient.append(through_softmax(q.log_noise, terms - 1))
        return value, np.concatenate([part.ravel() for part in gradient])
