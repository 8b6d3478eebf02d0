"""Statistics of outputs to which a function of the basis is added, with the digits of those without it."""

from __future__ import annotations

import numpy as np

from .compressed import compressed_of
from .statistics import SufficientStatistics, with_compressed


def shifted(statistics: SufficientStatistics, weights: np.ndarray, mean: float) -> SufficientStatistics:
    """Rotated statistics of ``y + Φw`` from those of one y. O(m).

    Squares of outputs with a large level leave few digits for what is left of them. Here c becomes ``c + Rw``, and rss
    stays as it is. Where features are not orthogonal the compressed form has defects, which a large w would multiply.

    :param weights: w, shape (m,).
    :param mean: that of ``Φw`` over the rows.
    """
    moments, compressed = statistics.moments, statistics.compressed
    explained = moments.gram * weights
    moments = moments.plain(
        feature_output=moments.feature_output + explained,
        output_products=moments.output_products + weights @ (2 * moments.feature_output + explained),
        y_mean=moments.y_mean + mean,
    )
    c, rss = compressed.projection[:-1], compressed.projection[-1]
    projection = np.append(c + compressed.factor * weights, rss)
    compressed = compressed_of(moments, compressed.factor, projection, int(compressed.rank), None, None)
    return with_compressed(statistics.basis, moments, compressed)
