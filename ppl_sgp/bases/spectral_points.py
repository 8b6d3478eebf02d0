"""Point sets behind spectral sampling: standard normals and uniforms, plain, orthogonal or quasi-random.

Everything runs in float64 on the host: points are drawn once and frozen.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

METHODS = ("iid", "orthogonal", "quasi_random")


def base_points(
    rng: np.random.Generator,
    method: str,
    num_points: int,
    num_blocks: int,
    num_uniforms: int,
    input_dim: int,
    shares: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points for a mixture of spectra with the given shares.

    Each point gets ``num_blocks`` vectors of standard normals (one for each factor of a product
    kernel), ``num_uniforms`` uniforms (for the scale mixtures behind heavy-tailed spectra) and the
    index of its mixture component. Counts of components differ from their expectation by less than
    one (systematic allocation), except that a quasi-random set takes them from a dimension of its own.

    :return: normals (num_points, num_blocks, input_dim), uniforms (num_points, num_uniforms) and
        component indices (num_points,).
    """
    edges = np.cumsum(shares)[:-1]
    if method == "quasi_random":
        return _sobol_points(rng, num_points, num_blocks, num_uniforms, input_dim, edges)
    normals = rng.standard_normal((num_points, num_blocks, input_dim))
    if method == "orthogonal":
        for block in range(num_blocks):
            normals[:, block] = _orthogonalise(rng, normals[:, block])
    uniforms = rng.random((num_points, num_uniforms))
    positions = (np.arange(num_points) + rng.random()) / num_points
    which = rng.permutation(np.searchsorted(edges, positions, side="right"))
    return normals, uniforms, which


def _orthogonalise(rng: np.random.Generator, normals: np.ndarray) -> np.ndarray:
    """Keep the norms of the rows, replace their directions by orthonormal ones, d rows at a time."""
    num_points, input_dim = normals.shape
    result = np.empty_like(normals)
    for start in range(0, num_points, input_dim):
        norms = np.linalg.norm(normals[start : start + input_dim], axis=1)
        q, r = np.linalg.qr(rng.standard_normal((input_dim, input_dim)))
        # The sign fix makes q uniform over the orthogonal group.
        result[start : start + input_dim] = norms[:, None] * (q * np.sign(np.diag(r)))[: len(norms)]
    return result


def _sobol_points(
    rng: np.random.Generator, num_points: int, num_blocks: int, num_uniforms: int, input_dim: int, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dimension = num_blocks * input_dim + num_uniforms + 1
    sobol = qmc.Sobol(dimension, scramble=True, rng=rng).random_base2(int(np.ceil(np.log2(num_points))))
    points = np.clip(sobol[:num_points], 1e-12, 1 - 1e-12)
    normals = ndtri(points[:, : num_blocks * input_dim]).reshape(num_points, num_blocks, input_dim)
    return normals, points[:, num_blocks * input_dim : -1], np.searchsorted(edges, points[:, -1], side="right")
