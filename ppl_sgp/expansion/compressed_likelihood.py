"""Statistics of any likelihood: its expansion to second order in the weights, of a size independent of n."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass, rebuild, static
from ..bases.basis import Basis
from ..likelihoods.likelihood import Likelihood
from ..priors import BlockPrior, DiagonalPrior, WeightPrior
from ..statistics.compressed import Compressed
from ..statistics.moments import Moments
from ..statistics.statistics import SufficientStatistics

FIELDS = ("basis", "moments", "compressed", "likelihood", "centre", "parameters", "scale")


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

    def mean(self, weights: Any) -> Any:
        """Means (..., p) given weights (..., K·m)."""
        return self.loc + weights @ self.slope.T

    def sample(self, key: jax.Array, weights: Any) -> jax.Array:
        """A draw (..., p) for each of the weights (..., K·m)."""
        mean = jnp.asarray(self.mean(jnp.asarray(weights)))
        factor = jnp.asarray(self.factor, mean.dtype)
        return mean + jax.random.normal(key, mean.shape, mean.dtype) @ factor.T

    def log_ratio(self, weights: Any, parameters: Any) -> Any:
        """``log p(λ | w, rows) − log p(λ)``: what rows say of the parameters given the weights, shape (...)."""
        z = jnp.linalg.solve(jnp.asarray(self.factor), jnp.moveaxis(parameters - self.mean(weights), -1, 0).reshape(self.num_parameters, -1))
        conditional = -0.5 * jnp.sum(z**2, axis=0) - jnp.sum(jnp.log(jnp.diagonal(jnp.asarray(self.factor))))
        u = (parameters - self.prior_loc) / self.prior_scale
        prior = -0.5 * jnp.sum(u**2, axis=-1) - jnp.sum(jnp.log(jnp.asarray(self.prior_scale)))
        return conditional.reshape(prior.shape) - prior


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
    """How an expansion was found; no part of what models compute."""

    method: str = static()
    converged: bool = static()
    reason: str = static()
    passes: Any

    @property
    def trace(self) -> tuple[Pass, ...]:
        """The passes, in their order."""
        return tuple(Pass(int(row[0]), *map(float, row[1:])) for row in self.passes)


class _Aside:
    """What goes with a pytree but is no part of its structure: equal to any other."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Aside)

    def __hash__(self) -> int:
        return 0


@jax.tree_util.register_pytree_with_keys_class
class CompressedLikelihood(SufficientStatistics):
    """n rows of any likelihood seen through a frozen basis, compressed to second order in the weights.

    ``log p(y | w) ≈ Q(w)``, a quadratic function whose pair (A, r) has the size of the weights and is valid for every
    prior of them: so this stands wherever :class:`~ppl_sgp.SufficientStatistics` do, with noise of scale one. Make one
    with :func:`~ppl_sgp.compress_likelihood`.

    :ivar likelihood: the likelihood.
    :ivar centre: the normal distribution of the weights around which it was expanded: ``mean`` and ``factor``.
    :ivar parameters: parameters of the likelihood given the weights, :class:`ParameterPosterior`; their prior is
        integrated out of the quadratic function. ``None`` if all are fixed.
    :ivar scale: a typical standard deviation of f, for default priors of amplitudes.
    """

    likelihood: Likelihood
    centre: Centre
    parameters: ParameterPosterior | None
    scale: Any
    record: Record

    # A pytree; how the expansion was found goes along, but makes no program compile anew.
    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in FIELDS], _Aside(self.record)

    @classmethod
    def tree_unflatten(cls, aside, children):
        return rebuild(cls, {**dict(zip(FIELDS, children, strict=True)), "record": aside.value})

    @property
    def method(self) -> str:
        """``"averaged"`` or ``"mode"``."""
        return self.record.method

    @property
    def converged(self) -> bool:
        """Whether the last Newton step was short: the expansion is around the posterior at the reference prior."""
        return self.record.converged

    @property
    def reason(self) -> str:
        """Why the passes ended."""
        return self.record.reason

    @property
    def trace(self) -> tuple[Pass, ...]:
        """The passes that were made: rows, bound, length of the step in posterior standard deviations, damping."""
        return self.record.trace

    @property
    def num_latents(self) -> int:
        """Predictors of a row, K."""
        return self.likelihood.num_latents

    @property
    def num_features(self) -> int:
        """The number of features m, each of which has K weights."""
        return self.num_weights // self.num_latents

    @property
    def known_noise_scale(self) -> float:
        """One: curvatures take the place of noise."""
        return 1.0

    @property
    def output_scale(self) -> Any:
        """A typical standard deviation of f, the natural unit of amplitudes."""
        return self.scale

    @property
    def output_scales(self) -> Any:
        """The same: there is one output."""
        return self.scale

    def prior_of_weights(self, prior: WeightPrior) -> WeightPrior:
        """The prior of all K·m weights: of m weights the same for each predictor, independently.

        Weights are in the order of the predictors, all m of the first one first.
        """
        K, m = self.num_latents, self.num_features
        if K == 1 or prior.num_weights != m:
            return prior
        if isinstance(prior, DiagonalPrior):
            return DiagonalPrior.from_log_scale(
                *(None if part is None else jnp.tile(jnp.broadcast_to(part, (*part.shape[:-1], m)), K)
                  for part in (prior.log_scale, prior.mean))
            )
        return BlockPrior([prior] * K)

    def weights_by_latent(self, weights: Any) -> Any:
        """Weights (..., K·m) as (..., K, m), with which predictors are ``features @ weights.T``."""
        return weights.reshape(*weights.shape[:-1], self.num_latents, self.num_features)

    def log_likelihood(self, weights: Any, parameters: Any = None) -> jax.Array:
        """The expansion Q at weights (..., K·m), nats, in the units of ``log p(y | w)``. O(K²m²) each.

        :param parameters: parameters of the likelihood, unconstrained, (..., p): then the expansion of
            ``log p(y | w, λ)``; else its integral over their prior. Draws of a model with these statistics, and of
            ``parameters`` given their weights, have the density ``exp(Q) × prior``.
        """
        weights = jnp.asarray(weights)
        raise NotImplementedError
