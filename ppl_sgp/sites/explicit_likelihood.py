"""The exact likelihood of explicit weights, in coordinates of the Gaussian posterior that an expansion gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve, solve_triangular
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.reparam import Reparam
from numpyro.util import is_prng_key

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass
from ..evidence import joint
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.row_sites import row_sites
from ..expansion.sources import ArraySource
from ..priors import WeightPrior
from .observed_distribution import ObservedDistribution
from .sparse_gp import SparseGP


@pytree_dataclass
class ExplicitRows:
    """Rows of a likelihood in memory, with their features and what they compress to; made by :func:`explicit_rows`.

    :param statistics: the compressed likelihood.
    :param features: shape (n, m).
    :param y: outcomes, (n,) or (n, columns).
    :param offset: (n,) or (n, K), or ``None``.
    :param row_weights: (n,), or ``None``.
    :param terms: quadratic terms of the rows: gradients (n, L), curvatures (n, L, L) and centres (n, L) in their
        predictors and parameters, and log densities at the centres, (n,).
    """

    statistics: CompressedLikelihood
    features: Any
    y: Any
    offset: Any
    row_weights: Any
    terms: Any

    def predictors(self, weights: Any, index: Any = slice(None)) -> jax.Array:
        """Predictors of rows, (n,) or (n, K), at weights (K·m,). O(n·m·K)."""
        by_latent = self.statistics.weights_by_latent(weights)
        with full_precision():
            eta = jnp.asarray(self.features, weights.dtype)[index] @ by_latent.T
        if self.offset is not None:
            eta = eta + jnp.asarray(self.offset, weights.dtype)[index].reshape(eta.shape[0], -1)
        return eta[:, 0] if self.statistics.num_latents == 1 else eta

    def log_prob(self, y: Any, weights: Any, parameters: Any, index: Any = slice(None)) -> jax.Array:
        """Log densities of outcomes of rows, times their weights."""
        y = jnp.asarray(y, weights.dtype)[index]
        logs = self.statistics.likelihood.log_prob(self.predictors(weights, index), y, parameters)
        return logs if self.row_weights is None else logs * jnp.asarray(self.row_weights, weights.dtype)[index]

    def differences(self, weights: Any, parameters: Any, index: Any) -> jax.Array:
        """Log densities of rows less the quadratic terms that they have in the expansion; none at its centre."""
        gradient, curvature, centre, value = (jnp.asarray(term, weights.dtype)[index] for term in self.terms)
        eta = self.predictors(weights, index).reshape(len(centre), -1)
        free = jnp.broadcast_to(parameters, (len(centre), parameters.shape[0]))
        distance = jnp.concatenate([eta, free], axis=1) - centre
        pull = gradient - 0.5 * jnp.einsum("nij,nj->ni", curvature, distance)
        return self.log_prob(self.y, weights, parameters, index) - value - jnp.sum(pull * distance, axis=1)


def explicit_rows(
    statistics: CompressedLikelihood, X: Any, y: Any, row_weights: Any = None, offset: Any = None
) -> ExplicitRows:
    """The rows of a compressed likelihood again, for models with explicit weights: :func:`explicit_model`.

    Features are evaluated once: O(n m) memory.

    :param statistics: from :func:`~ppl_sgp.compress_likelihood`.
    :param X: the rows that were compressed, as arrays: inputs (n, d); outcomes ``y``, and ``row_weights`` and
        ``offset``, if there were any.
    :raises ValueError: for rows that cannot be used, or are not as many as were compressed.
    """
    source = ArraySource(statistics.basis, statistics.likelihood, False, (X, y, row_weights, offset), None)
    rows = source.rows
    if len(rows.X) != statistics.num_rows:
        raise ValueError(
            f"explicit_rows: the statistics are of {statistics.num_rows} rows; got {len(rows.X)}. Pass exactly the "
            "rows that were compressed."
        )
    features = statistics.basis.host_features(np.asarray(rows.X, dtype=np.float64))
    terms = row_sites(statistics, features, rows.y, rows.offset, rows.row_weights)
    K, centre, omega = statistics.num_latents, terms[2], 1.0 if rows.row_weights is None else rows.row_weights
    with jax.enable_x64(True):
        eta = centre[:, 0] if K == 1 else centre[:, :K]
        value = omega * np.asarray(statistics.likelihood.log_prob(eta, rows.y, centre[0, K:]))
    return ExplicitRows(statistics, features, rows.y, rows.offset, rows.row_weights, (*terms, value))


class ExplicitLikelihood(ObservedDistribution):
    """Outcomes of all rows given the weights: ``Σᵢ ωᵢ log p(yᵢ | ηᵢ)``, O(n·m·K) with its gradient.

    :param rows: from :func:`explicit_rows`.
    :param weights: shape (K·m,).
    :param parameters: of the likelihood, unconstrained, shape (p,).
    """

    arg_constraints = {"weights": constraints.real_vector, "parameters": constraints.real_vector}
    support = constraints.real
    is_evidence = False
    pytree_data_fields = ("rows", "weights", "parameters", "noise_scale")

    def __init__(self, rows: ExplicitRows, weights: Any, parameters: Any, *, validate_args: bool | None = None) -> None:
        self.rows, self.weights, self.parameters = rows, weights, parameters
        self.noise_scale = jnp.ones((), weights.dtype)
        self.support = constraints.independent(constraints.real, np.ndim(rows.y))  # type: ignore[misc]
        super().__init__((), np.shape(rows.y), validate_args=validate_args)

    @property
    def data(self) -> CompressedLikelihood:
        """What the rows compress to."""
        return self.rows.statistics

    @property
    def observed(self) -> Any:
        """The outcomes."""
        return self.rows.y

    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | w, λ)``, nats; −∞ where it cannot be represented."""
        total = jnp.sum(self.rows.log_prob(value, self.weights, self.parameters))
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw outcomes of all rows."""
        assert is_prng_key(key)
        given = self.rows.y if self.data.likelihood.num_columns > 1 else None
        fn = self.data.likelihood.distribution(self.rows.predictors(self.weights), self.parameters, given)
        drawn = jnp.asarray(fn.sample(key, sample_shape))
        if given is None:
            return drawn
        columns = jnp.broadcast_to(jnp.asarray(given, self.weights.dtype), (*drawn.shape, np.shape(given)[-1]))
        return columns.at[..., 0].set(drawn.astype(columns.dtype))


def explicit_model(model: Callable[..., Any], subsample_size: int | None = None) -> ExplicitModel:
    """A model of a compressed likelihood with the exact one: no approximation, O(n·m + m³) a gradient.

    The exact fallback where importance weights are not reliable. The site of :func:`~ppl_sgp.observe` gets explicit
    weights ``w = m_θ + F_θ z``, with the mean and a factor of the covariance of the Gaussian posterior that the
    expansion gives them at the hyperparameters θ of each step. So z is nearly standard normal, and nearly independent
    of θ, as far as the expansion is good: trajectories take few leapfrog steps, however strongly the weights are
    correlated.

    With ``subsample_size`` each value sees so many rows, of a plate ``{name}_rows``, for NumPyro's
    ``HMCECS``: the expansion of all rows is known, and only the difference of the rows in sight from their quadratic
    terms is scaled up. Without a proxy it samples the posterior of the estimated likelihood, which is off by half the
    variance of that difference, at O(b·m + m³) for b rows. What follows from its draws is asked of the model without
    ``subsample_size``, whose sites are the same.

    Sites: those of the model; ``{name}_whitened`` (K·m,) and, if the likelihood has free parameters,
    ``{name}_parameters_whitened`` (p,), standard normal; deterministic ``{name}_weights``. The joint density has all
    constants.

    :param model: a NumPyro model of one argument, a compressed likelihood, that observes it by ``sgp.observe``.
    :param subsample_size: how many rows each value sees; default all.
    :return: the same model of :func:`explicit_rows`.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer.util import log_density
        >>> X = np.linspace(-1, 1, 200)[:, None]
        >>> y = (np.sin(5 * X[:, 0]) > 0).astype(float)
        >>> basis = sgp.LaplaceBasis.from_data(X, 8)
        >>> stats = sgp.compress_likelihood(basis, X, y, sgp.likelihoods.Bernoulli())
        >>> def model(stats):
        ...     sgp.observe("y", stats, stats.basis.weight_prior(sgp.SquaredExponential(0.5)))
        >>> rows = sgp.explicit_rows(stats, X, y)
        >>> log_density(sgp.explicit_model(model), (rows,), {}, {"y_whitened": np.zeros(8)})[0].shape
        ()
    """
    if subsample_size is not None:
        checks.whole_number("subsample_size", subsample_size, 1, "explicit_model")
    return ExplicitModel(model, subsample_size)


@dataclasses.dataclass(frozen=True)
class ExplicitModel:
    """A model of :class:`ExplicitRows`; made by :func:`explicit_model`."""

    model: Callable[..., Any]
    subsample_size: int | None = None

    def __call__(self, rows: ExplicitRows) -> Any:
        """The model with explicit weights."""
        if not isinstance(rows, ExplicitRows):
            raise ValueError(
                f"explicit_model: its argument must come from `sgp.explicit_rows(statistics, X, y)`; got "
                f"{type(rows).__name__}."
            )

        def config(site: dict[str, Any]) -> Reparam | None:
            fn = site["fn"]
            if not isinstance(fn, SparseGP) or fn.data is not rows.statistics:
                return None
            return _Explicit(rows, self.subsample_size)

        with handlers.reparam(config=config):
            return self.model(rows.statistics)


class _Explicit(Reparam):
    """The site of marginalised weights as one of explicit weights."""

    def __init__(self, rows: ExplicitRows, subsample_size: int | None) -> None:
        self.rows, self.subsample_size = rows, subsample_size

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[Any, Any]:
        statistics = self.rows.statistics
        size = statistics.num_weights
        z = jnp.asarray(numpyro.sample(f"{name}_whitened", dist.Normal(0.0, 1.0).expand([size]).to_event(1)))
        weights, log_volume = explicit_weights(statistics, fn.prior, z)
        weights = numpyro.deterministic(f"{name}_weights", weights)
        posterior = statistics.parameters
        parameters = jnp.zeros(0, weights.dtype)
        if posterior is not None:
            free = dist.Normal(0.0, 1.0).expand([posterior.num_parameters]).to_event(1)
            z = jnp.asarray(numpyro.sample(f"{name}_parameters_whitened", free))
            lower = jnp.asarray(posterior.factor, z.dtype)
            mean = jnp.asarray(posterior.loc, z.dtype) + jnp.asarray(posterior.slope, z.dtype) @ weights
            parameters = mean + lower @ z
            scale = jnp.asarray(posterior.prior_scale, z.dtype)
            distance = (parameters - jnp.asarray(posterior.prior_loc, z.dtype)) / scale
            log_volume += jnp.sum(0.5 * (z**2 - distance**2) - jnp.log(scale) + jnp.log(jnp.diagonal(lower)))
            for each, value in statistics.likelihood.constrained(parameters).items():
                numpyro.deterministic(each, value)
        numpyro.factor(f"{name}_prior", log_volume)
        if self.subsample_size is None:
            return ExplicitLikelihood(self.rows, weights, parameters), self.rows.y
        expansion = statistics.log_likelihood(weights, None if posterior is None else parameters)
        numpyro.factor(f"{name}_expansion", expansion)
        with numpyro.plate(f"{name}_rows", len(self.rows.features), subsample_size=self.subsample_size) as index:
            numpyro.factor(f"{name}_difference", self.rows.differences(weights, parameters, index))
        return None, obs


def explicit_weights(statistics: CompressedLikelihood, prior: WeightPrior, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weights (K·m,) at standard normal coordinates z, and ``log p(w | θ) + log|dw/dz| − log N(z; 0, I)``.

    With ``C = FFᵀ``, G = RF and ``LLᵀ = I + GᵀG`` the posterior under the expansion is ``w = μ + Fv``, ``v = u + L⁻ᵀz``
    and ``u = (LLᵀ)⁻¹Gᵀ(c − Rμ)``: so ``log p(w | θ)`` with the volume is ``−½‖v‖² − log|L|``, in which nothing
    cancels. O(m³), or O(m) for rotated statistics and a diagonal prior.
    """
    dtype, c = z.dtype, jnp.asarray(statistics.projection, z.dtype)[:-1]
    mean = jnp.zeros((), dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)
    mean = jnp.broadcast_to(mean, z.shape)
    axes, factor = prior.diagonal_along(0), statistics.compressed.factor
    with full_precision():
        if axes is not None and jnp.ndim(factor) == 1:
            scale = jnp.broadcast_to(jnp.asarray(axes.prior.scale, dtype), z.shape)
            G = jnp.asarray(factor, dtype) * scale
            root = jnp.sqrt(1 + G**2)
            v = G * (c - jnp.asarray(factor, dtype) * mean) / root**2 + z / root
            return mean + scale * v, jnp.sum(0.5 * (z**2 - v**2) - jnp.log(root))
        R, F = joint.dense_factor(statistics, dtype), prior.apply_root(jnp.eye(len(z), dtype=dtype))
        G = R @ F
        L = jnp.linalg.cholesky(jnp.eye(len(z), dtype=dtype) + G.T @ G)
        v = cho_solve((L, True), G.T @ (c - R @ mean)) + solve_triangular(L, z, lower=True, trans=1)
        return mean + F @ v, 0.5 * (z @ z - v @ v) - jnp.sum(jnp.log(jnp.diagonal(L)))
