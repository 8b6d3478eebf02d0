"""``log p(y | θ)`` of an exact GP on rows: O(n³), with the closed-form gradients of ``joint``.

Rows are compressed data of n features that each row has for itself: R = I, c = √Ω y, rss = 0, and K takes the place of
RS⁻¹Rᵀ (Rasmussen & Williams 2006, eqs 2.30 and 5.9; Hughes-Hallett 2022, eq 2.5).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._internal import checks
from .._internal.batching import full_precision, vectorize
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from . import joint


def evaluate(rows: Rows, kernel: Kernel, noise_scale: Any, values: Any) -> jax.Array:
    """The evidence of outputs ``values``, shape batch + (n,), without checks.

    :param noise_scale: standard deviation of the noise of a row of weight one, of any shape that broadcasts with the
        batch. Where it is a scalar, all outputs share one factorisation.
    """
    dtype = checks.common_dtype(*jax.tree.leaves(kernel), noise_scale)
    root = jnp.sqrt(jnp.asarray(rows.weights, dtype))
    X, n = jnp.asarray(rows.X, dtype), rows.num_rows
    with full_precision():
        covariance = root[:, None] * kernel(X) * root[None, :]
    design = joint.Design(jnp.asarray(n, dtype), None, None)

    def one(noise_scale, y, unit):
        projection = jnp.append(root * y, jnp.zeros((), dtype))
        parameters = joint.Parameters(covariance, jnp.zeros(n, dtype), noise_scale, projection)
        value, _ = joint.relative_evidence(design, unit, parameters)
        return value - 0.5 * n * jnp.log(2 * jnp.pi * unit**2)

    # In units of y, so that what varies with θ is not lost beside a large constant.
    scales = jnp.asarray(rows.output_scales, dtype)
    unit = jnp.where(scales > 0, scales, 1)
    result = vectorize(one, "(),(n),()->()", (noise_scale, values, unit), dtype)
    return result + jnp.sum(jnp.log(root))
