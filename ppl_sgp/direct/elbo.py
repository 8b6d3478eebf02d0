"""The terms of the evidence lower bound of discrete weights, with their gradients.

For ``q = Σₖ αₖ ∏ⱼ q⁽ᵏ⁾ⱼ`` over weights with levels w̄ⱼ, and an independent q over noise variances σ², with
``sₖⱼ = q⁽ᵏ⁾ⱼᵀw̄ⱼ`` and ``vₖⱼ = q⁽ᵏ⁾ⱼᵀw̄ⱼ²``,

    E log p(y | w) = −n/2 log 2π − n/2 E log σ² − ½ E[σ⁻²] Σₖ αₖ [yᵀy − 2 sₖᵀr + sₖᵀA sₖ + diag(A)ᵀ(vₖ − sₖ²)].

Evans (2022), theorem 7.1, for one component. As printed there, hⱼ = w̄ⱼ·Aⱼⱼ for w̄ⱼ²·Aⱼⱼ, and −n/2 log 2π is left out
of (7.8) and (7.10). O(R(b m̄ + b²)) a value with gradient, independent of n.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax

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
    size, fitted = np.diag(problem.gram), np.stack([problem.times_gram(means) for means in s])
    value = problem.sum_squares + np.sum(s * (fitted - 2 * problem.projection) + size * (v - s**2), axis=-1)
    return value, 2 * (fitted - problem.projection - size * s)


def noise_terms(problem: Problem, log_noise: np.ndarray, residual: float) -> np.ndarray:
    """What each noise level adds to the ELBO, (S,): log likelihood with this ``E‖y − Φw‖²``, log prior and entropy."""
    variance = problem.noise_scales**2
    likelihood = -0.5 * (problem.num_rows * np.log(2 * np.pi * variance) + residual / variance)
    return likelihood + problem.log_noise_prior - log_noise


def best_noise(problem: Problem, residual: float) -> np.ndarray:
    """The noise levels' log-probabilities at their optimum for this ``E‖y − Φw‖²``, (S,)."""
    return log_softmax(noise_terms(problem, np.zeros(len(problem.noise_scales)), residual))


def precision_of(problem: Problem, log_noise: np.ndarray) -> float:
    """``E[σ⁻²]``."""
    return float(np.exp(log_noise) @ problem.noise_scales**-2.0)


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


def through_softmax(log_probs: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient in logits from that in probabilities."""
    return centred(log_probs, np.exp(log_probs) * gradient)


def centred(log_probs: np.ndarray, weighted: np.ndarray) -> np.ndarray:
    """The gradient in logits from that in probabilities times the probabilities."""
    return weighted - np.exp(log_probs) * np.sum(weighted, axis=-1, keepdims=True)
