"""ArviZ's container of a variational posterior: draws of weights, and of rows given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..likelihoods.likelihood import Likelihood
from ..posteriors.arviz_compat import attach, container_of
from ..posteriors.mixture import gaussian_log_density
from ..posteriors.outcomes_of import row_offsets
from ..posteriors.predict import prediction_inputs
from ..posteriors.runs import Run

if TYPE_CHECKING:
    from .result import VariationalWeights

#: The name of the outcome.
SITE = "y"


def container(
    fit: VariationalWeights,
    key: jax.Array,
    X: Any,
    y: Any,
    X_new: Any,
    num_draws: int,
    offsets: tuple[Any, Any],
    max_memory: float,
) -> Any:
    """ArviZ's container; :meth:`VariationalWeights.to_arviz` has the arguments."""
    owner = "to_arviz"
    checks.whole_number("num_draws", num_draws, 1, owner)
    most = max([fit.num_weights, *(len(rows) for rows in (X, X_new) if rows is not None)])
    if 8 * num_draws * most > checks.memory_cap(max_memory, owner):
        raise ValueError(
            f"{owner}: {num_draws} draws of {most} numbers take {8e-9 * num_draws * most:.1f} GB, over `max_memory` = "
            f"{max_memory / 1e9:.1f} GB. Pass fewer `num_draws` or rows, or raise `max_memory`."
        )
    if (X is None) != (y is None):
        raise ValueError(f"{owner}: pass both `X` and `y` of the training rows, or neither.")
    keys = jax.random.split(key, 3)
    weights = fit.sample(keys[0], num_draws)
    by_chain: dict[str, np.ndarray] = {"weights": weights[None]}
    if fit.likelihood is None:
        by_chain["noise_scale"] = np.full((1, num_draws), float(fit.noise_scale))
    else:
        named = fit.likelihood.constrained(jnp.asarray(fit.parameters))
        by_chain |= {name: np.full((1, num_draws), float(value)) for name, value in named.items()}
    dims = {"weights": ["predictor", "feature"][2 - weights.ndim + 1 :]}
    coords = fit.basis.feature_coords
    names = {"feature": coords.pop("feature")} if "feature" in coords else {}
    run = Run(by_chain, {}, np.zeros(2, np.uint32), None, None, {name: dims.get(name, []) for name in by_chain})
    result = container_of(run, names, None, coords)
    datasets: dict[str, xr.Dataset] = {}
    if X is not None:
        X, eta = _predictors(fit, weights, X, offsets[0])
        y = checks.host_numbers("y", y, owner) if fit.likelihood is None else fit.likelihood.check(y, 0, owner)
        if len(y) != len(X):
            raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
        quantity = "log likelihood of each row given a draw of the weights"
        datasets["log_likelihood"] = by_draw(_log_likelihood(fit, eta, y), "obs").assign_attrs(quantity=quantity)
        datasets["posterior_predictive"] = by_draw(_outcomes(fit, keys[1], eta, y), "obs")
        datasets["observed_data"] = xr.Dataset({SITE: (("obs", "column")[: y.ndim], y)})
        datasets["constant_data"] = xr.Dataset({"X": (("obs", "input"), X)})
    if X_new is not None:
        if fit.likelihood is not None and fit.likelihood.num_columns > 1:
            raise ValueError(
                f"{owner}: rows of {type(fit.likelihood).__name__} are more than an outcome; use `predict`."
            )
        X_new, eta = _predictors(fit, weights, X_new, offsets[1])
        datasets["predictions"] = by_draw(_outcomes(fit, keys[2], eta, None), "new_obs")
        datasets["predictions_constant_data"] = xr.Dataset({"X": (("new_obs", "input"), X_new)})
    return attach(result, datasets)


def _predictors(fit: VariationalWeights, weights: np.ndarray, X: Any, offset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and the predictors (s, n), or (s, n, L), that draws of the weights give them."""
    X, _ = prediction_inputs(X, None, fit.basis.input_dim, "to_arviz")
    size = max(1, int(2e8 // (8 * fit.num_weights)))
    blocks = [weights @ fit.basis.host_features(X[i : i + size]).T for i in range(0, len(X), size)]
    eta = np.concatenate(blocks, axis=-1)
    eta = eta if weights.ndim == 2 else np.moveaxis(eta, 1, 2)
    offset = row_offsets(offset, len(X), "to_arviz")
    return X, eta if offset is None else eta + offset


def _log_likelihood(fit: VariationalWeights, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    if fit.likelihood is None:
        return gaussian_log_density(y - eta, np.asarray(float(fit.noise_scale) ** 2))
    parameters = np.asarray(fit.parameters, np.float64).ravel()
    return log_densities(fit.likelihood, eta, y, np.broadcast_to(parameters, (len(eta), len(parameters))))


def log_densities(likelihood: Likelihood, eta: np.ndarray, y: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """Log densities (s, n) of rows given predictors (s, n) or (s, n, L) and parameters (s, p), in float64."""
    with jax.enable_x64(True):
        return np.asarray(_densities(likelihood, jnp.asarray(eta), jnp.asarray(y), jnp.asarray(parameters)))


def _outcomes(fit: VariationalWeights, key: jax.Array, eta: np.ndarray, y: Any) -> np.ndarray:
    with jax.enable_x64(True):
        if fit.likelihood is None:
            return eta + float(fit.noise_scale) * np.asarray(jax.random.normal(key, eta.shape))
        known = y if fit.likelihood.num_columns > 1 else None
        fn = fit.likelihood.distribution(jnp.asarray(eta), jnp.asarray(fit.parameters, jnp.float64), known)
        return np.asarray(fn.sample(key))


@jax.jit
def _densities(likelihood: Likelihood, eta: jax.Array, y: jax.Array, parameters: jax.Array) -> jax.Array:
    return jax.lax.map(lambda each: likelihood.log_prob(each[0], y, each[1]), (eta, parameters))


def by_draw(values: np.ndarray, rows: str) -> xr.Dataset:
    """Values (s, n) of rows as those of one chain."""
    return xr.Dataset({SITE: (("chain", "draw", rows), values[None])}, coords={"chain": [0]})
