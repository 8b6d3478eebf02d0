"""Statistics of outputs to which a function of the basis is added, with the digits of those without it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compressed import compressed_of
from .statistics import SufficientStatistics, with_compressed


def shifted(statistics: SufficientStatistics, weights: np.ndarray, mean: float) -> SufficientStatistics:
    """Statistics of ``y + Φw`` from those of one y. O(m²).

    Squares of outputs with a large level leave few digits for what is left of them. Here c becomes ``c + Rw``, and rss
    stays as it is.

    :param weights: w, shape (m,).
    :param mean: that of ``Φw`` over the rows.
    """
    moments, compressed = statistics.moments, statistics.compressed

    def times(matrix: Any) -> Any:
        return matrix * weights if np.ndim(matrix) == 1 else matrix @ weights

    explained = times(moments.gram)
    moments = moments.plain(
        feature_output=moments.feature_output + explained,
        output_products=moments.output_products + weights @ (2 * moments.feature_output + explained),
        y_mean=moments.y_mean + mean,
    )
    c, rss = compressed.projection[:-1], compressed.projection[-1]
    projection, defect = np.append(c + times(compressed.factor), rss), compressed.output_defect
    defect = None if defect is None else defect + times(compressed.gram_defect)
    rank = int(compressed.rank)
    compressed = compressed_of(moments, compressed.factor, projection, rank, compressed.gram_defect, defect)
    return with_compressed(statistics.basis, moments, compressed)
