"""The bound of the ELBO of a mixture of factorised distributions, or under a mixture prior, in free logits."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, logsumexp

from .elbo import (
    Variational,
    centred,
    expected_log_prior,
    expected_residuals,
    noise_terms,
    precision_of,
    through_softmax,
)
from .entropy import cross_bound, pairwise_bound
from .problem import Problem

ENTROPIES = ("pairwise", "cross")


class MixtureObjective:
    """The bound as a function of a flat vector: logits of the components (R, b, m̄) and of their weights (R,); with the
    cross bound of the entropy log a (b, m̄); with several noise levels their logits (S,).

    :param problem: the regression.
    :param num_mixtures: R. With one component and a factorised prior the bound is the ELBO.
    :param entropy: ``"pairwise"`` or ``"cross"``, the bound of the entropy.
    """

    def __init__(self, problem: Problem, num_mixtures: int, entropy: str) -> None:
        self._problem, self._entropy = problem, entropy
        levels = problem.prior.levels.shape
        self._shapes = [
            (num_mixtures, *levels),
            (num_mixtures,),
            levels if entropy == "cross" else (0,),
            problem.noise_scales.shape,
        ]

    def vector(self, q: Variational) -> np.ndarray:
        """Parameters of a distribution, with its marginals for a."""
        marginals = logsumexp(q.log_weights[:, None, None] + q.log_probs, axis=0)
        log_a = marginals if self._entropy == "cross" else np.zeros(0)
        return np.concatenate([part.ravel() for part in (q.log_probs, q.log_weights, log_a, q.log_noise)])

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), self._shapes, strict=True)]

    def distribution(self, vector: np.ndarray) -> Variational:
        """The distribution with these parameters."""
        logits, weights, _, noise = self._parts(vector)
        return Variational(log_softmax(weights), log_softmax(logits, axis=-1), log_softmax(noise))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient. O(R² b m̄ + R b²)."""
        q = self.distribution(vector)
        value, of_weights, of_probs, of_noise = expected_terms(self._problem, q)
        of_a = np.zeros(0)
        if self._entropy == "cross":
            entropy, *slopes, of_a = cross_bound(q.log_weights, q.log_probs, self._parts(vector)[2])
        else:
            entropy, *slopes = pairwise_bound(q.log_weights, q.log_probs)
        gradient = (
            through_softmax(q.log_probs, of_probs) + centred(q.log_probs, slopes[1]),
            through_softmax(q.log_weights, of_weights + slopes[0]),
            of_a,
            through_softmax(q.log_noise, of_noise),
        )
        return value + entropy, np.concatenate([part.ravel() for part in gradient])


def expected_terms(problem: Problem, q: Variational) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """The ELBO but for the entropy of the weights; its gradients in α, the probabilities and those of the noise."""
    alpha, probs, levels = np.exp(q.log_weights), np.exp(q.log_probs), problem.prior.levels
    means, squares = np.sum(probs * levels, axis=-1), np.sum(probs * levels**2, axis=-1)
    residuals, slope = expected_residuals(problem, means, squares)
    prior, of_prior = expected_log_prior(problem, q.log_probs)
    half_precision = 0.5 * precision_of(problem, q.log_noise)
    of_residual = slope[..., None] * levels + np.diag(problem.gram)[:, None] * levels**2
    terms = noise_terms(problem, q.log_noise, float(alpha @ residuals))
    value = float(alpha @ prior) + float(np.exp(q.log_noise) @ terms) + problem.log_weights
    of_probs = alpha[:, None, None] * (of_prior - half_precision * of_residual)
    return value, prior - half_precision * residuals, of_probs, terms - 1
