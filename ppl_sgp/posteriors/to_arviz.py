"""From a NumPyro run to ArviZ, with pointwise quantities that mean what ArviZ takes them for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.random import random_key
from ..statistics.statistics import SufficientStatistics
from .arviz_compat import attach, from_mcmc
from .leave_one_out import leave_one_out
from .predict import predict

#: What to collect while sampling so that ``sample_stats`` is complete:
#: ``mcmc.run(key, stats, extra_fields=sgp.EXTRA_FIELDS)``.
EXTRA_FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob")


def to_arviz(
    mcmc: Any,
    statistics: SufficientStatistics,
    X: Any = None,
    y: Any = None,
    X_new: Any = None,
    *,
    row_weights: Any = None,
    key: jax.Array | None = None,
    coords: dict[str, Any] | None = None,
    dims: dict[str, Any] | None = None,
    site: str | None = None,
    max_memory: float = 2e9,
) -> Any:
    """ArviZ's container for a run: ``InferenceData`` (ArviZ 0.23) or ``DataTree`` (1.x).

    Groups: ``posterior`` and ``sample_stats`` always. With ``X`` and ``y``: ``log_likelihood``, holding the
    *leave-one-out* densities ``log p(y_i | y_-i, θ)`` that ``az.loo`` should be given for a collapsed
    model (:func:`~ppl_sgp.leave_one_out`); ``posterior_predictive``, one joint draw of y a posterior
    draw; ``observed_data``, the real y; ``constant_data``, X. With ``X_new``: ``predictions`` and
    ``predictions_constant_data``. Dimensions are ``obs`` (``new_obs``), ``input`` and, with several
    outputs, ``output``; pass ``coords`` to label them. Column names of a data frame label ``input``. Sites over
    ``feature`` are named by the basis, if it names its features: a :class:`~ppl_sgp.CentredBasis` after its centres,
    whose positions are the coordinate ``centre``.

    :param mcmc: a NumPyro ``MCMC`` after ``run(key, statistics, extra_fields=sgp.EXTRA_FIELDS)``.
    :param statistics: the statistics the model was run on.
    :param X: the training inputs, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q).
    :param X_new: inputs to predict at, shape (n_new, d).
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
    :param key: a JAX random key for predictive draws; default one derived from the run's last state.
    :param coords: labels by dimension.
    :param dims: dimensions by variable, for the model's own sites; default what the model names itself, by plates and
        ``infer={"event_dims": [...]}``.
    :param site: name of the observed site, if the model has several; the name used in all groups.
    :param max_memory: bytes that one group may take; draws times rows beyond it are refused.
    :raises ValueError: if only one of ``X`` and ``y`` is given, or a group would exceed ``max_memory``.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 10), X, y)
        >>> mcmc = MCMC(NUTS(sgp.models.fourier_gp()), num_warmup=20, num_samples=10, progress_bar=False)
        >>> mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
        >>> idata = sgp.to_arviz(mcmc, stats, X=X, y=y)
        >>> dict(idata["log_likelihood"]["y"].sizes)
        {'chain': 1, 'draw': 10, 'obs': 30}
    """
    if (X is None) != (y is None):
        raise ValueError("to_arviz: pass both `X` and `y` of the training rows, or neither.")
    if X is None and row_weights is not None:
        raise ValueError(
            "to_arviz: `row_weights` are those of the training rows; pass `X` and `y` too, or leave them out."
        )
    max_memory = checks.memory_cap(max_memory, "to_arviz")
    features = dict(statistics.basis.feature_coords)
    names = {"feature": features.pop("feature")} if features else {}
    coords = {**names, **_default_coords(X, X_new), **(coords or {})}
    container = from_mcmc(mcmc, coords, dims, features)
    chains = mcmc.num_chains
    samples = {name: np.asarray(value) for name, value in mcmc.get_samples().items()}
    run = _Run(mcmc.sampler.model, samples, statistics, chains, site, max_memory)
    keys = jax.random.split(_key_of(mcmc) if key is None else random_key(key, "to_arviz"), 2)
    datasets: dict[str, xr.Dataset] = {}
    if X is not None:
        _require_memory("posterior_predictive", run, np.size(y), max_memory)
        pointwise = leave_one_out(
            run.model, samples, statistics, X, y, row_weights=row_weights, site=site, max_memory=max_memory
        )
        drawn = run.predictive_draws(keys[0], X, row_weights)
        datasets["log_likelihood"] = run.dataset(pointwise, "obs", coords).assign_attrs(
            quantity="leave-one-out densities log p(y_i | y_-i, theta)"
        )
        datasets["posterior_predictive"] = run.dataset(drawn, "obs", coords)
        datasets["observed_data"] = _rows_dataset({run.name: y}, "obs", coords)
        datasets["constant_data"] = _rows_dataset({"X": X}, "obs", coords)
    if X_new is not None:
        _require_memory("predictions", run, len(X_new) * statistics.num_outputs, max_memory)
        datasets["predictions"] = run.dataset(run.predictive_draws(keys[1], X_new, None), "new_obs", coords)
        datasets["predictions_constant_data"] = _rows_dataset({"X": X_new}, "new_obs", coords)
    return attach(container, datasets)


class _Run:
    """A finished run, as the groups need it: draws in chain-major order, and the name of the observed site."""

    def __init__(self, model, samples, statistics, chains, site, max_memory) -> None:
        self.model, self.samples, self.statistics = model, samples, statistics
        self.chains, self.site, self.max_memory = chains, site, max_memory
        self.num_draws = len(next(iter(samples.values())))
        self.name = site or "y"

    def predictive_draws(self, key: jax.Array, X: Any, row_weights: Any) -> np.ndarray:
        prediction = predict(
            self.model,
            self.samples,
            self.statistics,
            X,
            row_weights=row_weights,
            site=self.site,
            max_memory=self.max_memory,
        )
        return prediction.sample_draws(key, np.arange(self.num_draws))

    def dataset(self, values: np.ndarray, rows: str, coords: dict[str, Any]) -> xr.Dataset:
        by_chain = values.reshape(self.chains, -1, *values.shape[1:])
        names = ("chain", "draw", rows, "output")[: by_chain.ndim]
        labels = {"chain": np.arange(self.chains), "draw": np.arange(by_chain.shape[1])}
        return xr.Dataset({self.name: (names, by_chain)}, coords=labels | _labels(names, coords))


def _rows_dataset(arrays: dict[str, Any], rows: str, coords: dict[str, Any]) -> xr.Dataset:
    columns = {"X": "input"}
    data = {}
    for name, values in arrays.items():
        values = np.asarray(values)
        data[name] = ((rows, columns.get(name, "output"))[: values.ndim], values)
    names = {dim for dimensions, _ in data.values() for dim in dimensions}
    return xr.Dataset(data, coords=_labels(names, coords))


def _labels(names: Any, coords: dict[str, Any]) -> dict[str, Any]:
    return {name: coords[name] for name in names if name in coords}


def _default_coords(X: Any, X_new: Any) -> dict[str, Any]:
    given = next((inputs for inputs in (X, X_new) if inputs is not None), None)
    coords = {rows: np.arange(len(inputs)) for rows, inputs in (("obs", X), ("new_obs", X_new)) if inputs is not None}
    if given is None:
        return coords
    columns = getattr(given, "columns", None)
    return coords | {"input": np.arange(np.shape(given)[1]) if columns is None else [str(c) for c in columns]}


def _require_memory(group: str, run: _Run, size: int, max_memory: float) -> None:
    needed = 8 * run.num_draws * size
    if needed > max_memory:
        raise ValueError(
            f"to_arviz: the group {group!r} would take {needed / 1e9:.1f} GB ({run.num_draws} draws × {size} values), "
            f"over `max_memory` = {max_memory / 1e9:.1f} GB. Run with a `thinning`, pass fewer rows (or none: the "
            "posterior needs no rows), or raise `max_memory`."
        )


def _key_of(mcmc: Any) -> jax.Array:
    """A key that no chain has used: from the first chain's key after its last draw."""
    state_key = mcmc.last_state.rng_key
    typed = jax.numpy.issubdtype(state_key.dtype, jax.dtypes.prng_key)
    single = state_key.reshape(-1)[0] if typed else state_key.reshape(-1, state_key.shape[-1])[0]
    return jax.random.fold_in(single, 1)
