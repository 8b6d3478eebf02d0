"""Which inputs matter: how fast f changes along each, and in how many lengthscales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from .._internal import checks
from ..posteriors.gradient import predict_gradient
from ..posteriors.observed_data import recipe_of
from ..posteriors.posterior import Posterior
from ..statistics.kept_rows import Rows

#: Rows of the posterior's own at which slopes are averaged.
MOST_ROWS = 200


def input_relevance(
    posterior: Posterior, X: Any = None, *, names: Sequence[str] | None = None, probability: float = 0.9
) -> xr.Dataset:
    """Which inputs matter, in two measures without units of the inputs, each with its posterior.

    ``slope`` is the root mean square, over rows, of ``sⱼ ∂f/∂xⱼ``: how much f changes by one standard deviation of the
    input, in units of y (derivative-based sensitivity: Sobol' & Kucherenko 2009, doi:10.1016/j.matcom.2009.01.023).
    ``inverse_lengthscale`` is ``sⱼ/ℓⱼ``: how many lengthscales a standard deviation is, the usual measure of automatic
    relevance determination. The latter says how f *bends*: of an input that acts in a straight line it is small, though
    the input matters, and of one that does not matter it is whatever its prior is.

    :param posterior: from :func:`~ppl_sgp.posterior`, of one output.
    :param X: rows to average slopes over, shape (k, d), some hundred of the training rows; a posterior of rows in
        memory has them. Without them there are no slopes.
    :param names: of the inputs, shape (d,); default the columns of the basis's recipe, or numbers.
    :param probability: of the interval between the outer quantiles.
    :return: a dataset over ``quantile`` (lower end, median, upper end) and ``input``: ``slope``, and
        ``inverse_lengthscale`` if the model has a site ``lengthscale`` with one an input.
    :raises ValueError: for neither of the two, several outputs, another number of names, or what
        :func:`~ppl_sgp.predict_gradient` refuses.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.random.default_rng(0).uniform(0, 1, (30, 2))
        >>> model = sgp.models.exact_gp(lengthscale=sgp.models.SparseAxes())
        >>> with jax.enable_x64(True):
        ...     rows = sgp.rows(X, np.sin(6 * X[:, 0]) + 0.01 * np.cos(77 * X[:, 0]))
        ...     posterior = sgp.posterior(model, sgp.fit_evidence(model, rows), rows)
        ...     found = sgp.input_relevance(posterior, names=["depth", "age"]).sel(quantile=0.5)
        >>> bool(found["slope"].sel(input="depth") > 20 * found["slope"].sel(input="age"))
        True
    """
    owner = "input_relevance"
    if not isinstance(posterior, Posterior):
        raise ValueError(f"{owner} needs what `sgp.posterior` makes; got {type(posterior).__name__}.")
    data: Any = posterior.data
    if data.num_outputs > 1:
        raise ValueError(f"{owner} is of one output; got {data.num_outputs}. Ask it of each output's own posterior.")
    scale = np.asarray(data.input_scale)
    recipe = recipe_of(data)
    labels = list(range(len(scale))) if recipe is None else list(recipe.columns)
    labels = labels if names is None else list(names)
    if len(labels) != len(scale):
        raise ValueError(f"{owner}: `names` must be {len(scale)} names; got {len(labels)}.")
    ends = np.array([(1 - probability) / 2, 0.5, (1 + probability) / 2])
    tails = checks.probabilities("probability", ends, owner)
    found = {}
    if X is None and isinstance(data, Rows):
        X = np.asarray(data.X)[:: -(-data.num_rows // MOST_ROWS)]
    if X is not None:
        found["slope"] = _slopes(posterior, X) * scale
    lengthscale = np.asarray(posterior.samples.get("lengthscale", np.zeros(0)))
    if lengthscale.shape[1:] == scale.shape:
        found["inverse_lengthscale"] = scale / lengthscale
    if not found:
        raise ValueError(
            f"{owner} needs rows `X` to average slopes over, or draws of a site `lengthscale` with one an input, shape "
            f"(draws, {len(scale)}); got no `X`, and sites {list(posterior.samples)}."
        )
    values = {name: (("quantile", "input"), np.quantile(draws, tails, axis=0)) for name, draws in found.items()}
    return xr.Dataset(values, {"quantile": tails.round(12), "input": labels})


def _slopes(posterior: Posterior, X: Any) -> np.ndarray:
    """Root mean squares of the slopes over rows and the posterior of f, at each draw, (draws, d)."""
    gradient = predict_gradient(posterior, X)
    total = np.zeros((posterior.num_draws, len(gradient.columns)))
    for rows, mean, variance in gradient.components():
        squares = mean[:, 0] ** 2 + variance[:, 0]
        np.add.at(total.T, np.arange(rows.start, rows.stop) % total.shape[1], squares.T)
    return np.sqrt(total * total.shape[1] / gradient.num_rows)
