"""The n rows as at most m pseudo-rows and one number, without loss.

With ``A = RᵀR`` of rank m̃ and least-squares residual ``rss``, the pair ``(c = R⁻ᵀΦᵀy, rss)`` carries
the whole likelihood: ``c | w ~ N(Rw, σ²I)`` and ``rss ~ σ²χ²`` with n − m̃ degrees of freedom.
No large numbers cancel when the evidence is computed from it, which the textbook
``yᵀy − rᵀP⁻¹r`` (Evans 2022, eq 5.3) cannot say: that loses thousands of nats in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass
from .moments import Moments
from .root_moments import RootMoments

#: Eigenvalues of the unit-diagonal Gram matrix below this multiple of ε·λ_max are rounding. Keeping one too many
#: costs nothing but time; dropping one loses what a large prior variance could make of it.
RANK_TOLERANCE = 2.0


@pytree_dataclass
class Compressed:
    """Compressed data, float64.

    :param factor: R, shape (m̃, m), rows in descending order of information; or the square roots of
        a diagonal Gram matrix, shape (m,), where m̃ is replaced by m and zeros mark null directions.
    :param projection: c and rss joined, shape (m̃ + 1,), or (q, m̃ + 1) for q outputs.
    :param rank: m̃ as a float64 scalar.
    :param reference_variance: rss/n, shape () or (q,): the noise variance around which constants are
        expanded, so that float32 evaluates small numbers.
    :param gram_defect: ``A − RᵀR``, shape (m, m): what rounding and the cut of null directions left; ``None`` if
        the Gram matrix is diagonal, or if R is known better than A.
    :param output_defect: ``Φᵀy − Rᵀc``, shape (m,) or (q, m); ``None`` likewise.
    :param log_constant: ``½ Σ log ω − ½ n log(2π reference_variance)``, shape () or (q,).
    """

    factor: Any
    projection: Any
    rank: Any
    reference_variance: Any
    log_constant: Any
    gram_defect: Any
    output_defect: Any


def compress(moments: Moments) -> Compressed:
    """Factor the Gram matrix and project the outputs on it. O(m³) time, O(m²) memory, independent of n."""
    if isinstance(moments, RootMoments):
        factor, c, rss = _project_root(moments)
    else:
        factor, c = (_project_diagonal if moments.gram.ndim == 1 else _project_dense)(moments)
        rss = np.maximum(moments.sum_squares - np.sum(c**2, axis=0), 0.0)
    rank = int(np.count_nonzero(factor)) if factor.ndim == 1 else len(factor)
    if rank == int(moments.num_rows):
        rss = np.zeros_like(rss)
    projection = np.concatenate([c.T, rss[..., None]], axis=-1)
    defects = (None, None)
    if factor.ndim == 2 and not isinstance(moments, RootMoments):
        defects = (moments.gram - factor.T @ factor, moments.feature_output.T - c.T @ factor)
    return Compressed(factor, projection, np.float64(rank), *_constants(moments, rss), *defects)


def _constants(moments: Moments, rss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    reference = np.where(rss > 0, rss, np.where(moments.sum_squares > 0, moments.sum_squares, 1.0)) / moments.num_rows
    constant = 0.5 * moments.log_weights - 0.5 * moments.num_rows * np.log(2 * np.pi * reference)
    return reference, constant


def _project_dense(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """R = Λ^½ Qᵀ D^½ from the eigenvectors of the unit-diagonal Gram matrix: ranks do not depend on units."""
    diagonal = np.diag(moments.gram)
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    eigenvalues, vectors = np.linalg.eigh(moments.gram / np.outer(root, root))
    order = np.argsort(eigenvalues)[::-1][: int(moments.num_rows)]
    largest = max(eigenvalues[order[0]], 0.0)
    kept = order[eigenvalues[order] > RANK_TOLERANCE * np.finfo(np.float64).eps * largest]
    root_eigenvalues, vectors = np.sqrt(eigenvalues[kept]), vectors[:, kept]
    c = (vectors.T @ (moments.feature_output.T / root).T).T / root_eigenvalues
    return root_eigenvalues[:, None] * vectors.T * root, c.T


def _project_root(moments: RootMoments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R = ΣVᵀD^½ from the singular values of the root with columns of unit norm, whose digits a Gram matrix halves."""
    m = moments.gram.shape[-1]
    Phi, y = moments.root[:, :m], moments.root[:, m:]
    norms = np.linalg.norm(Phi, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    left, singular, right = np.linalg.svd(Phi / norms, full_matrices=False)
    rank = int(np.sum(singular[: int(moments.num_rows)] > RANK_TOLERANCE * np.finfo(np.float64).eps * singular[0]))
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    c = left.T @ y
    outputs, rss = np.shape(moments.sum_squares), np.sum((y - left @ c) ** 2, axis=0)
    return singular[:, None] * right * norms, c.reshape(rank, *outputs), rss.reshape(outputs)


def _project_diagonal(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    factor = np.sqrt(moments.gram)
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor > 0)
    return factor, (moments.feature_output.T * inverse).T
