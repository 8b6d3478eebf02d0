"""ArviZ's container of variational functions: draws of hyperparameters, of the functions, and of rows given these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.random import host_generator, random_key
from ..posteriors.arviz_compat import attach, container_of
from ..posteriors.latent_outcomes import drawn_outcomes
from ..posteriors.predict import prediction_inputs
from ..posteriors.runs import Run
from .container import by_draw, log_densities
from .function_outcomes import sampled

if TYPE_CHECKING:
    from .functions import VariationalFunctions

#: The name of the outcome.
SITE = "y"


def container(fit: VariationalFunctions, key: jax.Array, X: Any, y: Any, X_new: Any, max_memory: float) -> Any:
    """ArviZ's container; :meth:`VariationalFunctions.to_arviz` has the arguments."""
    owner = "to_arviz"
    if (X is None) != (y is None):
        raise ValueError(f"{owner}: pass both `X` and `y` of the training rows, or neither.")
    most = max((len(rows) for rows in (X, X_new) if rows is not None), default=0)
    if 24 * most**2 > checks.memory_cap(max_memory, owner):
        raise ValueError(
            f"{owner}: joint draws at {most} rows take {24e-9 * most**2:.1f} GB, over `max_memory` = "
            f"{max_memory / 1e9:.1f} GB. Pass some of the rows, or raise `max_memory`."
        )
    keys = jax.random.split(random_key(key, owner), 2)
    by_chain = {name: values[None] for name, values in fit.samples.items()}
    dims = {name: ["input"] * (values.ndim - 2) for name, values in by_chain.items()}
    run = Run(by_chain, {}, np.zeros(2, np.uint32), None, None, dims)
    result = container_of(run, {}, None, {})
    datasets: dict[str, xr.Dataset] = {}
    if X is not None:
        y = fit.likelihood.check(y, 0, owner)
        X, eta, drawn = _draws(fit, keys[0], X, y)
        if len(y) != len(X):
            raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
        densities = log_densities(fit.likelihood, eta, y, np.asarray(fit.parameters, np.float64))
        quantity = "log likelihood of each row given a draw of the functions"
        datasets["log_likelihood"] = by_draw(densities, "obs").assign_attrs(quantity=quantity)
        datasets["posterior_predictive"] = by_draw(drawn, "obs")
        datasets["observed_data"] = xr.Dataset({SITE: (("obs", "column")[: y.ndim], y)})
        datasets["constant_data"] = xr.Dataset({"X": (("obs", "input"), X)})
    if X_new is not None:
        if fit.likelihood.num_columns > 1:
            raise ValueError(
                f"{owner}: rows of {type(fit.likelihood).__name__} are more than an outcome; use `predict`."
            )
        X_new, _, drawn = _draws(fit, keys[1], X_new, None)
        datasets["predictions"] = by_draw(drawn, "new_obs")
        datasets["predictions_constant_data"] = xr.Dataset({"X": (("new_obs", "input"), X_new)})
    return attach(result, datasets)


def _draws(fit: VariationalFunctions, key: jax.Array, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, predictors (S, n) or (S, n, K), and outcomes (S, n) given them, a draw of the functions each."""
    functions = fit.functions()
    X, _ = prediction_inputs(X, None, functions.input_dim, "to_arviz")
    key_functions, key_outcomes = jax.random.split(key)
    f = sampled(functions, host_generator(key_functions, "to_arviz"), X, np.arange(fit.num_draws)).swapaxes(1, 2)
    with jax.enable_x64(True):
        parameters = jnp.asarray(np.asarray(fit.parameters, np.float64))
        keys, known = jax.random.split(key_outcomes, fit.num_draws), y if fit.likelihood.num_columns > 1 else None
        drawn = np.asarray(drawn_outcomes(fit.likelihood, jnp.asarray(f), parameters, known, keys))
    return X, f[..., 0] if fit.likelihood.num_latents == 1 else f, drawn
