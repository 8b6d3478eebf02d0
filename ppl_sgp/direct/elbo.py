"""The evidence lower bound of discrete weights, exact but for the entropy of mixtures, with its gradient.

For ``q = Σₖ αₖ ∏ⱼ q⁽ᵏ⁾ⱼ`` over weights with levels w̄ⱼ, and an independent q over noise variances σ², with
``sₖⱼ = q⁽ᵏ⁾ⱼᵀw̄ⱼ`` and ``vₖⱼ = q⁽ᵏ⁾ⱼᵀw̄ⱼ²``,

    E log p(y | w) = −n/2 log 2π − n/2 E log σ² − ½ E[σ⁻²] Σₖ αₖ [yᵀy − 2 sₖᵀr + sₖᵀA sₖ + diag(A)ᵀ(vₖ − sₖ²)].

Evans (2022), theorem 7.1, for one component. As printed there, hⱼ = w̄ⱼ·Aⱼⱼ for w̄ⱼ²·Aⱼⱼ, and −n/2 log 2π is left out
of (7.8) and (7.10). O(R(b m̄ + b²)) a value with gradient, independent of n.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import logsumexp, softmax

from .problem import Problem


@dataclasses.dataclass(frozen=True)
class Variational:
    """A mixture of R factorised distributions over weights, and one over noise levels.

    :param log_weights: log α, shape (R,).
    :param log_probs: log q⁽ᵏ⁾ⱼ, shape (R, b, m̄).
    :param log_noise: log-probabilities of the noise levels, shape (S,).
    """

    log_weights: np.ndarray
    log_probs: np.ndarray
    log_noise: np.ndarray


def expected_residuals(problem: Problem, s: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``E‖y − Φw‖²`` under each component, (R,), and its gradient in the means, (R, b); that in v is diag(A).

    :param s: means of the weights, shape (R, b).
    :param v: means of their squares, shape (R, b).
    """
    size, fitted = np.diag(problem.gram), s @ problem.gram
    value = problem.sum_squares + np.sum(s * (fitted - 2 * problem.projection) + size * (v - s**2), axis=-1)
    return value, 2 * (fitted - problem.projection - size * s)


def noise_terms(problem: Problem, log_noise: np.ndarray, residual: float) -> np.ndarray:
    """What each noise level adds to the ELBO, (S,): log likelihood with this ``E‖y − Φw‖²``, log prior and entropy."""
    variance = problem.noise_scales**2
    likelihood = -0.5 * (problem.num_rows * np.log(2 * np.pi * variance) + residual / variance)
    return likelihood + problem.log_noise_prior - log_noise


def expected_log_prior(problem: Problem, log_probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``E log p(w)`` under each component, (R,), and its gradient (R, b, m̄).

    Of a mixture prior the bound ``logsumexpᵢ(log πᵢ + Σⱼ qⱼᵀ log p⁽ⁱ⁾ⱼ)``, which is tighter than theorem 7.4's
    ``Σ πᵢ Σⱼ qⱼᵀ log p⁽ⁱ⁾ⱼ`` by Jensen's inequality.
    """
    q, prior = np.exp(log_probs), problem.prior
    each = np.einsum("rbl,pbl->rp", q, prior.log_probs) + prior.log_weights
    return logsumexp(each, axis=1), np.einsum("rp,pbl->rbl", softmax(each, axis=1), prior.log_probs)


def component_entropy(log_probs: np.ndarray) -> tuple[float, np.ndarray]:
    """The entropy of one factorised distribution (1, b, m̄), and its gradient in the probabilities."""
    return -float(np.sum(np.exp(log_probs) * log_probs)), -log_probs - 1


def mixture_entropy(
    log_weights: np.ndarray, log_probs: np.ndarray, log_a: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """A lower bound of the entropy of a mixture, and its gradients in weights, probabilities and log a.

    ``H ≥ −Σₖ αₖ Σⱼ q⁽ᵏ⁾ⱼᵀ log aⱼ − log Σₖₗ αₖ αₗ ∏ⱼ q⁽ᵏ⁾ⱼᵀ(q⁽ˡ⁾ⱼ / aⱼ)`` for any positive a (b, m̄): tighter than
    theorem 7.3's 1 − T for −log T, and of the same value however a is scaled. The products stay in logarithms: with
    b = 2,000 and uniform a they reach 10^2299. O(R² b m̄).
    """
    count, alpha, q = len(log_probs), np.exp(log_weights), np.exp(log_probs)
    overlap, norms = np.zeros((count, count)), {}
    for k in range(count):
        for other in range(k + 1):
            norms[k, other] = logsumexp(log_probs[k] + log_probs[other] - log_a, axis=-1, keepdims=True)
            overlap[k, other] = overlap[other, k] = norms[k, other].sum()
    joint = log_weights[:, None] + log_weights + overlap
    total = logsumexp(joint)
    weight = np.exp(joint - total)
    of_probs, of_a = -alpha[:, None, None] * log_a, -np.einsum("r,rbl->bl", alpha, q)
    for (k, other), norm in norms.items():
        slope = 2 * weight[k, other] * np.exp(log_probs[other] - log_a - norm)  # of the overlap, in q⁽ᵏ⁾
        of_probs[k] -= slope
        if k != other:
            of_probs[other] -= 2 * weight[k, other] * np.exp(log_probs[k] - log_a - norm)
        of_a += (0.5 if k == other else 1) * slope * q[k]
    cross = np.sum(q * log_a, axis=(1, 2))
    return float(-alpha @ cross - total), -cross - 2 * weight.sum(axis=1) / alpha, of_probs, of_a


def through_softmax(log_probs: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient in logits from that in probabilities."""
    q = np.exp(log_probs)
    return q * (gradient - np.sum(q * gradient, axis=-1, keepdims=True))
