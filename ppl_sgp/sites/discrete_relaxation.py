"""Distributions on a finite grid of real levels: discrete relaxations of continuous priors."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_softmax
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Independent
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .._internal import checks

#: A value counts as a level if it is this close, relative to the range of the levels: it may have been through float32.
SAME = 1e-6
#: Levels of the default grid.
DEFAULT_LEVELS = 15
#: Half the width of the default grid, in standard deviations of the continuous prior (Evans 2022, section 7.5.3).
DEFAULT_WIDTH = 3.0
#: The number of its levels.
DEFAULT_LEVELS = 15


class _Levels(constraints.Constraint):
    """One of finitely many real levels, which are leaves."""

    is_discrete = True
    event_dim = 0

    def __init__(self, levels: Any) -> None:
        self.levels = levels

    def __call__(self, x: Any) -> jax.Array:
        return jnp.min(_distance(jnp.asarray(x), self.levels), axis=-1) <= SAME

    def feasible_like(self, prototype: Any) -> jax.Array:
        return jnp.broadcast_to(self.levels[..., 0], jnp.shape(prototype))

    def tree_flatten(self):
        return (self.levels,), (("levels",), {})


class DiscreteRelaxation(dist.Distribution):
    """A continuous prior moved to finitely many levels: the discrete relaxation of DIRECT (Evans 2022, chapter 7).

    Log-probabilities are those of the continuous density at the levels, normalised over the levels (section 7.5.3), so
    that levels count alike however far apart they are. Values are the levels themselves, not their indices.

    :param base_distribution: a continuous univariate NumPyro distribution; its batch shape is kept.
    :param num_levels: number m̄ of evenly spaced levels, from three standard deviations below the mean to three above;
        an odd number has a level at the mean. Default 15. Not together with ``support``.
    :param support: the levels, ascending, shape (m̄,) or batch + (m̄,): any, such as 0 and powers of two.
    :ivar is_relaxation: whether the levels stand for a continuous prior, which has mass beyond them; false for levels
        with probabilities of their own, :meth:`from_logits`.
    :raises ValueError: for a distribution that is not continuous and univariate, fewer than two levels, both
        ``num_levels`` and ``support``, levels that are no numbers, not ascending or outside the support of the
        distribution, or a default grid without finite moments.

    .. doctest::

        >>> import jax, numpyro.distributions as dist, ppl_sgp as sgp
        >>> prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7)
        >>> prior.levels.tolist(), round(float(prior.variance), 2)
        ([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], 1.0)
        >>> prior.codes(prior.expand([4]).sample(jax.random.key(0))).shape
        (4,)
    """

    arg_constraints = {"levels": constraints.real_vector, "logits": constraints.real_vector}
    pytree_data_fields = ("levels", "logits")
    pytree_aux_fields = ("is_relaxation",)

    def __init__(
        self,
        base_distribution: dist.Distribution,
        num_levels: int | None = None,
        support: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        levels = _levels_of(base_distribution, num_levels, support)
        logits = jax.vmap(base_distribution.log_prob, in_axes=-1, out_axes=-1)(levels)
        self._set(levels, logits, True, validate_args)

    @classmethod
    def from_logits(cls, levels: Any, logits: Any, *, validate_args: bool | None = None) -> DiscreteRelaxation:
        """A distribution over levels with given log-probabilities, up to a constant: for guides.

        :param levels: ascending, shape (m̄,) or batch + (m̄,).
        :param logits: shape batch + (m̄,).
        """
        levels, logits = _floating("levels", levels), _floating("logits", logits)
        if logits.ndim == 0 or levels.shape[-1:] != logits.shape[-1:]:
            raise ValueError(
                f"DiscreteRelaxation: `logits` must end in one axis of {levels.shape[-1:]} levels; got {logits.shape}."
            )
        _check_ascending(levels)
        # −∞ is an impossible level; that of none, and anything else that has no finite sum, is refused.
        if checks.is_concrete(logits) and not np.isfinite(np.asarray(logits).max(axis=-1)).all():
            raise ValueError(
                "DiscreteRelaxation: `logits` must be log-probabilities, at least one of each weight finite and "
                f"none NaN or +inf; got {np.array2string(np.asarray(logits), threshold=8)}."
            )
        return cls._of(levels, logits, False, validate_args)

    @classmethod
    def _of(cls, levels: jax.Array, logits: jax.Array, is_relaxation: bool, validate_args: Any) -> DiscreteRelaxation:
        instance = cls.__new__(cls)
        instance._set(levels, logits, is_relaxation, validate_args)
        return instance

    def _set(self, levels: jax.Array, logits: jax.Array, is_relaxation: bool, validate_args: bool | None) -> None:
        self.is_relaxation = is_relaxation
        shape = jnp.broadcast_shapes(levels.shape, logits.shape)
        self.levels, self.logits = jnp.broadcast_to(levels, shape), log_softmax(jnp.broadcast_to(logits, shape))
        super().__init__(shape[:-1], (), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The levels."""
        return _Levels(self.levels)

    @property
    def num_levels(self) -> int:
        """The number m̄ of levels."""
        return self.levels.shape[-1]

    @property
    def probs(self) -> jax.Array:
        """Probabilities, shape batch + (m̄,)."""
        return jnp.exp(self.logits)

    @property
    def mean(self) -> jax.Array:
        """``Σ p w``."""
        return jnp.sum(self.probs * self.levels, axis=-1)

    @property
    def variance(self) -> jax.Array:
        """``Σ p (w − mean)²``."""
        return jnp.sum(self.probs * (self.levels - self.mean[..., None]) ** 2, axis=-1)

    def entropy(self) -> jax.Array:
        """``−Σ p log p``, in nats."""
        return -jnp.sum(self.probs * self.logits, axis=-1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw levels, shape sample_shape + batch."""
        assert is_prng_key(key)
        shape = sample_shape + self.batch_shape
        return self.decode(jax.random.categorical(key, self.logits, shape=shape))

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Log-probability of levels; −∞ of anything else."""
        distance = _distance(jnp.asarray(value), self.levels)
        code, known = jnp.argmin(distance, axis=-1), jnp.min(distance, axis=-1) <= SAME
        return jnp.where(known, _at(self.logits, code), -jnp.inf)

    def codes(self, value: Any) -> jax.Array:
        """Integers from 0 to m̄ − 1: the level nearest to each value, shape of ``value``."""
        return jnp.argmin(_distance(jnp.asarray(value), self.levels), axis=-1)

    def decode(self, codes: Any) -> jax.Array:
        """The levels that integer codes stand for."""
        return _at(self.levels, jnp.asarray(codes))

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """True; but where NUTS asks and there is no funsor to enumerate a batch with, an error with the remedy."""
        if self.batch_shape and _asked_by_nuts() and importlib.util.find_spec("funsor") is None:
            _refuse_enumeration(
                self.num_levels,
                self.batch_shape,
                " If each enters the likelihood inside its plate only, `pip install funsor` lets NUTS sum them out.",
            )
        return True

    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """All levels, shape (m̄,) + batch. Without ``expand`` batches of equal levels keep axes of size one."""
        levels = jnp.moveaxis(self.levels, -1, 0)
        shared = levels[(slice(None), *(slice(0, 1) for _ in self.batch_shape))]
        alike = checks.is_concrete(levels) and bool(np.all(np.asarray(levels) == np.asarray(shared)))
        return shared if alike and not expand else levels

    def expand(self, batch_shape: tuple[int, ...]) -> DiscreteRelaxation:
        """The same distribution for a larger batch."""
        shape = (*batch_shape, self.num_levels)
        levels, logits = (_leading(array, len(shape)) for array in (self.levels, self.logits))
        return self._of(jnp.broadcast_to(levels, shape), jnp.broadcast_to(logits, shape), self.is_relaxation, None)

    def to_event(self, reinterpreted_batch_ndims: int | None = None) -> dist.Distribution:
        """Weights that are one event; enumerating them is refused."""
        count = len(self.batch_shape) if reinterpreted_batch_ndims is None else reinterpreted_batch_ndims
        return self if count == 0 else _DiscreteWeights(self, count)

    @staticmethod
    def infer_shapes(levels: Any, logits: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        return jnp.broadcast_shapes(tuple(levels)[:-1], tuple(logits)[:-1]), ()


class _DiscreteWeights(Independent):
    """Weights with a level each, as one event: m̄ᵇ configurations."""

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """False; and where NumPyro asks in order to enumerate latent sites (NUTS does so), an error with the remedy."""
        if _asked_by_nuts():
            _refuse_enumeration(self.base_dist.num_levels, self.event_shape)
        return False

    @has_enumerate_support.setter
    def has_enumerate_support(self, value: bool) -> None:
        """Set by the base class; always false here."""

    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """Refused, with the remedy."""
        return _refuse_enumeration(self.base_dist.num_levels, self.event_shape)


def _asked_by_nuts() -> bool:
    """Whether NumPyro's set-up of a potential energy asked the caller: it offers no hook for errors of ours."""
    return sys._getframe(2).f_globals.get("__name__") == "numpyro.infer.util"


def _refuse_enumeration(num_levels: int, shape: tuple[int, ...], otherwise: str = "") -> Any:
    count = int(np.prod(shape))
    raise ValueError(
        f"{count} discrete weights on {num_levels} levels each have {num_levels}**{count} configurations, which cannot "
        "be enumerated, and NUTS needs continuous sites. Fit them with `sgp.direct.fit`, or under SVI with "
        "`loss=sgp.direct.ExactELBO()`, or sample them with `sgp.models.discrete_weights(prior).gibbs()`." + otherwise
    )


def _levels_of(base: Any, num_levels: int | None, support: Any) -> jax.Array:
    if not isinstance(base, dist.Distribution) or base.event_shape or base.is_discrete:
        raise ValueError(
            "DiscreteRelaxation: `base_distribution` must be a continuous univariate NumPyro distribution, such as "
            f"dist.Normal(0.0, 1.0); got {type(base).__name__}."
        )
    if support is not None and num_levels is not None:
        raise ValueError(
            f"DiscreteRelaxation: pass either `num_levels`, of an evenly spaced grid, or the levels as `support=`; got "
            f"num_levels={num_levels!r} and a support of shape {np.shape(support)}."
        )
    if support is None:
        num_levels = DEFAULT_LEVELS if num_levels is None else num_levels
        checks.whole_number("num_levels", num_levels, 2, "DiscreteRelaxation")
        mean, scale = jnp.asarray(base.mean), jnp.sqrt(jnp.asarray(base.variance))
        if checks.is_concrete(mean, scale) and not (np.isfinite(mean).all() and np.isfinite(scale).all()):
            raise ValueError(
                f"DiscreteRelaxation: {type(base).__name__} has no finite mean and variance to take the default levels "
                "from; pass them as `support=`."
            )
        steps = jnp.asarray(DEFAULT_WIDTH * np.linspace(-1, 1, num_levels), scale.dtype)
        levels = mean[..., None] + scale[..., None] * _leading(steps, scale.ndim + 1)
    else:
        levels = _floating("support", support)
        shape = jnp.broadcast_shapes(levels.shape[:-1], base.batch_shape)
        levels = jnp.broadcast_to(_leading(levels, len(shape) + 1), (*shape, *levels.shape[-1:]))
    _check_ascending(levels)
    if checks.is_concrete(levels, base):
        inside = np.asarray(jax.vmap(base.support, in_axes=-1, out_axes=-1)(levels))
        if not inside.all():
            raise ValueError(
                f"DiscreteRelaxation: levels must lie in the support of {type(base).__name__}; "
                f"{np.asarray(levels)[~inside][:3]} do not. Pass others as `support=`."
            )
    return levels


def _check_ascending(levels: jax.Array) -> None:
    if levels.ndim == 0 or levels.shape[-1] < 2:
        raise ValueError(f"DiscreteRelaxation needs at least two levels; got shape {levels.shape}.")
    if checks.is_concrete(levels):
        values = np.asarray(levels)
        if not (np.isfinite(values).all() and (np.diff(values, axis=-1) > 0).all()):
            raise ValueError("DiscreteRelaxation: levels must be finite and strictly ascending; sort them.")


def _floating(name: str, values: Any) -> jax.Array:
    values = checks.unmasked(name, values, "DiscreteRelaxation")
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError):  # text, a ragged list, None
        array = jnp.zeros(0, dtype=bool)
    if array.dtype == bool or jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(
            f"DiscreteRelaxation: `{name}` must be an array of real numbers, the last axis over levels; got {values!r}."
        )
    return array.astype(checks.common_dtype(array))


def _leading(array: Any, rank: int) -> jax.Array:
    """With axes of size one in front, up to the given rank."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _distance(value: jax.Array, levels: jax.Array) -> jax.Array:
    """From each value to each level, in units of the range of the levels."""
    rank = max(value.ndim + 1, levels.ndim)
    levels = _leading(levels, rank)
    return jnp.abs(_leading(value[..., None], rank) - levels) / (levels[..., -1:] - levels[..., :1])


def _at(values: jax.Array, codes: jax.Array) -> jax.Array:
    """Entries along the last axis, codes broadcasting against the batch."""
    shape = jnp.broadcast_shapes(codes.shape, values.shape[:-1])
    wide = jnp.broadcast_to(_leading(values, len(shape) + 1), (*shape, values.shape[-1]))
    return jnp.take_along_axis(wide, jnp.broadcast_to(_leading(codes, len(shape)), shape)[..., None], axis=-1)[..., 0]
