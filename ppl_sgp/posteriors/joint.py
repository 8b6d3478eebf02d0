"""Gaussians of several rows together: a diagonal, and a root of what the rows have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class JointMoments(NamedTuple):
    """The Gaussian of f at k rows, of one draw and q outputs, with covariance ``diag(own) + root rootᵀ``.

    :ivar mean: (q, k).
    :ivar root: (q, k, r).
    :ivar own: variances that rows do not share, (q, k).
    """

    mean: np.ndarray
    root: np.ndarray
    own: np.ndarray


def joint_log_density(residual: np.ndarray, own: np.ndarray, root: np.ndarray) -> float:
    """``log N(residual; 0, diag(own) + root rootᵀ)`` by singular values, O(k r min(k, r)): a sum of positive terms.

    :param residual: shape (k,).
    :param own: positive variances, shape (k,).
    :param root: shape (k, r).
    """
    scale = np.sqrt(own)
    e = residual / scale
    U, s, _ = np.linalg.svd(root / scale[:, None], full_matrices=False)
    along = U.T @ e
    outside = e - U @ along
    log_det = 2 * np.sum(np.log(scale)) + np.sum(np.log1p(s**2))
    return -0.5 * (len(e) * np.log(2 * np.pi) + log_det + outside @ outside + np.sum(along**2 / (1 + s**2)))


def mixture_covariance(draws: Iterator[tuple[JointMoments, np.ndarray]], weights: np.ndarray) -> np.ndarray:
    """The covariance (q, k, k) of a mixture: the mean of covariances, and the covariance of means.

    :param draws: moments, and variances (q, k) to add to them, of each component.
    """
    total, means = None, []
    for weight, (moments, noise) in zip(weights, draws, strict=True):
        covariance = moments.root @ moments.root.swapaxes(1, 2)
        np.einsum("qii->qi", covariance)[...] += moments.own + noise
        means.append(moments.mean)
        total = weight * covariance if total is None else total + weight * covariance
    stacked = np.stack(means)
    deviation = stacked - np.tensordot(weights, stacked, axes=1)
    return total + np.einsum("s,sqi,sqj->qij", weights, deviation, deviation)


def mixture_joint_density(
    y: np.ndarray, draws: Iterator[tuple[JointMoments, np.ndarray]], weights: np.ndarray
) -> float:
    """Log density of all rows and outputs (q, k) together, which are independent given a draw but for what f shares."""
    of_draws = [joint_densities(y, moments, noise).sum() for moments, noise in draws]
    return float(logsumexp(of_draws, b=weights))


def joint_densities(y: np.ndarray, moments: JointMoments, noise: np.ndarray) -> np.ndarray:
    """Log densities (q,) of the rows of each output together, (q, k), with variances of noise."""
    parts: Sequence[np.ndarray] = (y - moments.mean, moments.own + noise, moments.root)
    return np.array([joint_log_density(*each) for each in zip(*parts, strict=True)])
