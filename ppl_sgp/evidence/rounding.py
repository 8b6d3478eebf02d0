"""How much of an evidence is rounding, where it comes from sums of products.

Each entry of A, Φᵀy and yᵀy is rounded by about ε of the norms it is made of. In ``‖y − Φw‖²/σ²``, at the posterior
mean w, that is ``ε (yᵀy + Σ Aⱼⱼwⱼ²)/σ²``; and in ``log|M|``, of ``M = I + GᵀG``, it is ``ε Σ Mⱼⱼ(M⁻¹)ⱼⱼ``, whatever
the units (Higham, Accuracy and Stability of Numerical Algorithms, section 10.1), or up to ``ε tr M`` for correlated
priors. Weights that are large and cancel, as of smooth functions side by side, lose most.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import vectorize
from ..priors import WeightPrior
from ..statistics.statistics import SufficientStatistics
from . import joint, scaled

#: Nats of rounding that are announced.
ANNOUNCED = 0.1


@jax.jit
def rounding_error(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any) -> jax.Array:
    """About how many nats of the evidence are rounding of the sums: an order of magnitude. O(m³).

    Zero for statistics that keep a root of their sums, whose evidence has its own digits, and for rotated ones, which
    no longer show what their sums have lost.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: prior of the weights.
    :param noise_scale: standard deviation of the noise.
    :return: shape of the evidence.
    """
    dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
    if statistics.compressed.gram_defect is None or dtype != jnp.float64:
        return jnp.zeros((), dtype)
    squares = jnp.diagonal(jnp.asarray(statistics.moments.gram, dtype))

    def lost(w, spread, noise_scale, sum_squares):
        sizes = sum_squares + jnp.sum(squares * w**2)
        return 0.5 * np.finfo(np.float64).eps * (sizes / noise_scale**2 + spread)

    outputs = (noise_scale, statistics.projection, statistics.moments.sum_squares)
    diagonal = prior.diagonal_along(0)
    if diagonal is None:
        posterior = joint.posterior_mean(statistics, prior, dtype)

        def one(noise_scale, projection, sum_squares):
            return lost(*posterior(noise_scale, projection), noise_scale, sum_squares)

        return vectorize(one, "(),(p),()->()", outputs, dtype)
    design, log_scale, mean = scaled.prepare(statistics, diagonal.prior, dtype)

    def one_diagonal(log_scale, mean, noise_scale, projection, sum_squares):
        solution = scaled.solve(design, scaled.Parameters(log_scale, mean, noise_scale, projection))
        w = mean + jnp.exp(log_scale) * solution.weights
        spread = jnp.sum((1 - solution.shrinkage) * (1 + squares * jnp.exp(2 * log_scale) / noise_scale**2))
        return lost(w, spread, noise_scale, sum_squares)

    return vectorize(one_diagonal, "(m),(m),(),(p),()->()", (log_scale, mean, *outputs), dtype)
