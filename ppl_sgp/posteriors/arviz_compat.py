"""All access to ArviZ: 0.23's ``InferenceData`` on Python 3.11, 1.x's ``DataTree`` from 3.12 on."""

from __future__ import annotations

import types
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr
from numpyro.infer import MCMC
from scipy.special import logsumexp

from .runs import Run

#: Up to here importance weights can be relied on, given enough draws (Vehtari et al. 2024).
LARGEST_K = 0.7
#: A tail that a Pareto distribution is fitted to has a fifth of the draws, and five at least.
LEAST_DRAWS = 25


def arviz() -> ModuleType:
    """ArviZ, imported when first needed; 0.23's announcement of 1.0 is not the user's concern."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning)
        import arviz
    return arviz


#: Names that ArviZ gives to the dimensions of draws.
RESERVED = ("chain", "draw")


def container_of(run: Run, coords: dict[str, Any], dims: dict[str, list[str]] | None, features: dict[str, Any]) -> Any:
    """Posterior and sample statistics of a run, without the compressed data ArviZ finds in the model.

    ``features`` are further coordinates of the posterior, for variables over features.

    :raises ValueError: for sites named as ArviZ names its dimensions.
    """
    clash = [name for name in run.by_chain if name in RESERVED]
    if clash:
        raise ValueError(
            f"to_arviz: ArviZ keeps the names {clash} for its dimensions. Rename these sites of the model."
        )
    known = run.dims if run.model is None else None
    container = arviz().from_numpyro(_Finished(run), log_likelihood=False, coords=coords, dims=dims or known)
    for group in ("observed_data", "log_likelihood"):
        if group in groups(container):
            del container[group]
    if features and run.by_chain and "feature" in container["posterior"].dims:
        attach(container, {"posterior": taken(container, "posterior").assign_coords(features)})
    return container


def site_dims(run: Run) -> dict[str, list[str]]:
    """Names of the dimensions of each site of a run, after those of chains and draws."""
    if not run.by_chain:
        return {}
    posterior = container_of(run, {}, None, {})["posterior"]
    return {str(name): [str(dim) for dim in posterior[name].dims[2:]] for name in posterior.data_vars}


class _Finished(MCMC):
    """A finished run as ArviZ reads it from a NumPyro ``MCMC``, whose own ``__init__`` would set up another."""

    def __init__(self, run: Run) -> None:
        self.num_chains = run.num_chains
        self.num_samples = run.num_draws
        self.thinning = 1
        self.sampler = types.SimpleNamespace(model=run.model)
        self._args = (run.data,)
        self._kwargs: dict[str, Any] = {}
        self._run = run

    def get_samples(self, group_by_chain: bool = False) -> dict[str, Any]:
        """Draws by chain, whatever is asked for: ArviZ takes no others."""
        return self._run.by_chain

    def get_extra_fields(self, group_by_chain: bool = False) -> dict[str, Any]:
        """Extra fields by chain."""
        return self._run.extra


def groups(container: Any) -> list[str]:
    """Names of the groups of a container, of either kind."""
    if isinstance(container, xr.DataTree):
        return list(container.children)
    return list(container.groups())


def taken(container: Any, name: str) -> xr.Dataset:
    """A group of a container of either kind, taken out of it; empty if there is none."""
    if name not in groups(container):
        return xr.Dataset()
    group = container[name]
    dataset = group.to_dataset() if isinstance(container, xr.DataTree) else group
    del container[name]
    return dataset


def attach(container: Any, datasets: dict[str, xr.Dataset]) -> Any:
    """Add groups to a container, of either kind."""
    if isinstance(container, xr.DataTree):
        for name, dataset in datasets.items():
            container[name] = xr.DataTree(dataset)
        return container
    if datasets:
        container.add_groups(datasets)
    return container


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
    result[:, varies] = pareto_smoothed(-log_density.T[varies])[0].T
    return result


def pareto_smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed log weights (cases, draws), normalised over draws, and tail indices (cases,).

    Vehtari et al. 2024. Ratios that are all the same have the lightest of tails, −∞.

    :param log_ratios: log importance ratios, shape (cases, draws), at least ``LEAST_DRAWS`` draws.
    """
    try:
        from arviz_stats.base import array_stats
    except ImportError:  # ArviZ 0.23
        weights, k = arviz().psislw(log_ratios)
    else:
        weights, k = array_stats.psislw(-log_ratios)  # takes log-likelihoods, and changes their signs itself
    constant = np.ptp(log_ratios, axis=1) == 0
    return weights - logsumexp(weights, axis=1, keepdims=True), np.where(constant, -np.inf, k)


def good_k(num_draws: int) -> float:
    """The tail index up to which importance weights of so many draws are reliable: ``min(1 − 1/log₁₀ S, 0.7)``."""
    return min(1 - 1 / np.log10(num_draws), LARGEST_K)
