"""From posterior draws to ArviZ, with pointwise quantities that mean what ArviZ takes them for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from .._internal.random import random_key
from ..grids.grid import Grid
from ..statistics.grouped import GroupedStatistics
from .arviz_compat import attach, container_of, taken
from .observed_data import COMPRESSED, rows_in_memory

if TYPE_CHECKING:
    from .posterior import Posterior

#: What to collect while sampling so that ``sample_stats`` is complete:
#: ``mcmc.run(key, stats, extra_fields=sgp.EXTRA_FIELDS)``.
EXTRA_FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob")

#: The dimension of rows of leave-one-out densities, labelled by the coordinate ``obs``. They do not sum to the log
#: likelihood, and ArviZ's functions that would sum them (power scaling) stack all rows on a new dimension of this name:
#: they refuse, and ``az.loo`` does not mind.
NO_LIKELIHOOD = "latent-obs_var"


def container(
    posterior: Posterior,
    X: Any = None,
    y: Any = None,
    X_new: Any = None,
    *,
    row_weights: Any = None,
    row_weights_new: Any = None,
    offset: Any = None,
    of_new: dict[str, Any] | None = None,
    predictive: bool = True,
    log_likelihood: str = "leave_one_out",
    key: jax.Array | None = None,
    coords: dict[str, Any] | None = None,
    dims: dict[str, list[str]] | None = None,
) -> Any:
    """The container of :meth:`Posterior.to_arviz`, which documents it."""
    of_rows = not isinstance(posterior.data, COMPRESSED)
    if of_rows:
        X, y, row_weights = _known_rows(posterior.data, X, y, row_weights)
    if (X is None) != (y is None):
        raise ValueError("to_arviz: pass both `X` and `y` of the training rows, or neither.")
    if X is None and row_weights is not None:
        raise ValueError(
            "to_arviz: `row_weights` are those of the training rows; pass `X` and `y` too, or leave them out."
        )
    if X_new is None and row_weights_new is not None:
        raise ValueError("to_arviz: `row_weights_new` are those of new rows; pass `X_new` too, or leave them out.")
    of_new = {"row_weights": row_weights_new, **(of_new or {})}
    if log_likelihood not in ("leave_one_out", "evidence"):
        raise ValueError(f"to_arviz: `log_likelihood` must be 'leave_one_out' or 'evidence'; got {log_likelihood!r}.")
    data = posterior.data
    features = dict(data.basis.feature_coords) if isinstance(data, COMPRESSED) else {}
    names = {"feature": features.pop("feature")} if features else {}
    if isinstance(data, GroupedStatistics):
        if y is not None and np.isnan(np.asarray(y, dtype=np.float64)).any():
            raise ValueError(
                "to_arviz: `y` has outputs that are not known, and ArviZ's functions take no NaN. Leave `X` and `y` "
                "out (new inputs may be predicted as `X_new`), and take densities from `leave_one_out(X, y)`."
            )
        names["output"] = list(data.names)
    if isinstance(data, Grid):
        names["input"] = data.columns
    coords = {**names, **{k: v for k, v in _default_coords(X, X_new).items() if k not in names}, **(coords or {})}
    result = container_of(posterior.run, coords, dims, features)
    keys = jax.random.split(posterior.run.key if key is None else random_key(key, "to_arviz"), 2)
    groups = _Groups(posterior, coords)
    datasets: dict[str, xr.Dataset] = {}
    if X is not None:
        # Leaving a cell out solves a system: not where nothing asks for it.
        if not (isinstance(data, Grid) and log_likelihood == "evidence"):
            pointwise = posterior.leave_one_out(X, y, row_weights=row_weights, offset=offset)
            left_out = groups.by_draw(pointwise, "obs")
            if posterior.outcomes is not None and posterior.outcomes.rows_are_independent:
                datasets["log_likelihood"] = left_out.assign_attrs(quantity="log likelihood of each row given the draw")
            else:
                quantity = "leave-one-out densities log p(y_i | y_-i, theta)"
                datasets["log_likelihood"] = left_out.rename_dims(obs=NO_LIKELIHOOD).assign_attrs(quantity=quantity)
        if predictive:
            known = {"row_weights": row_weights, "offset": offset}
            if posterior.outcomes is not None:
                known["given"] = posterior.outcomes.known_of(np.asarray(y))
            datasets["posterior_predictive"] = groups.predictive(keys[0], X, "obs", known)
        datasets["observed_data"] = groups.of_rows({posterior.site: y}, "obs")
        datasets["constant_data"] = groups.of_rows({"X": X}, "obs")
    if posterior.run.model is not None:
        log_prior = {name: groups.by_draw(values, "")[posterior.site] for name, values in posterior.log_prior.items()}
        datasets["log_prior"] = xr.Dataset(log_prior)
    if log_likelihood == "evidence":
        evidence = groups.by_draw(posterior.log_evidence, "")
        datasets["log_likelihood"] = evidence.assign_attrs(quantity="log evidence log p(y | theta)")
    if X_new is not None:
        datasets["predictions"] = groups.predictive(keys[1], X_new, "new_obs", of_new)
        datasets["predictions_constant_data"] = groups.of_rows({"X": X_new}, "new_obs")
    if posterior.is_weighted:
        log_weight = groups.by_draw(np.log(posterior.weights), "")[posterior.site]
        datasets["sample_stats"] = taken(result, "sample_stats").assign(log_weight=log_weight)
    return attach(result, datasets)


def _known_rows(data: Any, X: Any, y: Any, row_weights: Any) -> tuple[Any, Any, Any]:
    """The rows, in the form in which they were given again: a table has names for its columns."""
    data = rows_in_memory(data)
    data.require_same(X, y, row_weights, "to_arviz")
    return data.X if X is None else X, data.y if y is None else y, data.row_weights


class _Groups:
    """Datasets of one posterior, labelled."""

    def __init__(self, posterior: Posterior, coords: dict[str, Any]) -> None:
        self._posterior, self._coords = posterior, coords

    def predictive(self, key: jax.Array, X: Any, rows: str, known: dict[str, Any]) -> xr.Dataset:
        """One joint draw of y a posterior draw.

        :param known: what predictions take of rows beside their inputs.
        """
        posterior = self._posterior
        needed = 8 * posterior.num_draws * len(X) * posterior.data.num_outputs
        if needed > posterior.max_memory:
            raise ValueError(
                f"to_arviz: predictive draws would take {needed / 1e9:.1f} GB ({posterior.num_draws} draws of {len(X)} "
                f"rows), over `max_memory` = {posterior.max_memory / 1e9:.1f} GB. Run with a `thinning`, pass "
                "`predictive=False` or fewer new rows (or none: the posterior needs no rows), or raise `max_memory`."
            )
        if rows == "obs" and isinstance(posterior.data, Grid):  # by axis, for any number of cells
            functions: Any = posterior.functions
            return self.by_draw(functions.outcomes_at_cells(key, np.arange(posterior.num_draws)), rows)
        prediction = posterior.predict(X, **known)
        return self.by_draw(prediction.sample_draws(key, np.arange(posterior.num_draws)), rows)

    def by_draw(self, values: np.ndarray, rows: str) -> xr.Dataset:
        """Values of shape (draws, rows, …) by chain."""
        chains = self._posterior.run.num_chains
        by_chain = values.reshape(chains, len(values) // chains, *values.shape[1:])
        names = ("chain", "draw", rows, "output")[: by_chain.ndim]
        labels = {"chain": np.arange(chains), "draw": np.arange(by_chain.shape[1])}
        return xr.Dataset({self._posterior.site: (names, by_chain)}, coords=labels | self._labels(names))

    def of_rows(self, arrays: dict[str, Any], rows: str) -> xr.Dataset:
        """Arrays over rows and columns."""
        data = {}
        for name, values in arrays.items():
            values = np.asarray(values)
            data[name] = ((rows, "input" if name == "X" else "output")[: values.ndim], values)
        return xr.Dataset(data, coords=self._labels({dim for dimensions, _ in data.values() for dim in dimensions}))

    def _labels(self, names: Any) -> dict[str, Any]:
        labels = {name: self._coords[name] for name in names if name in self._coords}
        data = self._posterior.data
        if isinstance(data, Grid) and "obs" in names:  # where on the grid each observed cell is
            labels |= {dim: ("obs", at) for dim, at in data.cell_coords.items() if dim not in ("chain", "draw", "obs")}
        return labels


def _default_coords(X: Any, X_new: Any) -> dict[str, Any]:
    given = next((inputs for inputs in (X, X_new) if inputs is not None), None)
    coords = {rows: np.arange(len(inputs)) for rows, inputs in (("obs", X), ("new_obs", X_new)) if inputs is not None}
    if given is None:
        return coords
    columns = getattr(given, "columns", None)
    return coords | {"input": np.arange(np.shape(given)[1]) if columns is None else [str(c) for c in columns]}
