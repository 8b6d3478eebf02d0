"""The evidence site of several groups of rows that share functions: a noise scale a group, correlated outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .._internal import checks
from ..evidence import grouped
from ..priors import WeightPrior
from ..statistics.grouped import GroupedStatistics
from ..statistics.statistics import SufficientStatistics, with_compressed
from .compressed_distribution import sample_projection
from .observed_distribution import ObservedDistribution, check_noise


class GroupedGP(ObservedDistribution):
    """The compressed data of G groups of rows, with the weights of the functions they share marginalised.

    Group k sees ``f_k + σ_k ε``, ``f_k = Σⱼ mixing[k, j] g_j`` with p independent g of the given prior. By default all
    see one function. ``log_prob`` is ``log p(y | θ)`` of all rows with all constants, at the cost that
    :func:`~ppl_sgp.observe_groups` says; ``sample`` draws compressed data, independent of n.

    Batch shape (); event shape that of ``statistics.observed``.

    :param statistics: from :func:`~ppl_sgp.grouped_statistics` or :func:`~ppl_sgp.output_statistics`.
    :param prior: prior of the weights of each g. A mean is that of every f_k.
    :param noise_scale: standard deviation of the noise, shape (G,), or () for all.
    :param mixing: L, shape (G, p); the functions have covariance ``LLᵀ`` times that of the prior. Default ones (G, 1).
    :raises ValueError: for arguments that do not fit, or float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.grouped_statistics(basis, X, np.cos(6 * X[:, 0]), np.repeat(["old", "new"], 15))
        >>> with jax.enable_x64(True):
        ...     site = sgp.GroupedGP(stats, basis.weight_prior(sgp.Matern32(0.3)), np.array([0.1, 0.2]))
        ...     site.log_prob(stats.observed).shape
        ()
    """

    arg_constraints = {"noise_scale": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    is_evidence = True
    pytree_data_fields = ("statistics", "prior", "noise_scale", "mixing")

    def __init__(
        self,
        statistics: GroupedStatistics,
        prior: WeightPrior,
        noise_scale: Any,
        mixing: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.statistics, self.prior = statistics, _checked(statistics, prior)
        groups = statistics.num_groups
        check_noise("GroupedGP", noise_scale)
        if mixing is None:
            mixing = np.ones((groups, 1), checks.common_dtype(*jax.tree.leaves(prior), noise_scale))
        mixing = checks.real_numbers("mixing", mixing, "GroupedGP")
        dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale, mixing)
        if dtype != jnp.float64:
            raise ValueError(
                f"GroupedGP needs float64, since its evidence squares a condition number; got {dtype}. Call "
                "numpyro.enable_x64() before creating arrays."
            )
        if jnp.shape(noise_scale) not in ((), (groups,)) or jnp.ndim(mixing) != 2 or len(mixing) != groups:
            raise ValueError(
                f"GroupedGP: of the {groups} groups {list(statistics.names)} `noise_scale` must have shape () or "
                f"({groups},) and `mixing` ({groups}, p); got {jnp.shape(noise_scale)} and {jnp.shape(mixing)}. "
                "A batch of parameters goes through `jax.vmap`."
            )
        if checks.is_concrete(mixing) and not np.isfinite(np.asarray(mixing)).all():
            raise ValueError("GroupedGP: `mixing` must be finite.")
        self.noise_scale = jnp.broadcast_to(jnp.asarray(noise_scale, dtype), (groups,))
        self.mixing = jnp.asarray(mixing, dtype)
        super().__init__((), jnp.shape(statistics.observed), validate_args=validate_args)

    @property
    def data(self) -> GroupedStatistics:
        """The statistics of all groups."""
        return self.statistics

    @property
    def observed(self) -> Any:
        """The compressed data of all groups in a row."""
        return self.statistics.observed

    def expand(self, batch_shape: tuple[int, ...]) -> GroupedGP:
        """Itself; refused for any batch, such as a plate makes, which would count the data again."""
        if tuple(batch_shape):
            raise ValueError(
                f"GroupedGP stands for all rows of all groups at once, and cannot be expanded to {tuple(batch_shape)}, "
                "as inside a plate, which would count the data again. Move it outside all plates."
            )
        return self

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | θ)`` of the rows that compress to ``value``; −∞ where it cannot be represented."""
        evaluate = grouped.evaluate
        for _ in range(jnp.ndim(value) - 1):
            evaluate = jax.vmap(evaluate, in_axes=(None, None, None, None, 0))
        result = evaluate(self.statistics, self.prior, self.noise_scale, self.mixing, value)
        return jnp.where(jnp.isnan(result), -jnp.inf, result)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw compressed data: weights from the prior, then data given weights. O(m²p + G m·rank) a draw."""
        assert is_prng_key(key)
        m, (groups, p) = self.statistics.num_weights, self.mixing.shape
        mean = jnp.broadcast_to(jnp.zeros(()) if self.prior.mean is None else self.prior.mean, (m,))
        prior = self.prior.sized(m)

        def draw(key: jax.Array) -> jax.Array:
            key_w, key_data = jax.random.split(key)
            functions = prior.apply_root(jax.random.normal(key_w, (m, p), self.mixing.dtype))
            weights = mean[None, :] + self.mixing @ functions.T
            keys = jax.random.split(key_data, groups)
            return jax.vmap(self._data_of)(self._parts(), keys, weights, self.noise_scale).reshape(-1)

        count = int(np.prod(sample_shape, dtype=int))
        draws = jax.lax.map(draw, jax.random.split(key, count))
        return draws.reshape(*sample_shape, *self.event_shape)

    def _parts(self) -> tuple[Any, Any]:
        return self.statistics.moments, self.statistics.compressed

    def _data_of(self, part: tuple[Any, Any], key: jax.Array, weights: jax.Array, noise_scale: jax.Array) -> jax.Array:
        return sample_projection(key, with_compressed(self.statistics.basis, *part), weights, noise_scale)

    @property
    def mean(self) -> jax.Array:
        """Prior mean of c and rss of all groups."""
        R = jnp.asarray(self.statistics.compressed.factor, self.mixing.dtype)
        mean = jnp.zeros(()) if self.prior.mean is None else self.prior.mean
        c = R @ jnp.broadcast_to(mean, R.shape[-1:])
        dof = jnp.asarray(self.statistics.moments.num_rows - self.statistics.compressed.rank, c.dtype)
        return jnp.concatenate([c, (self.noise_scale**2 * dof)[:, None]], axis=1).reshape(-1)


def _checked(statistics: Any, prior: Any) -> WeightPrior:
    if not isinstance(statistics, GroupedStatistics):
        plain = isinstance(statistics, SufficientStatistics)
        raise ValueError(
            "GroupedGP: `statistics` must come from sgp.grouped_statistics or sgp.output_statistics; got "
            f"{type(statistics).__name__}.{' Plain statistics are observed by `sgp.observe`.' * plain}"
        )
    if not isinstance(prior, WeightPrior) or prior.batch_shape:
        raise ValueError(
            "GroupedGP: `prior` must be one weight prior, such as `statistics.basis.weight_prior(kernel)`; got "
            f"{type(prior).__name__} of batch shape {getattr(prior, 'batch_shape', None)}."
        )
    if prior.num_weights not in (None, 1, statistics.num_weights):
        raise ValueError(
            f"GroupedGP: `prior` has {prior.num_weights} weights but the statistics have {statistics.num_weights} "
            "features: make the prior from `statistics.basis`."
        )
    return prior
