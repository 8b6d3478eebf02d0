"""What plots need of ArviZ, of either release line."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from ..diagnostics.arviz_compat import arviz, groups

#: Up to here importance weights can be relied on, given enough draws (Vehtari et al. 2024).
LARGEST_K = 0.7
#: A tail that a Pareto distribution is fitted to has a fifth of the draws, and five at least.
LEAST_DRAWS = 25


def pareto_k(source: Any, site: str | None, owner: str) -> tuple[np.ndarray, float]:
    """Tail indices of the importance weights of each row, flat, and up to where they are good.

    :param source: ArviZ's container, the result of ``az.loo(..., pointwise=True)``, or an array.
    :param site: the variable of the container's log-likelihood, if there are several.
    """
    if isinstance(source, (np.ndarray, xr.DataArray, list, tuple)):
        return np.ravel(np.asarray(source, dtype=np.float64)), LARGEST_K
    result = source
    if isinstance(source, xr.DataTree) or callable(getattr(source, "groups", None)):
        if "log_likelihood" not in groups(source):
            raise ValueError(
                f"{owner}: the container has no group 'log_likelihood'. Make it with `sgp.to_arviz(mcmc, stats, X=X, "
                "y=y)`."
            )
        result = arviz().loo(source, pointwise=True, var_name=site)
    values = getattr(result, "pareto_k", None)
    if values is None:
        raise ValueError(
            f"{owner} needs what `sgp.to_arviz` returns, the result of `az.loo(..., pointwise=True)`, or an array of "
            f"tail indices; got {type(source).__name__} without them."
        )
    return np.ravel(np.asarray(values, dtype=np.float64)), float(result.good_k)


def smoothed_log_weights(log_density: np.ndarray, owner: str) -> np.ndarray:
    """Logarithms of Pareto-smoothed importance weights that leave each row out, normalised over draws.

    Where all draws give the same density, as that of one estimate does, all weights are the same.

    :param log_density: log p(y_i given θ_s and, if rows are dependent given θ, the other rows), shape (draws, rows).
    """
    num_draws = len(log_density)
    result = np.full(log_density.shape, -np.log(num_draws))
    varies = np.ptp(log_density, axis=0) > 0
    if not varies.any():
        return result
    if num_draws < LEAST_DRAWS:
        raise ValueError(
            f"{owner}: {num_draws} draws are too few to smooth importance weights; pass {LEAST_DRAWS} or more, better "
            "hundreds."
        )
    rows = log_density.T[varies]
    try:
        from arviz_stats.base import array_stats
    except ImportError:  # ArviZ 0.23
        weights = arviz().psislw(-rows)[0]
    else:
        weights = array_stats.psislw(rows)[0]  # takes log-likelihoods, and changes their signs itself
    result[:, varies] = weights.T - logsumexp(weights, axis=1)
    return result
