"""The quadratic term of each row in the expansion of a log likelihood, found again from the row."""

from __future__ import annotations

import numpy as np

from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.sums import of_rows
from .outcomes import NewRows


def row_sites(data: CompressedLikelihood, Phi: np.ndarray, rows: NewRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients (n, L), curvatures (n, L, L) and centres (n, L) of rows in their L = K + p predictors and parameters.

    As they entered the statistics: at the centre of the expansion, and averaged over it where the expansion was.

    :param Phi: features of the rows, (n, m).
    :param rows: the rows, ``given`` being their outcomes.
    """
    K, n = data.num_latents, len(Phi)
    centre = np.asarray(data.centre.mean)
    mean = Phi @ data.weights_by_latent(centre).T
    if rows.offset is not None:
        mean = mean + rows.offset.reshape(n, -1)
    covariance = None
    if data.method == "averaged":
        factor = np.asarray(data.centre.factor).reshape(K, Phi.shape[1], -1)
        roots = np.stack([Phi @ factor[k] for k in range(K)], axis=1)
        covariance = np.einsum("nkr,nlr->nkl", roots, roots)
    parameters = np.zeros(0) if data.parameters is None else np.asarray(data.parameters.mean(centre))
    omega = np.ones(n) if rows.row_weights is None else rows.row_weights
    _, gradient, curvature = of_rows(
        data.likelihood, mean, covariance, rows.given, rows.offset, omega, parameters, False
    )
    at = np.concatenate([mean, np.broadcast_to(parameters, (n, len(parameters)))], axis=1)
    return gradient, curvature, at
