"""Slow truths for expansions: derivatives of all rows at once, averages on fine grids, evidences by sampling."""

import numpy as np
from scipy.special import expit, gammaln, logsumexp


def bernoulli(eta, y):
    """Log density, gradient and curvature."""
    p = expit(eta)
    return y * eta - np.logaddexp(0, eta), y - p, p * (1 - p)


def poisson(eta, y):
    return y * eta - np.exp(eta) - gammaln(y + 1), y - np.exp(eta), np.exp(eta)


def averaged(family, mean, variance, y):
    """The same averaged over normal predictors, on a fine grid."""
    z = np.linspace(-9, 9, 3001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    eta = mean[:, None] + np.sqrt(variance)[:, None] * z
    return [part @ weights for part in family(eta, y[:, None])]


def softmax_curvature(Phi, eta):
    """ΦᵀVΦ of all classes, (K m, K m), weights of the first class first."""
    p = np.exp(eta - logsumexp(eta, axis=1, keepdims=True))
    K = p.shape[1]
    V = np.einsum("nk,kl->nkl", p, np.eye(K)) - p[:, :, None] * p[:, None, :]
    m = Phi.shape[1]
    return np.einsum("nkl,ni,nj->kilj", V, Phi, Phi).reshape(K * m, K * m)


def log_evidence(log_likelihood, gram, feature_output, variance, rng, num_draws=4000, wider=1.05):
    """``log ∫ p(y | w) N(w; 0, diag variance) dw`` and its standard error, by importance sampling.

    Draws are from the posterior that a quadratic log likelihood would have, a little wider, in units of the prior, of
    which some are tiny.
    """
    scale = np.sqrt(variance)
    lower = np.linalg.cholesky(np.eye(len(scale)) + scale[:, None] * gram * scale)
    mean = np.linalg.solve(lower.T, np.linalg.solve(lower, scale * feature_output))
    z = rng.standard_normal((num_draws, len(scale)))
    u = mean + wider * np.linalg.solve(lower.T, z.T).T
    # Of normal densities of u under prior and proposal the constants cancel.
    log_weights = log_likelihood(scale * u) - 0.5 * np.sum(u**2, axis=1) + 0.5 * np.sum(z**2, axis=1)
    log_weights += len(scale) * np.log(wider) - np.sum(np.log(np.diag(lower)))
    total = logsumexp(log_weights)
    return total - np.log(num_draws), np.sqrt(np.exp(logsumexp(2 * log_weights) - 2 * total) - 1 / num_draws)
