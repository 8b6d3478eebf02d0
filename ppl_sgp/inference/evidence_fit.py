"""Type-II fits: hyperparameters that maximise evidence × hyper-prior, and starting values for NUTS."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree
from numpyro.infer import init_to_value
from numpyro.infer.util import log_density

from .._internal import checks
from .._internal.compiled import Compiled
from .._internal.random import random_key
from .._internal.shown import Shown
from ..sites.tracing import constrained, draw_once, is_latent, observed_sites, unconstrained, unconstrained_medians
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics
from .curvature import laplace_covariance, laplace_deviations
from .maximise import MISLED, Objective, maximise
from .unsuited_basis import unsuited_basis

#: Draws of each prior whose median is the first start, and further starts if a key is given.
MEDIAN_OF, FURTHER_STARTS = 101, 3

INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True, repr=False)
class EvidenceFit(Shown):
    """What :func:`~ppl_sgp.fit_evidence` found.

    :ivar values: hyperparameters by site name, in their own units.
    :ivar log_evidence: ``log p(y | θ)`` there, in nats, or the bound on it that the model observes; ``nan`` for a model
        that keeps its weights.
    :ivar log_joint: evidence times hyper-prior density, in nats.
    :ivar converged: whether a Newton step from the best end would gain less than 1e-3 nats, or ten times the rounding
        of the density if that is more.
    :ivar message: why the best start ended, and what such a step would gain.
    :ivar num_evaluations: evaluations of the evidence and its gradient, over all starts.
    """

    values: dict[str, Any]
    log_evidence: float
    log_joint: float
    converged: bool
    message: str
    num_evaluations: int

    @property
    def samples(self) -> dict[str, Any]:
        """The point as one draw, for :func:`~ppl_sgp.predict`."""
        return {name: jnp.asarray(value)[None] for name, value in self.values.items()}

    def facts(self) -> dict[str, Any]:
        """The evidence, whether the fit converged, and the values of the sites."""
        values = {name: np.asarray(value) for name, value in self.values.items()}
        return {"log_evidence": self.log_evidence, "converged": self.converged, **values}

    def summary(self, model: Callable[..., Any] | None = None, statistics: Any = None) -> pd.DataFrame:
        """A table of the hyperparameters, a row for each number.

        With ``model`` and ``statistics``, as they were fitted, also their standard deviations by the curvature of the
        density there (Laplace's approximation), in units of the sites: as many Hessian-vector products of the evidence
        as there are numbers. Directions that the density says little of are cut to 1.5 on the unconstrained scale (of
        the logarithm, for what is positive). The maximum must be inside the support.

        :return: a table with ``value`` and, if asked for, ``std``, by the names of sites, ``name[i]`` of vectors.
        :raises ValueError: if only one of the two is given.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 1, 60)[:, None]
            >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
            >>> model = sgp.models.reweighted_basis(scale=np.ones(2))
            >>> sgp.fit_evidence(model, stats).summary(model, stats).columns.tolist()
            ['value', 'std']
        """
        if (model is None) != (statistics is None):
            raise ValueError("summary: pass both `model` and `statistics`, as they were fitted, or neither.")
        columns = {"value": self.values}
        if model is not None:
            columns["std"] = laplace_deviations(model, statistics, self.values)
        return pd.DataFrame({title: _by_number(values) for title, values in columns.items()})

    def init_strategy(self) -> Callable[..., Any]:
        """Starting values for NUTS: ``NUTS(model, init_strategy=fit.init_strategy())``."""
        return init_to_value(values=self.values)

    def inverse_mass_matrix(self, model: Callable[..., Any], statistics: Any) -> np.ndarray:
        """The covariance of hyperparameters by the curvature here, for NUTS to start with where evidences are dear.

        ``NUTS(model, init_strategy=fit.init_strategy(), dense_mass=True, inverse_mass_matrix=...)`` needs few steps a
        draw from the first on. With a warmup of less than some hundred steps add ``adapt_mass_matrix=False``, or
        NumPyro replaces this matrix by an estimate from those few draws. Costs what :meth:`summary` costs. Directions
        that the density says little of are cut to a standard deviation of 1.5.

        :param model: the model that was fitted.
        :param statistics: what it was fitted to.
        :return: shape (D, D), on the unconstrained scale, sites in order of their names, as NumPyro has them.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 1, 60)[:, None]
            >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
            >>> model = sgp.models.reweighted_basis(scale=np.ones(2))
            >>> sgp.fit_evidence(model, stats).inverse_mass_matrix(model, stats).shape
            (1, 1)
        """
        return laplace_covariance(model, statistics, self.values)


def fit_evidence(
    model: Callable[..., Any],
    statistics: SufficientStatistics | Rows | ChunkedRows,
    *,
    key: jax.Array | None = None,
    num_starts: int | None = None,
    max_iterations: int = 500,
    init: dict[str, Any] | None = None,
) -> EvidenceFit:
    """Maximise evidence × hyper-prior over all continuous latent sites of a model (type-II).

    The density is that of the sites in their own units (no Jacobian of the unconstrained scale); supports may depend
    on other sites. SciPy's L-BFGS-B runs from the medians of the priors, which for the ready models come from the
    scale of the data, and from draws of the priors; the best end is returned. Each evaluation costs what an evidence
    costs, of statistics independent of n. Compiled once for a model and data of equal shape.

    Use it to look at a model quickly and to start NUTS. A point understates uncertainty
    (Evans 2022, section 2.3.2); report posteriors from NUTS. Interrupted, it returns the best point so far.

    :param model: a NumPyro model of one argument, the statistics or rows.
    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`; or, for exact GPs and inducing points, from
        :func:`~ppl_sgp.rows`.
    :param key: a JAX random key, which the further starts are drawn with; ``None`` draws the same ones each time.
    :param num_starts: number of starts, the first of them at the medians; default 1, or 4 if a key is given.
    :param max_iterations: iterations allowed for each start.
    :param init: values of all latent sites by name, such as ``.values`` of an earlier fit, where the first start is in
        place of the medians.
    :raises ValueError: if the model has no continuous latent site, no start has a finite density, or a number is not a
        positive integer.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 40), X, y)
        >>> fit = sgp.fit_evidence(sgp.models.fourier_gp(), stats)
        >>> fit.converged, sorted(fit.values), bool(0.05 < fit.values["noise_scale"] < 0.1)
        (True, ['amplitude', 'lengthscale', 'noise_scale'], True)
    """
    if num_starts is None:
        num_starts = 1 if key is None else 1 + FURTHER_STARTS
    checks.whole_number("num_starts", num_starts, 1, "fit_evidence")
    checks.whole_number("max_iterations", max_iterations, 1, "fit_evidence")
    key = None if key is None else random_key(key, "fit_evidence")
    # Of statistics as they are: what models refuse is refused here.
    jax.eval_shape(lambda: _check_sites(draw_once(model, statistics), init))
    fixed = jax.random.key(0)
    keys = jax.random.split(fixed if key is None else key, num_starts)[1:]
    drawn = Compiled(_start, model, 1)
    if init is None:
        first = Compiled(_start, model, MEDIAN_OF)(statistics, fixed)
    else:
        first = Compiled(unconstrained, model)(statistics, init)
    starts = [first, *(drawn(statistics, each) for each in keys)]
    flat, unravel = ravel_pytree(starts[0])
    density = Compiled(_joint_density, model)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = density(statistics, unravel(jnp.asarray(vector, flat.dtype)))
        return float(value), np.asarray(ravel_pytree(gradient)[0], dtype=np.float64)

    objective = Objective(evaluate, float(jnp.finfo(flat.dtype).eps))
    ends, interrupted = [], False
    try:
        for start in starts:
            vector = np.asarray(ravel_pytree(start)[0], dtype=np.float64)
            value, gradient = objective(vector)
            if np.isfinite(value) and np.isfinite(gradient).all():
                ends.append(maximise(objective, vector, max_iterations))
    except KeyboardInterrupt:
        if not np.isfinite(objective.best_value):
            raise
        interrupted = True
    if not np.isfinite(objective.best_value):
        raise ValueError(
            "fit_evidence: the model's density is not finite at any start. Check the priors' scales against the "
            f"data's (output scale {float(statistics.output_scale):.3g}), or try more starts: `num_starts`."
        )
    if interrupted:
        x, log_joint, converged, message = objective.best_x, objective.best_value, False, INTERRUPTED
    else:
        best = max(ends, key=lambda end: end.value)
        x, log_joint, converged = best.x, best.value, best.converged
        message = f"{best.reason}; {best.step}"
    values, evidence = Compiled(_at, model)(statistics, unravel(jnp.asarray(x, flat.dtype)))
    if not converged:
        checks.warn(f"fit_evidence has not converged: {message}. {_remedy(message, flat.dtype)}")
    else:
        unsuited = unsuited_basis(model, statistics, values)
        if unsuited is not None:
            checks.warn(f"fit_evidence: {unsuited}")
    return EvidenceFit(values, float(evidence), log_joint, converged, message, objective.num_evaluations)


def _by_number(values: dict[str, Any]) -> dict[str, float]:
    """Numbers by the name of their site, with their position in it if it has several."""
    numbers = {}
    for name, value in values.items():
        for index, number in np.ndenumerate(np.asarray(value, dtype=np.float64)):
            numbers[name + (f"[{', '.join(map(str, index))}]" if index else "")] = float(number)
    return numbers


def _remedy(message: str, dtype: Any) -> str:
    if message == INTERRUPTED:
        return "This is the best point so far."
    if message.startswith("the iteration limit"):
        return "Raise `max_iterations`."
    if message.startswith(MISLED):
        return (
            "Part of the model is not differentiable, or its derivative is stopped: a rounding, a comparison, "
            "`jax.lax.stop_gradient`. NUTS needs gradients as well: make it smooth, or hold that site fixed."
        )
    if dtype != jnp.float64:
        return "Call numpyro.enable_x64() first: its rounding hides what is left to gain."
    return (
        "Rounding hides what is left to gain, as with a noise that is tiny against y: bound it below, such as "
        "`noise_scale=dist.Uniform(1e-3, 1.0)` for y of size one, or take the statistics with `method='qr'`."
    )


def _check_sites(trace: dict[str, Any], init: dict[str, Any] | None) -> None:
    sites = {name: site for name, site in trace.items() if is_latent(site)}
    discrete = [name for name, site in sites.items() if site["fn"].is_discrete]
    if discrete:
        raise ValueError(f"fit_evidence needs continuous latent sites; {discrete} are discrete.")
    if not sites:
        raise ValueError(
            "fit_evidence needs continuous latent sites; there are none. Where all hyperparameters are fixed, "
            "`sgp.posterior(model, {}, statistics)` predicts."
        )
    missing = [] if init is None else sorted(set(sites) - set(init))
    if missing:
        raise ValueError(f"fit_evidence: `init` must have a value for each latent site; {missing} are missing.")


def _start(model: Callable[..., Any], num_draws: int, statistics: Any, key: jax.Array) -> dict[str, jax.Array]:
    return unconstrained_medians(model, statistics, key, num_draws)


def _density(model: Callable[..., Any], statistics: Any, z: dict[str, Any]) -> tuple[jax.Array, dict[str, Any]]:
    """Log density of the sites in their own units at unconstrained values, and the sites."""
    return log_density(constrained(model, z), (statistics,), {}, {})


def _joint_density(model: Callable[..., Any], statistics: Any, z: dict[str, Any]) -> Any:
    """Density of the sites in their own units at unconstrained values, and its gradient in these."""
    return jax.value_and_grad(lambda z: _density(model, statistics, z)[0])(z)


def _at(model: Callable[..., Any], statistics: Any, z: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    """Values of the sites at unconstrained values, and the log evidence there."""
    trace = _density(model, statistics, z)[1]
    sites = observed_sites(trace).values()
    parts = [jnp.sum(fn.log_prob(fn.observed) + fn.beside_density) for fn in sites if fn.is_evidence]
    values = {name: trace[name]["value"] for name in z}
    return values, jnp.sum(jnp.stack(parts)) if parts else jnp.asarray(jnp.nan)
