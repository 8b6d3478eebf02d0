"""Weights of a logistic or softmax regression given their precisions: the mode and the curvature there.

``H = Σᵢ (diag pᵢ − pᵢpᵢᵀ) ⊗ φᵢφᵢᵀ + I ⊗ diag α`` is the negative Hessian of ``log p(t | W) + log N(W | 0, α⁻¹)``, a
concave function, and ``log p(t) ≈ log p(t | W) − ½ Σ α w² + ½ C Σ log α − ½ log|H|`` (Tipping 2001, section 3, with C
logits: one for two classes, else one a class).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import logsumexp

from .._internal.logits import logits_of

#: Newton's method stops when a step would gain less than this many nats.
RESOLVED = 1e-10
#: The shortest share of a Newton step that is tried.
SHORTEST = 1e-8


class Mode(NamedTuple):
    """Where the weights (C, k) are most probable, with C logits and k features."""

    weights: np.ndarray
    factor: np.ndarray  # lower triangular L with H = LLᵀ, (Ck, Ck)
    log_evidence: float

    def variances(self) -> np.ndarray:
        """The diagonal of H⁻¹, shape (C, k)."""
        inverse = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        return np.sum(inverse**2, axis=0).reshape(self.weights.shape)


def find_mode(Phi: np.ndarray, labels: np.ndarray, precision: np.ndarray, start: np.ndarray) -> Mode:
    """Newton's method with halved steps. O(n (Ck)²) a step.

    :param Phi: features, shape (n, k).
    :param labels: classes as integers from 0, shape (n,).
    :param precision: prior precisions, shared by the logits, shape (k,).
    :param start: weights to start from, shape (C, k).
    """
    C, k = start.shape
    one_hot = (labels[:, None] == np.arange(max(C, 2))).astype(float)[:, -C:]
    weights = start
    value, probabilities = _objective(Phi, labels, precision, weights)
    while True:
        gradient = (one_hot - probabilities).T @ Phi - precision * weights
        factor = np.linalg.cholesky(_curvature(Phi, probabilities, precision))
        step = cho_solve((factor, True), gradient.ravel()).reshape(C, k)
        size = 1.0
        if 0.5 * np.sum(gradient * step) < RESOLVED * max(1.0, abs(value)):
            weights = weights + step  # convergence is quadratic: nothing is left after it
            break
        proposed = _objective(Phi, labels, precision, weights + step)
        while proposed[0] <= value and size > SHORTEST:
            size /= 2
            proposed = _objective(Phi, labels, precision, weights + size * step)
        if proposed[0] <= value:  # a concave function has no gain along its Newton step to rounding only
            break
        weights, (value, probabilities) = weights + size * step, proposed
    log_determinant = 2 * np.sum(np.log(np.diag(factor)))
    return Mode(weights, factor, float(value + 0.5 * C * np.sum(np.log(precision)) - 0.5 * log_determinant))


def _objective(Phi, labels, precision, weights) -> tuple[float, np.ndarray]:
    """Log joint density up to constants of the precisions, and probabilities (n, C) of the modelled logits."""
    logits = logits_of(weights, Phi)
    total = logsumexp(logits, axis=1)
    log_likelihood = np.sum(logits[np.arange(len(labels)), labels] - total)
    probabilities = np.exp(logits - total[:, None])[:, -len(weights) :]
    return float(log_likelihood - 0.5 * np.sum(precision * weights**2)), probabilities


def _curvature(Phi: np.ndarray, probabilities: np.ndarray, precision: np.ndarray) -> np.ndarray:
    C, k = probabilities.shape[1], Phi.shape[1]
    H = np.empty((C, k, C, k))
    for c in range(C):
        for e in range(c + 1):
            spread = probabilities[:, c] * ((c == e) - probabilities[:, e])
            H[c, :, e, :] = Phi.T @ (spread[:, None] * Phi)
            H[e, :, c, :] = H[c, :, e, :].T
        H[c, np.arange(k), c, np.arange(k)] += precision
    return H.reshape(C * k, C * k)
