"""What a compressed likelihood keeps besides its statistics: its centre, free parameters, units, how it was found."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static


@pytree_dataclass
class Centre:
    """The normal distribution of the weights that a log likelihood was expanded around.

    :param mean: w₀, shape (K·m,).
    :param factor: F with covariance FFᵀ, shape (K·m, K·m).
    """

    mean: Any
    factor: Any


@pytree_dataclass
class ParameterPosterior:
    """Parameters of the likelihood given the weights: ``λ | w ~ N(loc + slope·w, factor factorᵀ)``, unconstrained.

    :param loc: shape (p,).
    :param slope: shape (p, K·m).
    :param factor: lower triangular, shape (p, p).
    :param prior_loc: prior means, shape (p,).
    :param prior_scale: prior standard deviations, shape (p,).
    """

    loc: Any
    slope: Any
    factor: Any
    prior_loc: Any
    prior_scale: Any

    @property
    def num_parameters(self) -> int:
        """Their number p."""
        return self.factor.shape[-1]

    def mean(self, weights: Any) -> jax.Array:
        """Means (..., p) given weights (..., K·m)."""
        w = jnp.asarray(weights)
        with full_precision():
            moved = w @ jnp.asarray(self.slope, w.dtype).T
        return jnp.broadcast_to(jnp.asarray(self.loc, w.dtype), moved.shape) + moved

    def sample(self, key: jax.Array, weights: Any) -> jax.Array:
        """A draw (..., p) for each of the weights (..., K·m)."""
        mean = self.mean(weights)
        return mean + jax.random.normal(key, mean.shape, mean.dtype) @ jnp.asarray(self.factor, mean.dtype).T

    def log_ratio(self, weights: Any, parameters: Any) -> jax.Array:
        """``log p(λ | w, rows) − log p(λ)``: what rows say of the parameters given the weights, shape (...)."""
        mean = self.mean(weights)
        shape = jnp.broadcast_shapes(mean.shape, jnp.shape(parameters))
        given = jnp.broadcast_to(jnp.asarray(parameters, mean.dtype), shape).reshape(-1, self.num_parameters).T
        factor = jnp.asarray(self.factor, mean.dtype)
        loc, scale = (jnp.asarray(array, mean.dtype)[:, None] for array in (self.prior_loc, self.prior_scale))
        z = solve_triangular(factor, given - jnp.broadcast_to(mean, shape).reshape(-1, len(factor)).T, lower=True)
        u = (given - loc) / scale
        log_scales = jnp.sum(jnp.log(jnp.diagonal(factor))) - jnp.sum(jnp.log(scale))
        return (-0.5 * (jnp.sum(z**2, axis=0) - jnp.sum(u**2, axis=0)) - log_scales).reshape(shape[:-1])


@pytree_dataclass
class Units:
    """What default priors and shrinkage ask of the data.

    :param scale: a typical standard deviation of f.
    :param total_weight: sum of the curvatures of rows in their predictors.
    """

    scale: Any
    total_weight: Any


class Pass(NamedTuple):
    """One pass over rows: how many, the bound it found, and the step that was taken from it.

    :ivar num_rows: rows of the pass.
    :ivar objective: log joint density at the mode, or the variational bound of averaged expansions, nats.
    :ivar step: length of the Newton step in posterior standard deviations.
    :ivar damping: the share of it that was taken.
    """

    num_rows: int
    objective: float
    step: float
    damping: float


@pytree_dataclass
class Record:
    """How an expansion was found; no part of what models compute.

    :param passes: rows of :class:`Pass`, shape (passes, 4).
    :param method: ``"averaged"`` or ``"mode"``.
    :param converged: whether the next step would be short.
    :param reason: why the passes ended.
    """

    passes: Any
    method: str = static()
    converged: bool = static()
    reason: str = static()

    @property
    def trace(self) -> tuple[Pass, ...]:
        """The passes, in their order."""
        return tuple(Pass(int(row[0]), *map(float, row[1:])) for row in self.passes)


class Aside:
    """What goes with a pytree but is no part of its structure: equal to any other."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aside)

    def __hash__(self) -> int:
        return 0
