"""Coordinates in which features are orthogonal over the rows, and weights independent under a prior.

With ``FFᵀ`` the covariance of the prior and A = RᵀR, the columns of ``W = FV`` are such coordinates if V are the right
singular vectors of RF, or eigenvectors of FᵀAF: the latter are several times cheaper, and have half the digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .._internal import checks
from ..priors import WeightPrior
from .compressed import RANK_TOLERANCE
from .moments import Moments
from .root_moments import RootMoments, fewest_rows

#: Nats of an evidence that eigenvalues of products may round away; an amplitude ten times what the data say costs a
#: hundred times as much.
NEGLIGIBLE = 1e-4
#: Features from which on time counts: products are tried although there is a root, if nobody asked for it, and singular
#: values are found once.
MANY = 1000


class Rotation(NamedTuple):
    """Orthogonal coordinates of the weights, k of which the rows touch.

    :ivar norms: of the features over the rows, (k,), in descending order.
    :ivar projection: c and rss joined, (k + 1,) or (q, k + 1).
    :ivar rotation: W, (m, m); the columns beyond k are those of null directions.
    """

    norms: np.ndarray
    projection: np.ndarray
    rotation: np.ndarray


def of_factor(rows: np.ndarray, projection: np.ndarray, root: np.ndarray) -> Rotation:
    """From R (k, m), c and rss (…, k + 1), and F (m, m).

    Singular values keep the digits that their squares would lose.
    """
    left, singular, right = np.linalg.svd(rows @ root, full_matrices=True)
    c, rss = projection[..., :-1] @ left, projection[..., -1:]
    return Rotation(singular, np.concatenate([c[..., : len(singular)], rss], axis=-1), root @ right.T)


def of_root(moments: Moments, root: np.ndarray) -> Rotation | None:
    """From the root of products of many features, without the compressed rows, which take as long again."""
    m = len(root)
    if not isinstance(moments, RootMoments) or m < MANY:
        return None
    rows = fewest_rows(moments.root)
    left, singular, right = np.linalg.svd(rows[:, :m] @ root, full_matrices=True)
    least = RANK_TOLERANCE * np.finfo(np.float64).eps * singular.max(initial=0)
    rank = int(np.sum(singular[: int(moments.num_rows)] > least))
    c = (left.T @ rows[:, m:]).T.reshape(*np.shape(moments.sum_squares), len(rows))
    rss = np.sum(c[..., rank:] ** 2, axis=-1, keepdims=True)
    return Rotation(singular[:rank], np.concatenate([c[..., :rank], rss], axis=-1), root @ right.T)


def of_products(moments: Moments, root: np.ndarray) -> Rotation | None:
    """From the Gram matrix; ``None`` where that is diagonal, has not the digits, as with no more rows than features,
    or has a root that is as quick.

    Rounding moves each eigenvalue by about ε of the largest, which an evidence with the given prior, times a common
    variance a², sees as ``½ m ε λ_max a²/σ²`` nats. The a² is estimated from what the feature that explains most, such
    as a level, leaves of y; the noise is no smaller than the least-squares residual.
    """
    has_root = isinstance(moments, RootMoments) and (moments.required or len(root) < MANY)
    if moments.gram.ndim == 1 or has_root or moments.num_rows <= len(root):  # these leave no residual
        return None
    scale = np.diagonal(root)
    independent = np.count_nonzero(root) == np.count_nonzero(scale)
    gram = scale[:, None] * moments.gram * scale if independent else root.T @ moments.gram @ root
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    n, m, eps = float(moments.num_rows), len(root), np.finfo(np.float64).eps
    rank = min(int(np.sum(eigenvalues > RANK_TOLERANCE * eps * eigenvalues[0])), int(n))
    rotation = scale[:, None] * vectors if independent else root @ vectors
    c = (rotation[:, :rank].T @ moments.feature_output).T / np.sqrt(eigenvalues[:rank])
    rss = moments.sum_squares - np.sum(c**2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.nan_to_num(moments.feature_output.T**2 / np.diagonal(moments.gram))
        left = moments.sum_squares - np.max(explained, axis=-1, initial=0)
        variance = left / np.sum(eigenvalues[1:rank])
        lost = 0.5 * m * eps * eigenvalues[0] * variance * n / rss
    if not np.all((rss > 0) & (lost <= NEGLIGIBLE)):
        return None
    return Rotation(np.sqrt(eigenvalues[:rank]), np.concatenate([c, rss[..., None]], axis=-1), rotation)


def reference_root(prior: WeightPrior, num_features: int) -> np.ndarray:
    """F (m, m) with ``FFᵀ`` the covariance of the prior."""
    if not isinstance(prior, WeightPrior) or not checks.is_concrete(prior):
        raise ValueError("rotate: `prior` must be a weight prior with known numbers, outside `jit` and of no model.")
    if prior.mean is not None or prior.batch_shape:
        raise ValueError("rotate: `prior` must be a single prior of mean zero; subtract a known mean from y instead.")
    if prior.num_weights not in (None, 1, num_features):
        raise ValueError(f"rotate: `prior` must have {num_features} weights; got {prior.num_weights}.")
    with jax.enable_x64(True):  # here alone: statistics are float64 whatever JAX's precision
        exact: Any = jax.tree.map(lambda array: np.asarray(array, dtype=np.float64), prior)
        return np.asarray(exact.apply_root(np.eye(num_features)))
