"""The site of GPs with inducing points: y itself, with hyperparameters and points free."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .._internal.batching import full_precision, vectorize
from ..evidence import inducing
from ..evidence.inducing_blocks import block_noise, independent_noise
from ..evidence.inducing_parts import Part, Parts
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows
from .observed_distribution import _refuse_plates, not_enumerated


class InducingGP(dist.Distribution):
    """Outputs of a sparse GP with m inducing points: ``y ~ N(0, Q + Λ)``, with ``Q = k(X, Z) k(Z, Z)⁻¹ k(Z, X)``.

    A model of its own, which ``sample`` draws from exactly: f at the points from the exact GP, and rows given these
    with independent errors, ``Λ = diag(K − Q) + σ²Ω⁻¹`` (``"fitc"``), errors that are correlated within blocks
    (``"pitc"``), or no errors but the noise, ``Λ = σ²Ω⁻¹`` (``"dtc"``). The bound of Titsias is no density of y:
    :func:`~ppl_sgp.observe_inducing` adds it. ``log_prob`` costs O(n m²) in memory that does not grow with n, as does
    its gradient (see :func:`~ppl_sgp.inducing_evidence`).

    Batch shape: that of the noise, with outputs (if y has several columns) as the last axis. Event shape: (n,), and the
    value to observe is ``rows.values``.

    :param rows: from :func:`~ppl_sgp.rows`: inputs and row weights; y is not used.
    :param kernel: the covariance of f, of mean zero.
    :param Z: inducing points, shape (m, d). Hold them fixed while sampling hyperparameters.
    :param noise_scale: standard deviation of the noise of a row of weight one.
    :param method: ``"fitc"``, ``"dtc"`` or ``"pitc"``.
    :param blocks: for PITC: integer labels of the rows, shape (n,), or a number of blocks, made by k-means.
    :raises ValueError: for arguments that do not fit, and float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> rows = sgp.rows(np.linspace(0, 1, 30)[:, None], np.zeros(30))
        >>> site = sgp.InducingGP(rows, sgp.Matern32(0.3), np.linspace(0, 1, 5)[:, None], noise_scale=0.1)
        >>> site.event_shape, site.sample(jax.random.key(1), (3,)).shape
        ((30,), (3, 30))
    """

    arg_constraints = {"noise_scale": constraints.positive}
    support = constraints.real_vector
    reparametrized_params: list[str] = []
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
    def _parts(self) -> Parts:
        return inducing.parts_with(self.rows, len(self.Z), self.members)

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
                if self.method == "pitc":
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
        noise = jnp.broadcast_to(self.noise_scale, self.batch_shape)[..., None] ** 2 / weights
        return jnp.broadcast_to(prior, noise.shape) + noise

    def _of_rows(self, function: Any) -> jax.Array:
        """Numbers of rows, (n,), from those of each part."""

        def placed(values: jax.Array, index: Any) -> tuple[jax.Array, None]:
            part = self._parts.at(index)
            return values.at[part.numbers].add(jnp.where(part.counts, function(part), 0)), None

        return jax.lax.scan(placed, jnp.zeros(self.event_shape), jnp.arange(self._parts.count))[0]

    def expand(self, batch_shape: tuple[int, ...]) -> dist.Distribution:
        """Expand as any distribution; but refuse a plate that would count the data again."""
        batch_shape = tuple(batch_shape)
        _refuse_plates("InducingGP", batch_shape, np.shape(self.rows.values)[:-1])
        expanded = copy.copy(self)
        expanded.noise_scale = jnp.broadcast_to(self.noise_scale, batch_shape)
        expanded._batch_shape = batch_shape
        return expanded

    @staticmethod
    def infer_shapes(
        rows: Any, kernel: Any, Z: Any, noise_scale: Any, method: Any = "fitc", blocks: Any = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        shape = np.shape(rows.values)
        return jnp.broadcast_shapes(tuple(noise_scale), shape[:-1]), shape[-1:]


def observe_inducing(
    name: str,
    rows: Rows | ChunkedRows,
    kernel: Kernel,
    Z: Any,
    noise_scale: Any,
    method: str = "fitc",
    *,
    blocks: Any = None,
) -> jax.Array:
    """Observe rows through inducing points, hyperparameters free: O(n m²) a gradient, memory that does not grow with n.

    ``"fitc"``, ``"dtc"`` and ``"pitc"`` are models: their posteriors are exact for :class:`~ppl_sgp.InducingGP`.
    ``"vfe"`` observes DTC and adds the trace term of Titsias's bound as a factor, ``{name}_trace``. The posterior is
    then a *surrogate*: ∝ p(θ) p(y | θ) exp(−KL), where KL is what the points lose at θ. It is biased towards θ that the
    points carry well, such as long lengthscales and much noise; ``inducing_upper_bound − inducing_evidence`` bounds
    the KL. What is drawn without data is DTC.

    Hold the points fixed while sampling; choose them at an optimum, by :func:`~ppl_sgp.fit_inducing`. Call it outside
    any data plate.

    :param name: name of the site.
    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: the covariance of f, of mean zero.
    :param Z: inducing points, shape (m, d).
    :param noise_scale: standard deviation of the noise: a number, or one an output, shape (q,).
    :param method: ``"fitc"``, ``"dtc"``, ``"pitc"`` or ``"vfe"``.
    :param blocks: of PITC: see :class:`~ppl_sgp.InducingGP`.
    :return: the outputs, ``rows.values``.
    :raises ValueError: for arguments that do not fit, float32, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> Z = np.linspace(0, 1, 6)[:, None]
        >>> def model(rows):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))
        ...     sgp.observe_inducing("y", rows, sgp.SquaredExponential(lengthscale), Z, noise_scale=0.1, method="vfe")
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> rows = sgp.rows(X, np.cos(6 * X[:, 0]))
        >>> density, _ = numpyro.infer.util.log_density(model, (rows,), {}, {"lengthscale": 0.3})
        >>> density.shape
        ()
    """
    site = InducingGP(rows, kernel, Z, noise_scale, "dtc" if method == "vfe" else method, blocks=blocks)
    outputs, batch = np.shape(rows.values)[:-1], not_enumerated(site.batch_shape)
    if batch != outputs:
        raise ValueError(
            f"observe_inducing: the parameters of {name!r} make a batch of shape {site.batch_shape}, but the data are "
            f"one observation for each output, shape {outputs}: they would be counted again for each member. Noise "
            "known to differ between rows goes into `sgp.rows(X, y, row_weights)`."
        )
    values = jnp.asarray(rows.values)
    if method == "vfe":
        density, _, trace_term = inducing.white_noise_terms(site._parts, kernel, site.Z, site.noise_scale, values)
        site._known = (values, density)
        numpyro.factor(f"{name}_trace", jnp.sum(jnp.broadcast_to(trace_term, site.batch_shape)))
    return numpyro.sample(name, site, obs=values)
