"""What the observed site of a model is at each posterior draw: priors of weights, weights or kernels, with noise."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.compiled import Compiled
from .._internal.pytree import pytree_dataclass, static
from ..evidence import grouped
from ..evidence.weight_posterior import posterior_factors
from ..grids.solver import GridSolver
from ..kernels import Kernel
from ..priors import DiagonalPrior, WeightPrior
from ..sites.compressed_normal import CompressedNormal
from ..sites.exact_gp import ExactGP
from ..sites.explicit_likelihood import ExplicitLikelihood
from ..sites.grid_gp import GridGP
from ..sites.grouped_gp import GroupedGP
from ..sites.inducing_gp import InducingGP
from ..sites.sparse_gp import SparseGP
from ..sites.tracing import ObservedSite, observed_sites, trace_at
from ..statistics.grouped import GroupedStatistics
from ..statistics.statistics import SufficientStatistics
from .model_outcomes import ModelOutcomes
from .outcomes import Outcomes


class SiteParameters(abc.ABC):
    """The parameters of an observed site at one draw, or of several draws along a first axis of all leaves.

    :ivar likelihood_parameters: parameters of a likelihood, unconstrained, shape (p,), where a draw has them; else they
        are normal given the weights.
    """

    noise_scale: Any
    likelihood_parameters: Any = None
    #: Whether a draw has the weights of the function.
    are_given = False


class WeightParameters(SiteParameters):
    """Of a site over compressed data."""

    @abc.abstractmethod
    def weights(self, statistics: Any) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Of one draw: mean and factor of the weights' posterior, squared residual amplitudes, effective share."""


@pytree_dataclass
class MarginalParameters(WeightParameters):
    """Of :class:`~ppl_sgp.SparseGP`, whose weights are marginalised."""

    prior: WeightPrior
    noise_scale: Any

    def weights(self, statistics: SufficientStatistics) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Those of the weights' posterior."""
        loc, factor = posterior_factors(statistics, self.prior, self.noise_scale)
        return loc, factor, *_of_basis(statistics, self.prior)


@pytree_dataclass
class GivenParameters(WeightParameters):
    """Of :class:`~ppl_sgp.CompressedNormal`, whose weights are given: a posterior without spread."""

    given: Any
    noise_scale: Any

    are_given = True

    def weights(self, statistics: SufficientStatistics) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The weights, with standard deviations of zero."""
        one = jnp.ones((), self.given.dtype)
        return self.given, jnp.zeros_like(self.given), jnp.zeros(0, one.dtype), one


@pytree_dataclass
class GivenJointParameters(WeightParameters):
    """Of weights that are given, together with parameters of the likelihood."""

    given: Any
    noise_scale: Any
    likelihood_parameters: Any

    are_given = True

    def weights(self, statistics: SufficientStatistics) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The weights, with standard deviations of zero."""
        return GivenParameters(self.given, self.noise_scale).weights(statistics)


@pytree_dataclass
class GroupedParameters(WeightParameters):
    """Of :class:`~ppl_sgp.GroupedGP`, whose groups see functions mixed of the same latent ones."""

    prior: WeightPrior
    noise_scale: Any
    mixing: Any

    def weights(self, statistics: GroupedStatistics) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Those of the function that each group sees."""
        loc, factor = grouped.posterior_factors(statistics, self.prior, self.noise_scale, self.mixing)
        amplitude, share = _of_basis(statistics, self.prior)
        return loc, factor, jnp.sum(self.mixing**2, axis=1)[:, None] * amplitude[None, :], share


@pytree_dataclass
class KernelParameters(SiteParameters):
    """Of :class:`~ppl_sgp.ExactGP`, which has its kernel itself."""

    kernel: Kernel
    noise_scale: Any


@pytree_dataclass
class GridParameters(SiteParameters):
    """Of :class:`~ppl_sgp.GridGP`: a kernel an axis, scales of the fixed effects, and how systems are solved."""

    kernels: tuple[Kernel, ...]
    noise_scale: Any
    feature_scale: Any
    solver: GridSolver


@pytree_dataclass
class InducingParameters(KernelParameters):
    """Of :class:`~ppl_sgp.InducingGP`: its points as well, the rows of each block of PITC, and the method."""

    Z: Any
    members: Any
    method: str = static()


def _of_basis(statistics: SufficientStatistics | GroupedStatistics, prior: WeightPrior) -> tuple[jax.Array, jax.Array]:
    basis = statistics.basis
    m = basis.num_features
    if prior.num_weights in (None, 1, m):
        return basis.residual_amplitude(prior), basis.effective_share(prior.log_variance)
    # Of several predictors with a prior each, what the basis lacks has no amplitude in common.
    each = prior.log_variance.reshape(*prior.batch_shape, -1, m)
    unknown = DiagonalPrior.from_log_scale(jnp.full((*prior.batch_shape, m), -jnp.inf, each.dtype))
    return basis.residual_amplitude(unknown), basis.effective_share(each)


def require_finite_draws(owner: str, values: np.ndarray) -> None:
    """Refuse results (draws, …) that are not finite, with the first draw."""
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{owner}: the result is not finite for {np.sum(~finite)} draws, the first of them draw "
            f"{np.argmin(finite)}: look for hyperparameters that are not finite, or beyond {values.dtype}."
        )


class SiteDraws(abc.ABC):
    """The site at every draw.

    :ivar data: the statistics or rows that the site observes.
    :ivar num_draws: how many draws there are.
    """

    data: Any
    num_draws: int

    @abc.abstractmethod
    def parameters(self, indices: np.ndarray) -> SiteParameters:
        """The parameters at chosen draws, stacked."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray) -> SiteDraws:
        """Chosen draws."""

    @abc.abstractmethod
    def structure(self) -> SiteParameters:
        """Shapes and dtypes of the parameters at one draw, stacked; nothing is evaluated."""

    def row_outcomes(self) -> Outcomes | None:
        """The distributions of y, where the site observes rows by a distribution of the model's own."""
        return None


class ModelDraws(SiteDraws):
    """The site that a model makes of draws of its latent sites. Compiled once for data of equal shapes.

    :param model: a NumPyro model.
    :param data: its argument.
    :param observed: its observed site.
    :param latent: draws of its latent sites, each with the draws along the first axis.
    :param num_draws: how many.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        data: Any,
        observed: ObservedSite,
        latent: dict[str, np.ndarray],
        num_draws: int,
    ) -> None:
        self._argument, self._latent = data, latent
        self.data, self.num_draws = observed.data, num_draws
        self._of = model, observed.name
        self._compiled = Compiled(_parameters_at, *self._of)

    def parameters(self, indices: np.ndarray) -> SiteParameters:
        """The parameters at chosen draws, stacked."""
        chosen = {name: values[indices] for name, values in self._latent.items()}
        return self._compiled(self._argument, chosen, np.arange(len(indices)))

    def take(self, indices: np.ndarray) -> ModelDraws:
        """Chosen draws."""
        taken = copy.copy(self)
        taken._latent, taken.num_draws = {name: values[indices] for name, values in self._latent.items()}, len(indices)
        return taken

    def structure(self) -> SiteParameters:
        """Shapes and dtypes of the parameters at one draw, stacked."""
        first = {name: values[:1] for name, values in self._latent.items()}
        return jax.eval_shape(lambda: _parameters_at(*self._of, self._argument, first, np.arange(1)))


class RowDraws(ModelDraws):
    """A site that observes rows one by one, by a distribution of the model's own: it has outcomes, and no more."""

    def parameters(self, indices: np.ndarray) -> SiteParameters:
        """Refused."""
        return self.structure()

    def structure(self) -> SiteParameters:
        """Refused."""
        raise ValueError(
            f"This asks the function of a GP, and {self._of[1]!r} observes rows by a distribution of the model's own, "
            "which says what y is, not what it is made of. Functions are in the draws, as `{name}_weights`: f at new "
            "inputs is `basis(X_new) @ w` for each of them."
        )

    def row_outcomes(self) -> Outcomes:
        """The distributions of y."""
        model, site = self._of
        return ModelOutcomes(model, site, self._latent, self.num_draws, self.data)


class StoredDraws(SiteDraws):
    """The site at draws that were computed before.

    :param data: the statistics or rows that the site observes.
    :param stored: the parameters at all draws, stacked.
    """

    def __init__(self, data: Any, stored: SiteParameters) -> None:
        self.data, self._stored = data, stored
        self.num_draws = len(stored.noise_scale)

    def parameters(self, indices: np.ndarray) -> SiteParameters:
        """The parameters at chosen draws, stacked."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[indices], self._stored)

    def take(self, indices: np.ndarray) -> StoredDraws:
        """Chosen draws."""
        return StoredDraws(self.data, self.parameters(indices))

    def structure(self) -> SiteParameters:
        """Shapes and dtypes of the parameters at one draw, stacked."""
        return jax.eval_shape(lambda: self.parameters(np.arange(1)))


def _parameters_at(
    model: Callable[..., Any], site: str, data: Any, draws: dict[str, Any], numbers: Any
) -> SiteParameters:
    """At each draw; their ``numbers`` say how many there are of a model that holds everything fixed."""

    def at(numbered):
        return parameters_of(observed_sites(trace_at(model, data, numbered[1]))[site])

    return jax.lax.map(at, (numbers, draws))


@functools.singledispatch
def parameters_of(distribution: Any) -> SiteParameters:
    """The parameters of a distribution over all rows."""
    raise TypeError(f"No posterior of the function is known for a {type(distribution).__name__}.")


@parameters_of.register
def _(distribution: SparseGP) -> SiteParameters:
    return MarginalParameters(distribution.prior, distribution.noise_scale)


@parameters_of.register
def _(distribution: GroupedGP) -> SiteParameters:
    return GroupedParameters(distribution.prior, distribution.noise_scale, distribution.mixing)


@parameters_of.register
def _(distribution: CompressedNormal) -> SiteParameters:
    return GivenParameters(distribution.weights, distribution.noise_scale)


@parameters_of.register
def _(distribution: ExplicitLikelihood) -> SiteParameters:
    if distribution.data.parameters is None:
        return GivenParameters(distribution.weights, distribution.noise_scale)
    return GivenJointParameters(distribution.weights, distribution.noise_scale, distribution.parameters)


@parameters_of.register
def _(distribution: ExactGP) -> SiteParameters:
    return KernelParameters(distribution.kernel, distribution.noise_scale)


@parameters_of.register
def _(distribution: GridGP) -> SiteParameters:
    return GridParameters(
        distribution.kernels, distribution.noise_scale, distribution.feature_scale, distribution.solver
    )


@parameters_of.register
def _(distribution: InducingGP) -> SiteParameters:
    method = distribution.method if distribution.is_density else "vfe"
    members = None if distribution.members is None else jnp.asarray(distribution.members)
    return InducingParameters(distribution.kernel, distribution.noise_scale, distribution.Z, members, method)


def latent_draws(observed: ObservedSite, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws of a model's latent sites alone, each of the site's shape after the first axis."""
    missing = [name for name in observed.latent if name not in samples]
    if missing:
        raise ValueError(
            f"The draws lack the latent sites {missing} of the model; pass `mcmc.get_samples()` or draws of "
            f"all of {sorted(observed.latent)}."
        )
    chosen = {name: samples[name] for name in observed.latent}
    for name, shape in observed.latent.items():
        size = np.max(np.abs(chosen[name]), initial=0.0, where=np.isfinite(chosen[name]))
        if size > np.finfo(jax.dtypes.canonicalize_dtype(np.float64)).max:
            raise ValueError(f"The draws of {name!r} are beyond float32: {size:.3g}. Call numpyro.enable_x64() first.")
        drawn = chosen[name].shape[1:]  # of one number for all elements, as well
        if len(drawn) > len(shape) or np.broadcast_shapes(drawn, shape) != shape:
            by_chain = chosen[name].shape[2:] == shape
            raise ValueError(
                f"The draws of {name!r} must have shape (draws, {', '.join(map(str, shape))}); got "
                f"{chosen[name].shape}" + (", grouped by chain: pass `mcmc.get_samples()`." if by_chain else ".")
            )
    return chosen
