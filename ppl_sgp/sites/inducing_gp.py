"""The site of GPs with inducing points: y itself, with hyperparameters and points free."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .._internal.batching import full_precision, vectorize
from ..evidence import inducing
from ..evidence.inducing_blocks import block_noise, independent_noise
from ..evidence.inducing_parts import Part, Parts
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows
from .observed_distribution import ObservedDistribution


class InducingGP(ObservedDistribution):
    """Outputs of a sparse GP with m inducing points: ``y ~ N(0, Q + Λ)``, with ``Q = k(X, Z) k(Z, Z)⁻¹ k(Z, X)``.

    A model of its own, which ``sample`` draws from exactly: f at the points from the exact GP, and rows given these
    with independent errors, ``Λ = diag(K − Q) + σ²Ω⁻¹`` (``"fitc"``), errors that are correlated within blocks
    (``"pitc"``, ``"pic"``), or no errors but the noise, ``Λ = σ²Ω⁻¹`` (``"dtc"``). The bound of Titsias is no density
    of y: :func:`~ppl_sgp.observe_inducing` adds it. ``log_prob`` costs O(n m²) in memory that does not grow with n, as
    does its gradient (see :func:`~ppl_sgp.inducing_evidence`).

    Batch shape: that of the noise, with outputs (if y has several columns) as the last axis. Event shape: (n,), and the
    value to observe is ``rows.values``.

    :param rows: from :func:`~ppl_sgp.rows`: inputs and row weights; y is not used.
    :param kernel: the covariance of f, of mean zero.
    :param Z: inducing points, shape (m, d). Hold them fixed while sampling hyperparameters.
    :param noise_scale: standard deviation of the noise of a row of weight one.
    :param method: ``"fitc"``, ``"dtc"``, ``"pitc"`` or ``"pic"``.
    :param blocks: for PITC and PIC: integer labels of the rows, shape (n,), or a number of blocks, made by k-means.
    :raises ValueError: for arguments that do not fit, and float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> rows = sgp.rows(np.linspace(0, 1, 30)[:, None], np.zeros(30))
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     site = sgp.InducingGP(rows, sgp.Matern32(0.3), np.linspace(0, 1, 5)[:, None], noise_scale=0.1)
        ...     site.event_shape, site.sample(jax.random.key(1), (3,)).shape
        ((30,), (3, 30))
    """

    arg_constraints = {"noise_scale": constraints.positive}
    support = constraints.real_vector
    is_evidence = True
    pytree_data_fields = ("rows", "kernel", "Z", "noise_scale", "members")
    pytree_aux_fields = ("method",)

    #: A value whose density is known already, and that density.
    _known: tuple[Any, jax.Array] | None = None

    def __init__(
        self,
        rows: Rows | ChunkedRows,
        kernel: Kernel,
        Z: Any,
        noise_scale: Any,
        method: str = "fitc",
        *,
        blocks: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if method == "vfe":
            raise ValueError(
                'InducingGP: the bound of method "vfe" is no density of y. Add it with sgp.observe_inducing(..., '
                'method="vfe"), or use "fitc" or "dtc".'
            )
        inducing.check_arguments("InducingGP", rows, kernel, Z, noise_scale, method)
        members = inducing.parts_of("InducingGP", rows, len(Z), method, blocks).members
        self.rows, self.kernel, self.method, self.members = rows, kernel, method, members
        self.Z, self.noise_scale = jnp.asarray(Z), jnp.asarray(noise_scale, jnp.float64)
        batch_shape = jnp.broadcast_shapes(jnp.shape(noise_scale), np.shape(rows.values)[:-1])
        super().__init__(batch_shape, (rows.num_rows,), validate_args=validate_args)

    @property
    def data(self) -> Rows | ChunkedRows:
        """The rows."""
        return self.rows

    @property
    def observed(self) -> Any:
        """The outputs, shape (n,) or (q, n)."""
        return self.rows.values

    @property
    def _parts(self) -> Parts:
        return inducing.parts_with(self.rows, len(self.Z), self.members)

    def bound(self) -> tuple[InducingGP, Any, jax.Array]:
        """DTC as what the bound of Titsias observes: the site, its value, and the trace term beside its density."""
        site, values = copy.copy(self), jnp.asarray(self.observed)
        density, _, term = inducing.white_noise_terms(self._parts, self.kernel, self.Z, self.noise_scale, values)
        site._known, site.is_density = (values, density), False
        site.beside_density = jnp.broadcast_to(term, self.batch_shape)
        return site, values, site.beside_density

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log N(value; 0, Q + Λ)``; −∞ where it cannot be represented."""
        if self._known is not None and self._known[0] is value:
            result = self._known[1]
        else:
            arguments = (self._parts, self.kernel, self.Z, self.noise_scale, value)
            result = inducing.evaluate(self.method, *arguments)
        shape = jnp.broadcast_shapes(jnp.shape(value)[:-1], self.batch_shape)
        return jnp.broadcast_to(jnp.where(jnp.isnan(result), -jnp.inf, result), shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw outputs, O(n m) a draw after O(n m²)."""
        assert is_prng_key(key)
        key_z, key_noise = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        z = jax.random.normal(key_z, (*shape, len(self.Z)), jnp.float64)
        errors = jax.random.normal(key_noise, (*shape, *self.event_shape), jnp.float64)
        with full_precision():
            parameters = inducing.parameters_of(self.kernel, self.Z)

        def one(noise_scale: jax.Array, z: jax.Array, errors: jax.Array) -> jax.Array:
            def rows_of(part: Part) -> jax.Array:
                error = errors[part.numbers]
                if self.method in inducing.IN_BLOCKS:
                    V, L = block_noise(parameters, noise_scale, part)
                    return z @ V + L @ error
                V, variance = independent_noise(parameters, noise_scale, part)
                if self.method == "dtc":
                    variance = noise_scale**2 / part.weights
                return z @ V + jnp.sqrt(variance) * error

            return self._of_rows(rows_of)

        return vectorize(one, "(),(m),(n)->(n)", (self.noise_scale, z, errors), jnp.float64)

    @property
    def mean(self) -> jax.Array:
        """Zero."""
        return jnp.zeros(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> jax.Array:
        """The prior variance of each row with its noise."""
        with full_precision():
            parameters = inducing.parameters_of(self.kernel, self.Z)

            def of_f(part: Part) -> jax.Array:
                explained = jnp.sum(parameters.whitened(part.X) ** 2, axis=0)
                # What FITC and PITC add to Q makes up for what it lacks of K.
                return explained if self.method == "dtc" else jnp.maximum(explained, parameters.kernel.diag(part.X))

            prior = self._of_rows(of_f)
        weights = jnp.broadcast_to(jnp.asarray(self.rows.weights), self.batch_shape + self.event_shape)
        noise = self.batched_noise_scale[..., None] ** 2 / weights
        return jnp.broadcast_to(prior, noise.shape) + noise

    def _of_rows(self, function: Any) -> jax.Array:
        """Numbers of rows, (n,), from those of each part."""

        def placed(values: jax.Array, index: Any) -> tuple[jax.Array, None]:
            part = self._parts.at(index)
            return values.at[part.numbers].add(jnp.where(part.counts, function(part), 0)), None

        return jax.lax.scan(placed, jnp.zeros(self.event_shape), jnp.arange(self._parts.count))[0]

    @staticmethod
    def infer_shapes(
        rows: Any, kernel: Any, Z: Any, noise_scale: Any, method: Any = "fitc", blocks: Any = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        shape = np.shape(rows.values)
        return jnp.broadcast_shapes(tuple(noise_scale), shape[:-1]), shape[-1:]
