"""Log densities of the draws: of each latent site under its prior, and of the data given the hyperparameters.

What power scaling needs (Kallioinen et al. 2024, Detecting and diagnosing prior and likelihood sensitivity with
power-scaling). Leave-one-out densities do not sum to the log evidence: rows of a Gaussian process are dependent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from ..sites.tracing import is_improper
from ..statistics.statistics import SufficientStatistics
from .draws import checked_samples, num_draws


def log_prior(
    model: Callable[..., Any], samples: dict[str, Any], statistics: SufficientStatistics, *, site: str | None = None
) -> dict[str, np.ndarray]:
    """Log density of each latent site under its prior, at each draw. Costs what the model costs without the evidence.

    The density is that of the site in its own units, given the sites that its prior depends on, in nats; summed over
    the elements of the site. Improper priors have none and are left out.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param site: name of the observed site, if the model has several.
    :return: by name of the site, shape (draws,).
    :raises ValueError: if ``samples`` lack a latent site, or arguments do not fit.

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> import numpyro.distributions as dist
        >>> from ppl_sgp.posteriors.log_prior import log_prior
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
        >>> model = sgp.models.reweighted_basis(scale=dist.Exponential(2.0), noise_scale=0.1)
        >>> log_prior(model, {"scale": jnp.array([1.0, 2.0])}, stats)["scale"].round(3).tolist()  # log 2 - 2 scale
        [-1.307, -3.307]
    """
    checked, _ = checked_samples(model, samples, statistics, site)

    def at(densities: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
        return {name: densities[name] for name in checked if not is_improper(trace[name]["fn"])}

    return _at_each_draw(at, model, checked, statistics)


def log_evidence_draws(
    model: Callable[..., Any], samples: dict[str, Any], statistics: SufficientStatistics, *, site: str | None = None
) -> np.ndarray:
    """Log density of the data given each draw of the hyperparameters, in nats: the likelihood of a collapsed model.

    Summed over outputs. For a model that keeps its weights it is that of the data given these. Costs an evidence a
    draw.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param site: name of the observed site, if the model has several; only its density is given.
    :return: shape (draws,).
    :raises ValueError: if ``samples`` lack a latent site, or arguments do not fit.

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> from ppl_sgp.posteriors.log_prior import log_evidence_draws
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
        >>> model = sgp.models.reweighted_basis(noise_scale=0.1)
        >>> values = log_evidence_draws(model, {"scale": jnp.ones(2)}, stats)
        >>> bool(abs(values[1] - sgp.log_evidence(stats, sgp.DiagonalPrior(jnp.ones(2)), 0.1)) < 1e-3)
        True
    """
    checked, name = checked_samples(model, samples, statistics, site)
    return _at_each_draw(lambda densities, _: densities[name], model, checked, statistics)


def _at_each_draw(
    function: Callable[..., Any], model: Callable[..., Any], checked: dict[str, np.ndarray], statistics: Any
) -> Any:
    """``function`` of the log densities and of the trace of all sites, at each draw, in float64 NumPy."""
    count = num_draws(checked)
    seeded = handlers.seed(model, jax.random.key(0))

    def at(draw: dict[str, Any]) -> Any:
        result = function(*compute_log_probs(seeded, (statistics,), {}, draw))
        return jax.tree.map(jnp.asarray, result)

    values = jax.jit(lambda draws: jax.lax.map(at, draws))(checked)
    return jax.tree.map(lambda each: np.asarray(each, dtype=np.float64).reshape(count), values)
