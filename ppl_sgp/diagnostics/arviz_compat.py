"""All access to ArviZ: 0.23's ``InferenceData`` on Python 3.11, 1.x's ``DataTree`` from 3.12 on."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import xarray as xr


def arviz() -> ModuleType:
    """ArviZ, imported when first needed; 0.23's announcement of 1.0 is not the user's concern."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning)
        import arviz
    return arviz


def from_mcmc(mcmc: Any, coords: dict[str, Any], dims: dict[str, Any] | None, features: dict[str, Any]) -> Any:
    """Posterior and sample statistics of a NumPyro run, without the compressed data ArviZ finds in the model.

    ``features`` are further coordinates of the posterior, for variables over features.
    """
    container = arviz().from_numpyro(mcmc, log_likelihood=False, coords=coords, dims=dims)
    for group in ("observed_data", "log_likelihood"):
        if group in groups(container):
            del container[group]
    posterior = container["posterior"]
    if features and "feature" in posterior.dims:
        labelled = (posterior.to_dataset() if isinstance(container, xr.DataTree) else posterior).assign_coords(features)
        del container["posterior"]
        attach(container, {"posterior": labelled})
    return container


def groups(container: Any) -> list[str]:
    """Names of the groups of a container, of either kind."""
    if isinstance(container, xr.DataTree):
        return list(container.children)
    return list(container.groups())


def attach(container: Any, datasets: dict[str, xr.Dataset]) -> Any:
    """Add groups to a container, of either kind."""
    if isinstance(container, xr.DataTree):
        for name, dataset in datasets.items():
            container[name] = xr.DataTree(dataset)
        return container
    if datasets:
        container.add_groups(datasets)
    return container
