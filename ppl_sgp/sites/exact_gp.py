"""An exact Gaussian process as a NumPyro distribution over the outputs of some thousand rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .. import evidence
from .._internal import checks
from ..evidence import exact
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics
from .observed_distribution import ObservedDistribution, check_noise


class ExactGP(ObservedDistribution):
    """The outputs of rows under ``y ~ N(0, K + σ²Ω⁻¹)``: no basis, no approximation, and no draws of f kept.

    ``log_prob`` is O(n³) in time and O(n²) in memory, with closed-form gradients in the kernel and the noise, of any
    order (Rasmussen & Williams 2006, eqs 2.30 and 5.9). Several outputs are independent functions with the same
    kernel, and share the factorisation if they share the noise. Float64 only.

    Batch shape: that of the noise, with outputs (if y has several columns) as the last axis. Event shape: (n,).

    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: any kernel: sums, products and those without a spectral density as well.
    :param noise_scale: standard deviation of the noise of a row of weight one.
    :raises ValueError: for arguments that do not fit, in float32, for a kernel that is not finite at these rows, or
        for more rows than memory has room for.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> rows = sgp.rows([[0.0], [5.0]], [0.0, 0.0])
        >>> with jax.enable_x64(True):
        ...     site = sgp.ExactGP(rows, sgp.SquaredExponential(np.float64(0.1)), noise_scale=np.float64(1.0))
        ...     print(round(float(site.log_prob(rows.values)), 3))  # −log 4π
        -2.531
    """

    arg_constraints = {"noise_scale": constraints.positive}
    support = constraints.real_vector
    is_evidence = True
    pytree_data_fields = ("rows", "kernel", "noise_scale")

    def __init__(self, rows: Rows, kernel: Kernel, noise_scale: Any, *, validate_args: bool | None = None) -> None:
        _check_arguments(rows, kernel, noise_scale)
        dtype = checks.common_dtype(*jax.tree.leaves(kernel), noise_scale)
        exact.require_precision("ExactGP", dtype)
        exact.require_memory("ExactGP", rows.num_rows)
        _require_finite(rows, kernel)
        self.rows, self.kernel = rows, kernel
        self.noise_scale = jnp.asarray(noise_scale, dtype)
        batch_shape = evidence.joint_batch("ExactGP", rows, noise_scale=noise_scale)
        super().__init__(batch_shape, (rows.num_rows,), validate_args=validate_args)

    @property
    def data(self) -> Rows:
        """The rows."""
        return self.rows

    @property
    def observed(self) -> Any:
        """The outputs, shape (n,) or (q, n)."""
        return self.rows.values

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | θ)`` in nats; −∞ where it cannot be represented."""
        result = exact.evaluate(self.rows, self.kernel, self.noise_scale, value)
        return jnp.where(jnp.isnan(result), -jnp.inf, result)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw outputs at the inputs of the rows. O(n³) for each noise scale, and O(n²) a draw."""
        assert is_prng_key(key)
        shape = sample_shape + self.batch_shape + self.event_shape
        return exact.draw(self.rows, self.kernel, self.noise_scale, jax.random.normal(key, shape, jnp.float64))

    @property
    def mean(self) -> jax.Array:
        """Zero."""
        return jnp.zeros(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> jax.Array:
        """Of y: that of f and of the noise."""
        dtype = self.noise_scale.dtype
        noise = self.batched_noise_scale[..., None] ** 2 / jnp.asarray(self.rows.weights, dtype)
        return noise + jnp.broadcast_to(self.kernel.diag(jnp.asarray(self.rows.X, dtype)), noise.shape)

    @staticmethod
    def infer_shapes(rows: Any, kernel: Any, noise_scale: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        shape = jnp.shape(rows.values)
        return jnp.broadcast_shapes(tuple(noise_scale), shape[:-1]), shape[-1:]


def _check_arguments(rows: Any, kernel: Any, noise_scale: Any) -> None:
    if not isinstance(rows, Rows):
        compressed = " Statistics are observed by `sgp.observe`." if isinstance(rows, SufficientStatistics) else ""
        raise ValueError(f"ExactGP: `rows` must come from sgp.rows(X, y); got {type(rows).__name__}.{compressed}")
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"ExactGP: `kernel` must be a kernel with its hyperparameters, such as sgp.Matern52(lengthscale, "
            f"amplitude); got {kernel.__name__ if isinstance(kernel, type) else type(kernel).__name__}."
        )
    check_noise("ExactGP", noise_scale)


def _require_finite(rows: Rows, kernel: Kernel) -> None:
    """Refuse a kernel that is not finite at some pair of rows, where its values can be read."""
    if not checks.is_concrete(rows, kernel):
        return
    K = kernel(rows.X)
    if not checks.is_concrete(K):  # under `jit` of other arguments
        return
    bad = ~np.isfinite(np.asarray(K))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"ExactGP: {type(kernel).__name__} is not finite at rows {i} and {j}, {np.asarray(rows.X)[i].tolist()} and "
            f"{np.asarray(rows.X)[j].tolist()}: look at its hyperparameters, and at the units of the inputs."
        )
