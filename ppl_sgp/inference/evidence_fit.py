"""Type-II fits: hyperparameters that maximise evidence × hyper-prior, and starting values for NUTS."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import init_to_value
from numpyro.infer.util import log_density
from scipy.optimize import minimize

from .._internal import checks
from .._internal.random import random_key
from ..evidence import log_evidence
from ..posteriors.draws import compressed_sites
from ..sites.tracing import draw_once, is_improper
from ..statistics.statistics import SufficientStatistics


@dataclasses.dataclass(frozen=True)
class EvidenceFit:
    """What :func:`~ppl_sgp.fit_evidence` found.

    :ivar values: hyperparameters by site name, in their own units.
    :ivar log_evidence: ``log p(y | θ)`` there, in nats; ``nan`` for a model without a ``SparseGP`` site.
    :ivar log_joint: evidence times hyper-prior density, in nats.
    :ivar converged: whether the best start satisfied the optimiser's tolerance.
    :ivar message: the optimiser's reason to stop.
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

    def init_strategy(self) -> Callable[..., Any]:
        """Starting values for NUTS: ``NUTS(model, init_strategy=fit.init_strategy())``."""
        return init_to_value(values=self.values)


def fit_evidence(
    model: Callable[..., Any],
    statistics: SufficientStatistics,
    *,
    key: jax.Array | None = None,
    num_starts: int = 4,
    max_iterations: int = 500,
) -> EvidenceFit:
    """Maximise evidence × hyper-prior over all continuous latent sites of a model (type-II).

    The density is that of the sites in their own units (no Jacobian of the unconstrained scale).
    SciPy's L-BFGS-B runs from the medians of the priors, which for the ready models come from the
    scale of the data, and from ``num_starts − 1`` draws of the priors; the best end is returned.
    Each evaluation costs what an evidence costs, independent of n.

    Use it to look at a model quickly and to start NUTS. A point understates uncertainty
    (Evans 2022, section 2.3.2); report posteriors from NUTS.

    :param model: a NumPyro model of one argument, the statistics.
    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param key: a JAX random key, for the further starts; ``None`` uses the medians only.
    :param num_starts: number of starts if a key is given.
    :param max_iterations: iterations allowed for each start.
    :raises ValueError: if the model has no continuous latent site, or no start has a finite density.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 40), X, y)
        >>> fit = sgp.fit_evidence(sgp.models.fourier_gp(), stats)
        >>> fit.converged, sorted(fit.values), bool(0.05 < fit.values["noise_scale"] < 0.1)
        (True, ['amplitude', 'lengthscale', 'noise_scale'], True)
    """
    checks.whole_number("num_starts", num_starts, 1, "fit_evidence")
    checks.whole_number("max_iterations", max_iterations, 1, "fit_evidence")
    key = None if key is None else random_key(key, "fit_evidence")
    sites = _latent_sites(model, statistics)
    starts = [_start(sites, None)]
    if key is not None:
        starts += [_start(sites, k) for k in jax.random.split(key, num_starts - 1)] if num_starts > 1 else []
    flat, unravel = ravel_pytree(starts[0])
    transforms = {name: biject_to(site["fn"].support) for name, site in sites.items()}

    def constrained(vector):
        return {name: transforms[name](value) for name, value in unravel(vector).items()}

    def negative(vector):
        return -log_density(model, (statistics,), {}, constrained(vector))[0]

    evaluate = jax.jit(jax.value_and_grad(negative))

    def objective(vector):
        value, gradient = evaluate(jnp.asarray(vector, flat.dtype))
        return float(value), np.asarray(gradient, dtype=np.float64)

    ends = []
    for start in starts:
        x0 = np.asarray(ravel_pytree(start)[0], dtype=np.float64)
        if np.isfinite(objective(x0)[0]):
            # float32 cannot resolve SciPy's default tolerance, and would be reported as a failure.
            tolerance = {"ftol": 10 * float(jnp.finfo(flat.dtype).eps), "maxiter": max_iterations}
            ends.append(minimize(objective, x0, jac=True, method="L-BFGS-B", options=tolerance))
    if not ends:
        raise ValueError(
            "fit_evidence: the model's density is not finite at any start. Check the priors' scales against the "
            f"data's (output scale {float(statistics.output_scale):.3g}), or pass `key` for more starts."
        )
    best = min(ends, key=lambda end: end.fun)
    values = constrained(jnp.asarray(best.x, flat.dtype))
    if not best.success:
        checks.warn(f"fit_evidence has not converged: {best.message}. Raise `max_iterations` or rescale the data.")
    return EvidenceFit(
        values=values,
        log_evidence=_log_evidence_at(model, statistics, values),
        log_joint=-float(best.fun),
        converged=bool(best.success),
        message=str(best.message),
        num_evaluations=sum(end.nfev for end in ends),
    )


def _latent_sites(model: Callable[..., Any], statistics: SufficientStatistics) -> dict[str, Any]:
    trace = draw_once(model, statistics)
    sites = {name: s for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    discrete = [name for name, site in sites.items() if site["fn"].is_discrete]
    if discrete or not sites:
        found = f"{discrete} are discrete" if discrete else "there are none"
        raise ValueError(f"fit_evidence needs continuous latent sites; {found}.")
    return sites


def _start(sites: dict[str, Any], key: jax.Array | None) -> dict[str, jax.Array]:
    """Unconstrained values: the median of 101 prior draws (as NumPyro's ``init_to_median``), or one draw.

    A site with an improper prior starts where NumPyro would start it.
    """
    draws, count = {}, 101 if key is None else 1
    keys = jax.random.split(jax.random.key(0) if key is None else key, len(sites))
    for site_key, (name, site) in zip(keys, sites.items(), strict=True):
        fn = site["fn"]
        value = site["value"] if is_improper(fn) else jnp.median(fn.sample(site_key, (count,)), axis=0)
        draws[name] = biject_to(fn.support).inv(value)
    return draws


def _log_evidence_at(model: Callable[..., Any], statistics: SufficientStatistics, values: dict[str, Any]) -> float:
    substituted = handlers.seed(handlers.substitute(model, values), jax.random.key(0))
    sites = compressed_sites(handlers.trace(substituted).get_trace(statistics))
    parts = [log_evidence(fn.statistics, fn.prior, fn.noise_scale) for fn in sites.values() if hasattr(fn, "prior")]
    return float(sum(jnp.sum(part) for part in parts)) if parts else float("nan")
