"""What SVGP returns."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from ..likelihoods.likelihood import Likelihood
from ..posteriors.inducing import InducingPrediction
from .driver import Training
from .function_fit import FunctionFit
from .functions import VariationalFunctions
from .point_posterior import PointPosteriors
from .svgp_step import PointProblem, State, roots_at


@pytree_dataclass
class VariationalPoints(VariationalFunctions):
    """A Gaussian ``q(v) = N(loc, root rootᵀ)`` of K functions at m whitened inducing points.

    :ivar kernels: the kernels of S draws, leaves stacked.
    :ivar points: (m, d).
    :ivar inverses: ``L⁻¹`` of the covariance at the points at each draw, (S, m, m).
    :ivar loc: (K, m).
    :ivar root: triangular, (K, m, m).
    :ivar level: what predictors have beside f, (K,).

    The others are of ``VariationalFunctions``.
    """

    _prediction_kind = InducingPrediction

    kernels: Kernel
    points: Any
    inverses: Any
    loc: Any
    root: Any
    level: Any
    likelihood: Likelihood
    parameters: Any
    values: tuple[Any, ...]
    objective_trace: Any
    held_out_trace: Any
    names: tuple[str, ...] = static()
    reason: str = static(default="")

    def functions(self) -> PointPosteriors:
        """The posteriors of f, a draw each."""
        noise = self.noise_scale if self.is_gaussian else np.ones(self.num_draws)
        return PointPosteriors(
            self.kernels, self.points, self.inverses, (self.loc, self.root), noise, np.asarray(self.level)
        )

    def facts(self) -> dict[str, Any]:
        """What it is a posterior of."""
        return {"num_points": len(self.points), **super().facts()}


@dataclasses.dataclass(frozen=True, repr=False)
class SVGPFit(FunctionFit):
    """What :func:`~ppl_sgp.stochastic.svgp` found.

    :ivar evaluated: the bound over all rows, in nats; ``None`` where it was not evaluated.
    """

    evaluated: float | None

    @property
    def bound(self) -> float:
        """The bound over all rows, in nats, or where it was not evaluated, the mean of the last estimates.

        With ``hyperparameters="normal"`` it is less their divergence from the prior, on average over draws.
        """
        return super().bound if self.evaluated is None else self.evaluated

    @property
    def bound_trace(self) -> np.ndarray:
        """Estimates of the bound, one a step, in nats, (t,)."""
        return self.objective_trace

    @property
    def coordinates(self) -> np.ndarray:
        """Hyperparameters on the real line, logarithms and coordinates of the likelihood, (S, P)."""
        named, own = self.samples, np.asarray(self.posterior.parameters)
        return np.concatenate([np.log(named["lengthscale"]), np.log(named["amplitude"])[:, None], own], axis=1)


def draws_of(problem: PointProblem, adam: Any, state: State, key: jax.Array, num_draws: int) -> jax.Array:
    """Coordinates of hyperparameters, (S, P): draws, or the point."""
    parameters = adam.get_params(state.optimiser)
    if "log_spread" not in parameters:
        return parameters["hyper"][None]
    z = jax.random.normal(key, (num_draws, *parameters["hyper"].shape))
    return parameters["hyper"][None] + jnp.exp(parameters["log_spread"])[None] * z


def posterior_of(
    problem: PointProblem,
    adam: Any,
    state: State,
    key: jax.Array,
    num_draws: int,
    training: Training[State] | None = None,
) -> VariationalPoints:
    """The posterior at a state, with what a training recorded."""
    parameters = adam.get_params(state.optimiser)
    draws = draws_of(problem, adam, state, key, num_draws)
    kernels, inverses = roots_at(problem, parameters, draws)
    q = state.natural.whitened()
    named = problem.coordinates.by_name(np.asarray(draws), problem.likelihood)
    of_likelihood = jax.vmap(problem.coordinates.parameters)(draws)
    kernels, points, inverses, loc, root, level = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64),
        (kernels, problem.points_at(parameters), inverses, q.loc, q.root, problem.level),
    )
    posterior = VariationalPoints(
        kernels,
        points,
        inverses,
        loc,
        root,
        level,
        problem.likelihood,
        np.asarray(of_likelihood, np.float64),
        tuple(named.values()),
        np.zeros(0) if training is None else training.estimates,
        np.zeros((0, 2)) if training is None else training.held_out,
        tuple(named),
        "" if training is None else training.reason,
    )
    return posterior
