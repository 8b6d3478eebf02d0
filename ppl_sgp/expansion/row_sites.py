"""The quadratic term of each row in the expansion of a log likelihood, found again from the row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compressed_likelihood import CompressedLikelihood
from .sums import of_rows


def row_sites(
    data: CompressedLikelihood, Phi: np.ndarray, y: Any, offset: Any = None, row_weights: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients (n, L), curvatures (n, L, L) and centres (n, L) of rows in their L = K + p predictors and parameters.

    As they entered the statistics: at the centre of the expansion, and averaged over it where the expansion was.

    :param Phi: features of the rows, (n, m).
    :param y: their outcomes, as :func:`~ppl_sgp.compress_likelihood` had them; likewise ``offset``, ``row_weights``.
    """
    K, n = data.num_latents, len(Phi)
    centre = np.asarray(data.centre.mean)
    mean = Phi @ data.weights_by_latent(centre).T
    if offset is not None:
        mean = mean + offset.reshape(n, -1)
    covariance = None
    if data.method == "averaged":
        factor = np.asarray(data.centre.factor).reshape(K, Phi.shape[1], -1)
        roots = np.stack([Phi @ factor[k] for k in range(K)], axis=1)
        covariance = np.einsum("nkr,nlr->nkl", roots, roots)
    parameters = np.zeros(0) if data.parameters is None else np.asarray(data.parameters.mean(centre))
    omega = np.ones(n) if row_weights is None else row_weights
    _, gradient, curvature = of_rows(data.likelihood, mean, covariance, y, offset, omega, parameters, False)
    at = np.concatenate([mean, np.broadcast_to(parameters, (n, len(parameters)))], axis=1)
    return gradient, curvature, at
