"""A grid filled, or predicted on other axes: means by axis, exact variances, joint draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.random import random_key
from ..grids import axes as axis_checks
from ..grids import kronecker, new_axes
from ..grids.grid import Grid
from .grid import GridDraws, GridFactors, GridPosteriors, SharedGrid
from .posterior import Posterior


class GridPrediction:
    """A posterior predictive of all cells of a grid, a mixture over draws; made by :func:`predict_grid`.

    Arrays are xarray's, with the dims and coordinates of the grid.

    :ivar mean: mean of f (and of y).
    :ivar grid: the observed grid.
    """

    def __init__(
        self, posterior: Posterior, axes: list[axis_checks.Axis], features: Any, progress: bool | None
    ) -> None:
        functions = posterior.functions
        assert isinstance(functions, GridPosteriors)
        self._posterior, self._functions, self._progress = posterior, functions, progress
        self.grid: Grid = functions.rows
        self._points, self._labels = tuple(axis.points for axis in axes), [axis.labels for axis in axes]
        same = [points is old for points, old in zip(self._points, self.grid.axes, strict=True)]
        #: ``None`` for axes that are the grid's own.
        self._new = tuple(None if own else points for own, points in zip(same, self._points, strict=True))
        self._features = features
        self._shape = tuple(map(len, self._points))

    @cached_property
    def _means(self) -> np.ndarray:
        """Means of each draw, (S, Q)."""
        found = [_means(draws.shared, draws.factors, self._new, self._features) for draws in self._functions.batches()]
        return np.concatenate([np.asarray(each).reshape(len(each), -1) for each in found])

    @cached_property
    def mean(self) -> xr.DataArray:
        """Mean of f, over all draws. At gaps it is what they are filled with."""
        return self._labelled(self._posterior.weights @ self._means, "mean")

    @cached_property
    def variance(self) -> xr.DataArray:
        """Variance of f: within draws, exactly, and of the means between them.

        By a Cholesky factor of the gaps O(L) products of the size of the grid a draw; where those are too many, by
        conjugate gradients for each new cell, with a progress bar.
        """
        parts = [self._variances(draws) for draws in self._functions.batches()]
        weights, means = self._posterior.weights, self._means
        within = weights @ np.concatenate(parts)
        return self._labelled(within + weights @ (means - weights @ means) ** 2, "variance")

    @property
    def noise_variance(self) -> float:
        """Posterior mean of the noise variance of a cell of weight one."""
        return float(self._posterior.weights @ np.asarray(self._posterior.parameters().noise_scale, np.float64) ** 2)

    def _variances(self, draws: GridDraws) -> np.ndarray:
        """Of f at each draw of a batch, (b, Q)."""
        plan = self._functions.solver.plan(self.grid)
        if plan[0] == "gaps" and self.grid.features is None:
            return np.asarray(_variances(draws.shared, draws.factors, self._new)).reshape(len(draws.noise_scale), -1)
        total = int(np.prod(self._shape))
        width = max(1, int(self._posterior.max_memory // (16 * self._functions.numbers_per_row)))
        width = min(width, total, 256)
        found = np.empty((len(draws.noise_scale), total))
        blocks = range(0, total, width)
        for start in tqdm(blocks, desc="variances of cells", disable=_is_quiet(self._progress, len(blocks))):
            # The last block is moved back, so that all have one shape.
            begin = max(0, min(start, total - width))
            cells = np.arange(begin, begin + width)
            found[:, cells] = draws.moments(self._inputs(cells))[1][:, 0]
        return found

    def _inputs(self, cells: np.ndarray) -> np.ndarray:
        numbers = np.unravel_index(cells, self._shape)
        parts = [points[i] for points, i in zip(self._points, numbers, strict=True)]
        return np.concatenate(parts if self._features is None else [*parts, self._features[cells]], axis=1)

    def sample(self, key: jax.Array, num_samples: int = 1, *, noise: bool = False) -> xr.DataArray:
        """Joint draws of f at all cells by pathwise conditioning: a prior draw, and its correction (a solution each).

        :param key: a JAX random key.
        :param num_samples: how many; hyperparameter draws are taken evenly, in random order.
        :param noise: draws of y, of cells of weight one, instead.
        :return: with the dimension ``draw`` first.
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        order_key, noise_key, key = jax.random.split(random_key(key, "sample"), 3)
        count = self._functions.num_draws
        weights = self._posterior.weights if self._posterior.is_weighted else None
        if weights is None:
            order = np.tile(np.asarray(jax.random.permutation(order_key, count)), -(-num_samples // count))[
                :num_samples
            ]
        else:
            order = np.asarray(jax.random.choice(order_key, count, (num_samples,), p=jnp.asarray(weights)))
        paths = self._functions.paths(key, order, self._new, self._features)
        quiet = _is_quiet(self._progress, num_samples)
        found = [f.ravel() for f in tqdm(paths, desc="draws of the grid", total=num_samples, disable=quiet)]
        drawn = np.stack(found)
        if noise:
            scales = np.asarray(self._posterior.parameters().noise_scale)[order]
            drawn = drawn + scales[:, None] * np.asarray(jax.random.normal(noise_key, drawn.shape))
        return self._labelled(drawn, "y" if noise else "f")

    @property
    def filled(self) -> xr.DataArray:
        """The observations, with the posterior means at gaps. Only on the axes of the grid itself."""
        if not self._is_own:
            raise ValueError(
                "filled: this prediction is on other axes; predict on those of the grid, `predict_grid(p)`."
            )
        observed = self.grid.to_xarray()
        return observed.where(~np.isnan(observed), self.mean).rename("filled")

    def to_dataset(self) -> xr.Dataset:
        """Mean, standard deviation of f and of y, and which cells are gaps, for ``to_netcdf`` and plots."""
        data = {
            "mean": self.mean,
            "sd": (self.variance**0.5).rename("sd"),
            "predictive_sd": ((self.variance + self.noise_variance) ** 0.5).rename("predictive_sd"),
        }
        if self._is_own:
            data |= {"observed": self.grid.to_xarray(), "gap": self.grid.to_xarray(self.grid.gaps)}
        return xr.Dataset(data, attrs={"num_draws": self._functions.num_draws})

    @property
    def _is_own(self) -> bool:
        return all(new is None for new in self._new)

    def _labelled(self, values: np.ndarray, name: str) -> xr.DataArray:
        extra = values.ndim - 1
        coords = {
            dim: axis_checks.coordinates(points, labels)
            for dim, points, labels in zip(self.grid.dims, self._points, self._labels, strict=True)
        }
        array = values.reshape(*values.shape[:extra], *self._shape)
        return xr.DataArray(array, dims=("draw",) * extra + self.grid.dims, coords=coords, name=name)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}={size}" for dim, size in zip(self.grid.dims, self._shape, strict=True))
        return f"GridPrediction({sizes}, num_draws={self._functions.num_draws})"


def predict_grid(
    posterior: Posterior, axes: Sequence[Any] | None = None, *, features: Any = None, progress: bool | None = None
) -> GridPrediction:
    """Predict all cells of the observed grid, whose gaps it fills, or of a grid with other axes.

    Means take O(M Σ m_l) a draw (Evans 2022, section 3.2), whatever the number of cells observed.

    :param posterior: of a model that observes a grid, from :func:`~ppl_sgp.posterior`.
    :param axes: points of each axis, in the form in which the grid has them, ``None`` for an axis as it is; default
        the axes of the grid. Dates and labels have to be numbers as the grid has them in ``grid.axes``.
    :param features: fixed effects at the new cells, shape (q_1, …, q_d, q), for other axes of a grid with features.
    :param progress: show progress bars; default for what is long.
    :return: means, exact variances and joint draws as DataArrays.
    :raises ValueError: for a posterior of other data, and axes that do not fit.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> y = np.cos(np.arange(5))[:, None] * np.sin(np.arange(4))[None] + 0.01
        >>> y[2, 1] = np.nan
        >>> grid = sgp.Grid([np.arange(5), np.arange(4)], y, gaps="nan", dims=("day", "hour"))
        >>> draws = {"lengthscale_day": np.full(2, 1.0), "lengthscale_hour": np.full(2, 1.0), "amplitude": np.ones(2)}
        >>> with jax.enable_x64(True):
        ...     model = sgp.models.grid_gp(noise_scale=0.1)
        ...     prediction = sgp.predict_grid(sgp.posterior(model, draws, grid), [None, [0.5, 1.5]])
        ...     print(prediction, prediction.mean.dims)
        GridPrediction(day=5, hour=2, num_draws=2) ('day', 'hour')
    """
    if not isinstance(posterior, Posterior) or not isinstance(posterior.data, Grid):
        raise ValueError(
            "predict_grid: `posterior` must be sgp.posterior(model, mcmc, grid) of a model that observes a grid; got "
            f"{posterior!r}."
        )
    grid = posterior.data
    if axes is not None and len(axes) != len(grid.axes):
        raise ValueError(f"predict_grid: `axes` must have an entry for each of {list(grid.dims)}; got {len(axes)}.")
    found = []
    for number, (points, labels) in enumerate(zip(grid.axes, grid.labels, strict=True)):
        new = None if axes is None else axes[number]
        if new is None:
            found.append(axis_checks.Axis(points, labels))
            continue
        (axis,) = axis_checks.checked_axes([np.asarray(new)], "predict_grid")
        if axis.labels is not None or axis.points.shape[1] != points.shape[1]:
            raise ValueError(
                f"predict_grid: the axis {grid.dims[number]!r} has {points.shape[1]} columns of numbers, see "
                f"`grid.axes[{number}]`; got {'labels' if axis.labels else axis.points.shape}."
            )
        found.append(axis)
    shape = tuple(len(axis.points) for axis in found)
    return GridPrediction(posterior, found, _new_features(grid, features, shape, axes is None), progress)


def _new_features(grid: Grid, features: Any, shape: tuple[int, ...], same: bool) -> np.ndarray | None:
    if grid.features is None:
        if features is not None:
            raise ValueError("predict_grid: the grid has no features; leave `features` out.")
        return None
    if features is None and same:
        return np.asarray(grid.features)
    wanted = (*shape, grid.num_features)
    array = np.full((), np.nan) if features is None else checks.host_numbers("features", features, "predict_grid")
    if array.shape != wanted:
        raise ValueError(f"predict_grid: `features` of the new cells must have shape {wanted}; got {array.shape}.")
    checks.require_finite("features", array, "predict_grid")
    return array.astype(np.float64).reshape(-1, grid.num_features)


def _is_quiet(progress: bool | None, steps: int) -> bool:
    return steps < 50 if progress is None else not progress


@jax.jit
def _means(shared: SharedGrid, factors: GridFactors, points: Any, features: Any) -> jax.Array:
    shape = new_axes.lengths(shared.grid, points)

    def of_draw(each: GridFactors) -> jax.Array:
        found = new_axes.mean(shared.grid, each.kernels, each.dual, points)
        return found + new_axes.effects(shared.grid, each.feature_scale, each.dual, features, shape)

    with full_precision():
        return jax.lax.map(of_draw, factors)


@jax.jit
def _variances(shared: SharedGrid, factors: GridFactors, points: Any) -> jax.Array:
    def of_draw(each: GridFactors) -> jax.Array:
        ends = [own if new is None else new for own, new in zip(shared.grid.axes, points, strict=True)]
        prior = kronecker.outer([k.diag(jnp.asarray(p)) for k, p in zip(each.kernels, ends, strict=True)])
        explained = new_axes.explained(shared.grid, each.kernels, each.noise_scale[0], points)
        return jnp.maximum(prior - explained, 0)

    with full_precision():
        return jax.lax.map(of_draw, factors)
