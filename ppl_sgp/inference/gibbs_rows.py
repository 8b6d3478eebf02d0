"""Rows that are Gaussian given latent variables: what a Gibbs sampler with weights marginalised asks of them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

from .._internal import checks
from .._internal.pytree import rebuild
from ..bases.basis import Basis
from ..likelihoods import Likelihood
from ..priors import WeightPrior
from ..sites.compressed_normal import CompressedNormal
from ..sites.sparse_gp import SparseGP
from ..sites.tracing import is_latent, observed_sites
from ..statistics.moments import describe
from ..statistics.statistics import SufficientStatistics
from .slice_sampling import each_in_turn

#: The site of the weights among the draws.
WEIGHTS = "weights"


class Sweep(NamedTuple):
    """What a sweep knows when it comes to the rows: the model at the hyperparameters just drawn.

    :ivar prior: of the weights.
    :ivar noise_scale: of the Gaussian rows.
    :ivar weights: a draw given these, shape (m,).
    """

    prior: WeightPrior
    noise_scale: jax.Array
    weights: jax.Array


class GibbsRows(abc.ABC):
    """Rows of any likelihood with latent variables given which they are Gaussian: what :class:`AugmentedGibbs` runs on.

    Pytree dataclasses; ``latent`` is a pytree of arrays.

    :ivar template: statistics of the rows at some values of the latent variables.
    :ivar y: outcomes, as the likelihood has them.
    :ivar offset: known parts of the predictors, shape (n,).
    :ivar prior_loc: prior means of its free parameters, coordinates on the real line, shape (p,).
    :ivar prior_scale: their prior standard deviations, shape (p,).
    """

    template: SufficientStatistics
    y: Any
    offset: Any
    prior_loc: Any
    prior_scale: Any

    @abc.abstractmethod
    def start(self, key: jax.Array) -> Any:
        """First values of the latent variables."""

    @abc.abstractmethod
    def statistics(self, latent: Any) -> SufficientStatistics:
        """Of the Gaussian rows given the latent variables: what the model is given. Usable under ``jit``."""

    @abc.abstractmethod
    def updated(self, key: jax.Array, latent: Any, sweep: Sweep) -> Any:
        """Latent variables drawn anew, in a way that leaves their joint posterior with all else as it is."""

    @abc.abstractmethod
    def recorded(self, latent: Any) -> dict[str, jax.Array]:
        """Of the latent variables what goes among the draws, by name."""

    @abc.abstractmethod
    def outcomes(self, key: jax.Array, weights: jax.Array, noise_scale: jax.Array, parameters: jax.Array) -> jax.Array:
        """Outcomes drawn given weights (m,), noise and parameters (p,), in the shape of ``y``."""

    @property
    @abc.abstractmethod
    def likelihood(self) -> Likelihood:
        """The likelihood of outcomes given predictors."""

    @property
    def num_rows(self) -> int:
        """The number of rows n."""
        return self.offset.shape[0]

    @property
    def basis(self) -> Basis:
        """The basis that the weights among the draws belong to."""
        return self.template.basis

    def _with_outputs(self, y: Any) -> Any:
        """The same rows with other outcomes, which are not checked: for simulation studies."""
        return rebuild(type(self), {**vars(self), "y": y})

    def _parameters(self, key: jax.Array, eta: jax.Array, parameters: jax.Array) -> jax.Array:
        """Free parameters given predictors (n,), one after the other. A few O(n) each; nothing if there are none."""
        y, loc, scale = (jnp.asarray(part, eta.dtype) for part in (self.y, self.prior_loc, self.prior_scale))

        def log_likelihood(parameters: jax.Array) -> jax.Array:
            return jnp.sum(self.likelihood.log_prob(eta, y, parameters))

        return each_in_turn(key, parameters, loc, scale, log_likelihood)

    def _drawn(self, key: jax.Array, f: jax.Array, parameters: jax.Array) -> jax.Array:
        """Outcomes given f at the rows, beside what else ``y`` holds."""
        y = jnp.asarray(self.y, f.dtype)
        distribution = self.likelihood.distribution(f + jnp.asarray(self.offset, f.dtype), parameters, y)
        drawn = distribution.sample(key).astype(f.dtype)
        return drawn if y.ndim == 1 else y.at[:, 0].set(drawn)


def marginal_site(trace: dict[str, Any]) -> tuple[str, SparseGP]:
    """The one observed site of a model, with its name.

    :raises ValueError: if there is none, or another.
    """
    sites = observed_sites(trace)
    name, site = next(iter(sites.items()), ("", None))
    if len(sites) != 1 or not isinstance(site, SparseGP):
        raise ValueError(
            "AugmentedGibbs: the model must have one site made by `sgp.observe`, with the weights marginalised; it has "
            f"{({name: type(site).__name__ for name, site in sites.items()}) or 'none'}."
        )
    return name, site


@dataclasses.dataclass(frozen=True)
class ExplicitWeights:
    """A model of statistics as one of rows that keeps its weights, the model of the draws of :class:`AugmentedGibbs`.

    Its sites are those of the model, and ``weights``. What follows from draws takes it for a model of Gaussian rows
    whose weights were sampled: :func:`~ppl_sgp.predict` and :func:`~ppl_sgp.to_arviz` with the rows as data.

    :param model: of statistics, observed once by :func:`~ppl_sgp.observe`.
    """

    model: Callable[..., Any]

    def __call__(self, rows: GibbsRows, *rest: Any, **kwargs: Any) -> None:
        """Sample hyperparameters and weights, and observe."""
        with handlers.block(hide_fn=_stands_for_rows), handlers.trace() as trace:
            self.model(rows.template, *rest, **kwargs)
        name, site = marginal_site(trace)
        prior = site.prior.sized(rows.template.num_weights)
        weights = numpyro.sample(WEIGHTS, prior.distribution())
        noise_scale = site.noise_scale if site.statistics.has_noise else None
        observed = CompressedNormal(site.statistics, weights, noise_scale)
        numpyro.sample(name, observed, obs=observed.observed)


def _stands_for_rows(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and site["is_observed"] and bool(observed_sites({site["name"]: site}))


def simulated(
    model: Callable[..., Any], rows: GibbsRows, key: jax.Array, count: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Draws of the joint prior of all that is drawn, by site, and outcomes drawn given each, shape (count, …).

    :param model: of statistics, all of whose priors are proper.
    """

    def one(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        key_model, key_weights, key_parameters, key_outcomes = jax.random.split(key, 4)
        trace = handlers.trace(handlers.seed(model, key_model)).get_trace(rows.template)
        _, site = marginal_site(trace)
        weights = site.prior.sized(rows.template.num_weights).distribution().sample(key_weights)
        loc, scale = (jnp.asarray(part, weights.dtype) for part in (rows.prior_loc, rows.prior_scale))
        parameters = loc + scale * jax.random.normal(key_parameters, loc.shape, loc.dtype)
        truth = {name: each["value"] for name, each in trace.items() if is_latent(each)}
        truth |= {WEIGHTS: weights, **rows.likelihood.constrained(parameters)}
        return truth, rows.outcomes(key_outcomes, weights, site.noise_scale, parameters)

    return jax.jit(jax.vmap(one))(jax.random.split(key, count))


def require_constant_priors(traces: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Refuse priors that change with the latent variables: their product would be no posterior of anything.

    :param traces: of the model at one value of its sites, given other latent variables. Where they cannot be read
        nothing is refused.
    """
    first, second = traces
    for name, site in first.items():
        if is_latent(site):
            left, right = (jnp.sum(each[name]["fn"].log_prob(each[name]["value"])) for each in traces)
            _require_equal(left, right, f"the prior of {name!r}")
    of_weights = [jax.tree.leaves(marginal_site(each)[1].prior) for each in (first, second)]
    for left, right in zip(*of_weights, strict=True):
        _require_equal(left, right, "the prior of the weights")


def _require_equal(left: Any, right: Any, what: str) -> None:
    if checks.is_concrete(left, right) and not jnp.allclose(left, right, rtol=1e-4, atol=1e-4):
        raise ValueError(
            f"AugmentedGibbs: {what} depends on sums over the rows, which latent variables change in every sweep. Use "
            "a model whose priors do not."
        )


def checked_rows(
    basis: Basis, X: Any, y: Any, likelihood: Any, offset: Any, owner: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Features (n, m), outcomes, offsets (n,) and the description of the inputs, of rows that are what they should be.

    :raises ValueError: for shapes that do not fit, or entries that are not finite or outside the support.
    """
    if not isinstance(likelihood, Likelihood) or likelihood.num_latents != 1:
        raise ValueError(
            f"{owner}: `likelihood` must be one of `sgp.likelihoods` with one predictor a row, such as "
            f"`sgp.likelihoods.Bernoulli()`; got {likelihood!r}."
        )
    X = checks.finite_inputs(X, basis.input_dim, owner)
    y = likelihood.check(y, owner=owner)
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    offset = np.zeros(len(X)) if offset is None else checks.host_numbers("offset", offset, owner).astype(np.float64)
    if offset.shape != (len(X),):
        raise ValueError(f"{owner}: `offset` must have shape ({len(X)},), a number a row; got {offset.shape}.")
    checks.require_finite("offset", offset, owner)
    Phi = basis.host_features(X)
    return Phi, y, offset, describe(X, np.zeros(len(X)), None)


def prior_of_parameters(likelihood: Likelihood, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prior means and standard deviations of free parameters, shape (p,) each."""
    free = likelihood.free_parameters(y)
    loc, scale = (np.array([getattr(each, part) for each in free], dtype=np.float64) for part in ("loc", "scale"))
    return loc, scale
