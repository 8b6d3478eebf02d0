"""Slow truths: textbook formulas on all n rows, none of which shares code or algebra with the package."""

from __future__ import annotations

import decimal
import functools

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy.linalg import cho_factor, cho_solve

import ppl_sgp as sgp

DIGITS = 60


def decimals(array):
    """An object array of exact decimal copies of floats; decimals stay as they are."""
    array = np.asarray(array)
    array = array if array.dtype == object else array.astype(np.float64).astype(object)
    return np.vectorize(decimal.Decimal, otypes=[object])(array)


def exact_log_density(Phi, y, scale, mean, noise_scale, row_weights=None):
    """``log N(y; Φμ, Φ diag(scale²) Φᵀ + noise_scale²/ω)`` in 60-digit arithmetic. O(n³)."""
    m = Phi.shape[1]
    with decimal.localcontext(prec=DIGITS):
        G = decimals(Phi) * decimals(np.broadcast_to(scale, (m,)))
        e = decimals(y) - decimals(Phi) @ decimals(np.broadcast_to(mean, (m,)))
        return _exact_log_normal(e, G @ G.T, noise_scale, row_weights)


def exact_log_evidence(Phi, y, prior, noise_scale, row_weights=None):
    """The same for any prior of the package, at its numbers as they are rounded. ``Phi`` may hold decimals."""
    with decimal.localcontext(prec=DIGITS):
        Phi, e = decimals(Phi), decimals(y)
        if prior.mean is not None:
            e = e - Phi @ decimals(np.broadcast_to(prior.mean, Phi.shape[1:]))
        return _exact_log_normal(e, Phi @ exact_covariance(prior, Phi.shape[1]) @ Phi.T, noise_scale, row_weights)


def exact_covariance(prior, m):
    """The covariance of m weights that a prior of the package stands for, in decimals."""
    if isinstance(prior, sgp.DensePrior):
        return decimals(prior.matrix)
    if isinstance(prior, sgp.KroneckerPrior):
        return functools.reduce(np.kron, [decimals(factor) for factor in prior.factors])
    if isinstance(prior, sgp.BlockPrior):
        blocks = [exact_covariance(block, block.num_weights) for block in prior.blocks]
        edges = np.cumsum([0, *map(len, blocks)])
        C = decimals(np.zeros((m, m)))
        for start, stop, block in zip(edges, edges[1:], blocks, strict=False):
            C[start:stop, start:stop] = block
        return C
    C = np.diag([(2 * log_scale).exp() for log_scale in decimals(np.broadcast_to(prior.log_scale, (m,)))])
    C = C + decimals(np.zeros((m, m)))
    if isinstance(prior, sgp.HouseholderPrior):
        for v in decimals(prior.vectors)[::-1]:
            H = decimals(np.eye(m))
            H[: len(v), : len(v)] -= np.multiply.outer(v, v) * 2 / (v @ v)
            C = H @ C @ H
    return C


def _exact_log_normal(e, K, noise_scale, row_weights):
    """``log N(e; 0, K + noise_scale²/ω)`` of decimals, by Cholesky and forward substitution, a column at a time."""
    n = len(e)
    variance = decimals(np.full(n, noise_scale)) ** 2
    if row_weights is not None:
        variance = variance / decimals(row_weights)
    K[np.diag_indices(n)] += variance
    log_det, quadratic = decimal.Decimal(0), decimal.Decimal(0)
    for j in range(n):
        pivot = K[j, j]
        column, step = K[j + 1 :, j].copy(), e[j]
        log_det += pivot.ln()
        quadratic += step**2 / pivot
        K[j + 1 :, j + 1 :] -= np.multiply.outer(column, column) / pivot
        e[j + 1 :] -= column * step / pivot
    log_two_pi = (2 * decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")).ln()
    return float(-(quadratic + log_det + n * log_two_pi) / 2)


def dense_log_density(Phi, y, scale, mean, noise_scale):
    """The same from the n x n covariance in float64, for well-conditioned problems. O(n³)."""
    n, m = Phi.shape
    K = (Phi * np.broadcast_to(scale, (m,)) ** 2) @ Phi.T + noise_scale**2 * np.eye(n)
    factor = cho_factor(K, lower=True)
    e = y - Phi @ np.broadcast_to(mean, (m,))
    log_det = 2 * np.sum(np.log(np.diag(factor[0])))
    return -0.5 * (e @ cho_solve(factor, e) + log_det + n * np.log(2 * np.pi))


def row_log_density(Phi, y, scale, mean, noise_scale, gram=None):
    """The same in O(n m²) with residuals of the rows themselves, so that nothing cancels: for large n. Float64.

    ``gram = Phi.T @ Phi`` saves time if it is known.
    """
    n, m = Phi.shape
    g = np.broadcast_to(scale, (m,)) / noise_scale
    e = (y - Phi @ np.broadcast_to(mean, (m,))) / noise_scale
    B = np.eye(m) + g[:, None] * (Phi.T @ Phi if gram is None else gram) * g
    factor = cho_factor(B, lower=True)
    u = cho_solve(factor, g * (Phi.T @ e))
    residual = e - Phi @ (g * u)
    log_det = 2 * np.sum(np.log(np.diag(factor[0])))
    return -0.5 * (residual @ residual + u @ u + log_det + n * np.log(2 * np.pi * noise_scale**2))


def dense_weight_posterior(Phi, y, scale, mean, noise_scale):
    """Mean and covariance of w given y by conditioning the joint Gaussian of (w, y). O(n³)."""
    n, m = Phi.shape
    S_inverse = np.diag(np.broadcast_to(scale, (m,)) ** 2)
    mean = np.broadcast_to(mean, (m,))
    gain = np.linalg.solve(Phi @ S_inverse @ Phi.T + noise_scale**2 * np.eye(n), Phi @ S_inverse).T
    return mean + gain @ (y - Phi @ mean), S_inverse - gain @ Phi @ S_inverse


def finite_difference(f, x, step=1e-5):
    """Central differences of ``f`` along each entry of ``x``: shape x.shape + shape of f(x)."""
    x = np.asarray(x, dtype=np.float64)
    columns = []
    for index in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[index] = step
        columns.append((np.asarray(f(x + h)) - np.asarray(f(x - h))) / (2 * step))
    return np.stack(columns).reshape(x.shape + columns[0].shape)


def check_moments(draws, mean, sd, least_ess=100):
    """Means and standard deviations of one site, (chains, draws), within 4.5 Monte Carlo standard errors."""
    ess = min(float(effective_sample_size(draws)), draws.size)
    assert ess > least_ess
    assert abs(draws.mean() - mean) < 4.5 * sd / np.sqrt(ess)
    # The squares mix more slowly than the values; 4 bounds their variance in units of sd⁴ (2 for a Gaussian).
    squares = (draws - mean) ** 2
    ess = min(float(effective_sample_size(squares)), squares.size)
    assert abs(squares.mean() - sd**2) < 4.5 * sd**2 * np.sqrt(4 / ess)
