"""Lower bounds of the entropy of a mixture ``q = Σₖ αₖ ∏ⱼ q⁽ᵏ⁾ⱼ``, which has no closed form.

Gradients in probabilities are returned times the probabilities, ``q ∂H/∂q``: in logarithms nothing overflows.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp


def pairwise_bound(log_weights: np.ndarray, log_probs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """``H ≥ Σₖ αₖ [H(q⁽ᵏ⁾) − log Σₗ αₗ ∏ⱼ Σ √(q⁽ᵏ⁾ⱼ q⁽ˡ⁾ⱼ)]``, with gradients in weights and (times q) probabilities.

    Kolchinsky & Tracey (2017), with the Bhattacharyya distance. Exact where components are equal, and where no two of
    them overlap. O(R² b m̄).
    """
    count, alpha, q = len(log_probs), np.exp(log_weights), np.exp(log_probs)
    entropy = -np.sum(q * log_probs, axis=(1, 2))
    overlap, shares = np.zeros((count, count)), {}
    for k in range(count):
        for other in range(k):
            roots = 0.5 * (log_probs[k] + log_probs[other])
            norm = logsumexp(roots, axis=-1, keepdims=True)
            overlap[k, other] = overlap[other, k] = norm.sum()
            shares[k, other] = np.exp(roots - norm)
    joint = log_weights + overlap
    total = logsumexp(joint, axis=1)
    weight = np.exp(joint - total[:, None])
    of_weights = entropy - total - alpha @ np.exp(overlap - total[:, None])
    of_probs = -alpha[:, None, None] * q * (log_probs + 1)
    for (k, other), share in shares.items():
        slope = 0.5 * (alpha[k] * weight[k, other] + alpha[other] * weight[other, k]) * share
        of_probs[k] -= slope
        of_probs[other] -= slope
    return float(alpha @ (entropy - total)), of_weights, of_probs


def cross_bound(
    log_weights: np.ndarray, log_probs: np.ndarray, log_a: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """``H ≥ −Σₖ αₖ Σⱼ q⁽ᵏ⁾ⱼᵀ log aⱼ − log Σₖₗ αₖ αₗ ∏ⱼ q⁽ᵏ⁾ⱼᵀ(q⁽ˡ⁾ⱼ / aⱼ)`` for any positive a (b, m̄).

    Evans (2022), theorem 7.3, with −log T for 1 − T: tighter, and of the same value however a is scaled. With b = 2,000
    and uniform a the products reach 10^2299, so they stay in logarithms. O(R² b m̄). Gradients in weights, in
    probabilities (times q) and in log a.
    """
    count, alpha, q = len(log_probs), np.exp(log_weights), np.exp(log_probs)
    overlap, shares = np.zeros((count, count)), {}
    for k in range(count):
        for other in range(k + 1):
            terms = log_probs[k] + log_probs[other] - log_a
            norm = logsumexp(terms, axis=-1, keepdims=True)
            overlap[k, other] = overlap[other, k] = norm.sum()
            shares[k, other] = np.exp(terms - norm)
    joint = log_weights[:, None] + log_weights + overlap
    total = logsumexp(joint)
    weight = np.exp(joint - total)
    of_probs, of_a = -alpha[:, None, None] * q * log_a, -np.einsum("r,rbl->bl", alpha, q)
    for (k, other), share in shares.items():
        slope = 2 * weight[k, other] * share
        of_probs[k] -= slope
        if k != other:
            of_probs[other] -= slope
        of_a += (0.5 if k == other else 1.0) * slope
    cross = np.sum(q * log_a, axis=(1, 2))
    return float(-alpha @ cross - total), -cross - 2 * weight.sum(axis=1) / alpha, of_probs, of_a
