"""Which features matter, according to draws of their prior variances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from ..evidence.weight_posterior import posterior_factors
from ..posteriors.posterior import posterior
from ..posteriors.site_draws import MarginalParameters
from ..priors import DiagonalPrior
from ..statistics.statistics import SufficientStatistics


def relevance_summary(
    model: Callable[..., Any], samples: dict[str, Any], statistics: SufficientStatistics, *, site: str | None = None
) -> xr.Dataset:
    """How far the data determine each weight, and how probably they do: inclusion, for models that prune nothing.

    Of each draw of the prior variances ``sⱼ²``, ``γⱼ = 1 − Var(wⱼ | y, θ)/sⱼ²`` says how far the data determine weight
    j: 0 if its posterior is its prior, 1 if the prior does not matter (MacKay 1992; Tipping 2001, eq 17). With
    independent features it is one minus the shrinkage factor of Carvalho, Polson & Scott (2010), whose threshold of
    one half is used here. O(m³) a draw. Of features that are nearly alike each may have a small probability though one
    of them is needed: look at ``effective_number`` as well.

    :param model: a model of one output that marginalises independent weights, such as
        :func:`ppl_sgp.models.relevance_vector_machine`. Draws of a Gibbs or whitened run go with the marginal model.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param site: name of the observed site, if the model has several.
    :return: a dataset over ``feature``: ``weight`` and ``weight_sd``, posterior mean and standard deviation of the
        weights; ``determined``, the mean of γ; ``relevance``, the probability of γ > ½; and over ``draw``
        ``effective_number``, the sum of γ. Features of a :class:`~ppl_sgp.CentredBasis` are named, with their
        ``centre``.
    :raises ValueError: for a model that keeps its weights, or whose prior is not diagonal, or of several outputs.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = np.exp(-50 * (X[:, 0] - 0.5) ** 2) + 0.1 * np.cos(77 * X[:, 0])
        >>> basis = sgp.CentredBasis([[0.0], [0.5], [1.0]], sgp.SquaredExponential(0.1), bias=False)
        >>> draws = {"precision": jnp.ones((2, 3)) * jnp.array([1e6, 1.0, 1e6]), "noise_scale": jnp.full(2, 0.1)}
        >>> stats = sgp.sufficient_statistics(basis, X, y)
        >>> summary = sgp.relevance_summary(sgp.models.relevance_vector_machine(), draws, stats)
        >>> summary["relevance"].to_series().to_dict()
        {'centre 0': 0.0, 'centre 1': 1.0, 'centre 2': 0.0}
    """

    parameters = posterior(model, samples, statistics, site=site).parameters()
    marginal = isinstance(parameters, MarginalParameters) and isinstance(parameters.prior, DiagonalPrior)
    if not marginal or statistics.num_outputs > 1:
        raise ValueError(
            "relevance_summary needs a model of one output that marginalises independent weights, by `sgp.observe` "
            "with a DiagonalPrior. Draws of a run that kept its weights go with the marginal model, such as "
            "`sgp.models.relevance_vector_machine()`."
        )
    loc, variance, determined = map(np.asarray, _marginals(statistics, parameters))
    determined = determined.clip(0, 1)
    return xr.Dataset(
        {
            "weight": ("feature", loc.mean(axis=0)),
            "weight_sd": ("feature", np.sqrt(variance.mean(axis=0) + loc.var(axis=0))),
            "determined": ("feature", determined.mean(axis=0)),
            "relevance": ("feature", (determined > 0.5).mean(axis=0)),
            "effective_number": ("draw", determined.sum(axis=1)),
        },
        coords={"draw": np.arange(len(loc)), **statistics.basis.feature_coords},
    )


@jax.jit
def _marginals(
    statistics: SufficientStatistics, parameters: MarginalParameters
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means and variances of each weight at each draw, and how much the data determine it, (S, m) each."""

    def at(each: MarginalParameters) -> tuple[jax.Array, jax.Array, jax.Array]:
        loc, factor = posterior_factors(statistics, each.prior, each.noise_scale)
        variance = factor**2 if factor.ndim == loc.ndim else jnp.sum(factor**2, axis=-1)
        return loc, variance, 1 - variance / each.prior.variance

    return jax.lax.map(at, parameters)
