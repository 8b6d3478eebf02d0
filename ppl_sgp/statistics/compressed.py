"""The n rows as at most m pseudo-rows and one number, without loss.

With ``A = RᵀR`` of rank m̃ and least-squares residual ``rss``, the pair ``(c = R⁻ᵀΦᵀy, rss)`` carries
the whole likelihood: ``c | w ~ N(Rw, σ²I)`` and ``rss ~ σ²χ²`` with n − m̃ degrees of freedom.
No large numbers cancel when the evidence is computed from it, which the textbook
``yᵀy − rᵀP⁻¹r`` (Evans 2022, eq 5.3) cannot say: that loses thousands of nats in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass, static
from .moments import Moments
from .root_moments import RootMoments, fewest_rows

#: Eigenvalues of the unit-diagonal Gram matrix below this multiple of ε·λ_max are rounding. Keeping one too many
#: costs nothing but time; dropping one loses what a large prior variance could make of it.
RANK_TOLERANCE = 2.0


#: float32 is within about 0.1 nat up to so large a log evidence, and down to so small a noise, relative to y.
FLOAT32_NATS, FLOAT32_NOISE = 2e6, 3e-4


@pytree_dataclass
class Compressed:
    """Compressed data, float64.

    :param factor: R, shape (k, m), rows in descending order of information, of which the first m̃ are not zero; or the
        square roots of a diagonal Gram matrix, shape (m,), where zeros mark null directions.
    :param projection: c and rss joined, shape (k + 1,), or (q, k + 1) for q outputs.
    :param rank: m̃ as a float64 scalar.
    :param reference_variance: rss/n, shape () or (q,): the noise variance around which constants are
        expanded, so that float32 evaluates small numbers.
    :param gram_defect: ``A − RᵀR``, shape (m, m): what rounding and the cut of null directions left; ``None`` if
        the Gram matrix is diagonal, or if R is known better than A.
    :param output_defect: ``Φᵀy − Rᵀc``, shape (m,) or (q, m); ``None`` likewise.
    :param log_constant: ``½ Σ log ω − ½ n log(2π reference_variance)``, shape () or (q,).
    :param float32_suffices: whether float32 resolves the evidence; static, so that it is known under ``jit`` too.
    """

    factor: Any
    projection: Any
    rank: Any
    reference_variance: Any
    log_constant: Any
    gram_defect: Any
    output_defect: Any
    float32_suffices: bool = static()


def compress(moments: Moments) -> Compressed:
    """Factor the Gram matrix and project the outputs on it. O(m³) time, O(m²) memory, independent of n."""
    if isinstance(moments, RootMoments):
        factor, c, rss = _project_root(moments)
    else:
        factor, c = (_project_diagonal if moments.gram.ndim == 1 else _project_dense)(moments)
        rss = np.maximum(moments.sum_squares - np.sum(c**2, axis=0), 0.0)
    defects = (None, None)
    if factor.ndim == 2 and not isinstance(moments, RootMoments):
        defects = (moments.gram - factor.T @ factor, moments.feature_output.T - c.T @ factor)
    rank = int(np.count_nonzero(factor)) if factor.ndim == 1 else len(factor)
    if factor.ndim == 2:
        factor, c = (with_null_rows(array, padded_rank(rank, factor.shape[1])) for array in (factor, c))
    return compressed_of(moments, factor, np.concatenate([c.T, rss[..., None]], axis=-1), rank, *defects)


def compress_quadratic(
    gram: np.ndarray, linear: np.ndarray, constant: float, described: dict[str, Any]
) -> tuple[Moments, Compressed]:
    """The sums and the compressed form of rows with noise one, ``log p(y | w) = constant + linearᵀw − ½ wᵀ gram w``.

    So many rows have the residual sum of squares one each, by convention. O(m³).

    :param described: what describes the rows, as :class:`Moments` have it; row weights follow from the constant.
    """
    n = described["num_rows"]
    free = Moments(gram=gram, feature_output=linear, output_products=np.float64(np.inf), **described)
    factor, c = _project_dense(free)
    squares = np.sum(c**2) + n
    log_weights = 2 * constant + n * np.log(2 * np.pi) + squares
    moments = free.plain(output_products=squares, log_weights=np.float64(log_weights), y_mean=np.float64(np.nan))
    defects, rank = (gram - factor.T @ factor, linear - c @ factor), len(factor)
    factor, c = (with_null_rows(array, padded_rank(rank, len(gram))) for array in (factor, c))
    return moments, compressed_of(moments, factor, np.append(c, n), rank, *defects)


def compressed_of(
    moments: Moments, factor: np.ndarray, projection: np.ndarray, rank: int, gram_defect: Any, output_defect: Any
) -> Compressed:
    """The compressed form with what follows from its parts."""
    n, rss, squares = moments.num_rows, projection[..., -1], moments.sum_squares
    # What is left where there are no degrees of freedom is rounding.
    reference = np.where((rss > 0) & (rank < n), rss, np.where(squares > 0, squares, 1.0)) / n
    constant = 0.5 * moments.log_weights - 0.5 * n * np.log(2 * np.pi * reference)
    noise = np.sqrt(np.min(reference * n / np.where(squares > 0, squares, 1.0)))
    suffices = bool(np.max(np.abs(constant)) <= FLOAT32_NATS and noise >= FLOAT32_NOISE)
    return Compressed(factor, projection, np.float64(rank), reference, constant, gram_defect, output_defect, suffices)


def padded_rank(rank: int, num_features: int) -> int:
    """Rows of R for a rank: a coarse grid, so that statistics of similar rank share what is compiled for their shape.

    At most a quarter more, which costs little: rows beyond the rank are zero.
    """
    step = 1 << max(0, rank.bit_length() - 3)
    return min(-(-rank // step) * step, num_features)


def with_null_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """``count`` rows, those that are missing zero."""
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]))])


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
    return root_eigenvalues[:, None] * vectors.T * root, _conserved(c.T, moments.sum_squares)


def _conserved(c: np.ndarray, sum_squares: np.ndarray) -> np.ndarray:
    """c with no more squares than y: where eigenvalues are rounding, so are the last entries of c.

    What they lose or gain is in the defects, and in rss, so that no part of y is lost.
    """
    before = np.cumsum(c**2, axis=0) - c**2
    return np.sign(c) * np.minimum(np.abs(c), np.sqrt(np.maximum(sum_squares - before, 0.0)))


def _project_root(moments: RootMoments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R = ΣVᵀD^½ from the singular values of the root with columns of unit norm, whose digits a Gram matrix halves."""
    m, root = moments.gram.shape[-1], fewest_rows(moments.root)
    Phi, y = root[:, :m], root[:, m:]
    norms = np.linalg.norm(Phi, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    left, singular, right = np.linalg.svd(Phi / norms, full_matrices=False)
    least = RANK_TOLERANCE * np.finfo(np.float64).eps * singular.max(initial=0)
    rank = int(np.sum(singular[: int(moments.num_rows)] > least))
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    c = left.T @ y
    outputs, rss = np.shape(moments.sum_squares), np.sum((y - left @ c) ** 2, axis=0)
    return singular[:, None] * right * norms, c.reshape(rank, *outputs), rss.reshape(outputs)


def _project_diagonal(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    factor = np.sqrt(moments.gram)
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor > 0)
    return factor, (moments.feature_output.T * inverse).T


def uses_dual_form(rank: int, num_features: int) -> bool:
    """Whether factors of size rank are cheaper than factors of size m: the measured break-even is near m/2."""
    return 2 * rank <= num_features
