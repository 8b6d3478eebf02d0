"""The exact log likelihood of all rows at many draws of the weights, by one pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bases.basis import Basis
from ..likelihoods.likelihood import Likelihood
from ..statistics.rows import as_float64
from .passes import LikelihoodRows

#: Predictors, of a block of rows at all draws of a batch, that are held at once.
MAX_VALUES = 2**23
#: Rows of a block: fewer make products slow.
LEAST_ROWS = 256


def log_likelihoods(
    rows: LikelihoodRows, basis: Basis, likelihood: Likelihood, weights: np.ndarray, parameters: np.ndarray
) -> np.ndarray:
    """``Σᵢ ωᵢ log p(yᵢ | φᵢᵀw + offset, λ)`` at each of S draws, in nats, shape (S,). O(n·m·S·K).

    In float64 on the host, in blocks of rows and batches of draws.

    :param weights: shape (S, K, m).
    :param parameters: of the likelihood, unconstrained, shape (S, p).
    """
    S, K, m = weights.shape
    batch = max(1, min(S, MAX_VALUES // (LEAST_ROWS * K)))
    size = max(1, min(len(rows.X), MAX_VALUES // (batch * K)))
    total = np.zeros(S)
    for start in range(0, len(rows.X), size):
        block = rows.take(slice(start, start + size))
        Phi = basis.host_features(as_float64(block.X))
        basis.require_finite(Phi, block.X, start, "importance_weights")
        omega = np.ones(len(Phi)) if block.row_weights is None else block.row_weights
        filled = [_filled(array, size) for array in (block.y, block.offset)]
        omega = np.concatenate([omega, np.zeros(size - len(omega))])  # what fills up counts nothing
        for first in range(0, S, batch):
            draws = slice(first, first + batch)
            eta = np.zeros((len(weights[draws]), size, K))
            eta[:, : len(Phi)] = np.moveaxis((weights[draws].reshape(-1, m) @ Phi.T).reshape(-1, K, len(Phi)), 1, 2)
            total[draws] += _summed(likelihood, eta, *filled, omega, parameters[draws])
    return total


def _filled(array: Any, size: int) -> Any:
    """Rows filled up to ``size`` with the last one."""
    if array is None or len(array) == size:
        return array
    return np.concatenate([array, np.repeat(array[-1:], size - len(array), axis=0)])


def _summed(*arguments: Any) -> np.ndarray:
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return np.asarray(_of_block(*arguments))


@jax.jit
def _of_block(likelihood: Likelihood, eta: Any, y: Any, offset: Any, omega: Any, parameters: Any) -> jax.Array:
    def at(draw: tuple[jax.Array, jax.Array]) -> jax.Array:
        eta, parameters = draw
        if offset is not None:
            eta = eta + offset.reshape(len(eta), -1)
        eta = eta[:, 0] if likelihood.num_latents == 1 else eta
        logs = likelihood.log_prob(eta, y, parameters)
        return jnp.sum(jnp.where(omega > 0, omega * logs, 0.0))

    return jax.lax.map(at, (eta, parameters))
