"""An exact GP on a grid with gaps, with its hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.by_value import EqualByValue
from ..evidence import exact
from ..grids.grid import Grid
from ..grids.solver import GridSolver
from ..kernels import Categorical, Constant, Kernel, OfColumns, Product, SquaredExponential
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, NOISE_SHARE, NOISE_SPREAD, lengthscale_prior
from ..sites.observe import observe_grid
from .hyperpriors import check_outputs, log_normal, sample

#: What a kernel of an axis may be: of hyperparameters to be sampled, with values, or the default.
AxisKernel = Callable[..., Kernel] | Kernel | None


@dataclasses.dataclass(frozen=True, eq=False)
class GridGPModel(EqualByValue):
    """A NumPyro model of one argument, the grid; made by :func:`grid_gp`, which says what it samples."""

    kernels: tuple[AxisKernel, ...] | None
    lengthscale: dict[str, Any]
    correlation: dict[str, Any]
    amplitude: Any
    noise_scale: Any
    feature_scale: Any
    solver: GridSolver

    def __call__(self, grid: Grid) -> None:
        """Sample hyperparameters and observe the grid."""
        self._check(grid)
        draw: dict[str, Any] = {}
        for dim, axis, family, is_text in self._axes(grid):
            if isinstance(family, Kernel):
                continue
            if is_text:
                draw[f"correlation_{dim}"] = sample(
                    f"correlation_{dim}", self.correlation.get(dim), dist.Uniform(0.0, 1.0)
                )
                continue
            median, spread = lengthscale_prior(_scale_of(axis))
            default = dist.LogNormal(jnp.log(median), spread).to_event(1)
            if axis.shape[1] == 1:
                default = dist.LogNormal(jnp.log(median[0]), spread)
            draw[f"lengthscale_{dim}"] = sample(
                f"lengthscale_{dim}", self.lengthscale.get(dim), default, [f"{dim}_column"]
            )
        scale = grid.output_scale
        draw["amplitude"] = sample("amplitude", self.amplitude, log_normal(scale, AMPLITUDE_SPREAD))
        checks.positive("amplitude", draw["amplitude"], "grid_gp")
        if jnp.ndim(draw["amplitude"]):
            raise ValueError(f"grid_gp: `amplitude` must be one number; got shape {jnp.shape(draw['amplitude'])}.")
        noise = log_normal(NOISE_SHARE * scale, NOISE_SPREAD)
        noise_scale = sample("noise_scale", self.noise_scale, noise)
        feature_scale = None
        if grid.features is not None:
            total = sample("feature_scale", self.feature_scale, log_normal(scale, AMPLITUDE_SPREAD))
            feature_scale = jnp.asarray(total) * jnp.asarray(_feature_unit(grid))
        observe_grid(
            "y",
            grid,
            self.kernels_at(draw, grid),
            noise_scale,
            feature_scale=feature_scale,
            solver=self.solver,
        )

    def kernels_at(self, draw: dict[str, Any], grid: Grid) -> tuple[Kernel, ...]:
        """The kernel of each axis at one draw of the latent sites, by name; the amplitude is with the first."""
        found = []
        for number, (dim, _, family, is_text) in enumerate(self._axes(grid)):
            amplitude = draw.get("amplitude", self.amplitude) if number == 0 else 1.0
            if isinstance(family, Kernel):
                found.append(family if number else family * Constant(amplitude))
            elif is_text:
                rho = jnp.asarray(draw.get(f"correlation_{dim}", self.correlation.get(dim)))
                shared, own = amplitude * jnp.sqrt(rho), amplitude * jnp.sqrt(1 - rho)
                found.append(Constant(shared) + Categorical(own))
            else:
                found.append(family(draw.get(f"lengthscale_{dim}", self.lengthscale.get(dim)), amplitude))
        return tuple(found)

    def kernel_at(self, draw: dict[str, Any], grid: Grid, output: int = 0) -> Kernel:
        """The product of the kernels, of all columns of the grid."""
        ends = np.cumsum(grid.widths)
        parts = [
            OfColumns(kernel, tuple(range(end - width, end)))
            for kernel, end, width in zip(self.kernels_at(draw, grid), ends, grid.widths, strict=True)
        ]
        return Product(tuple(parts))

    def _axes(self, grid: Grid) -> list[tuple[str, Any, Any, bool]]:
        """Name, points and kernel of each axis, and whether it is one of labels that has the default."""
        kernels = self.kernels or (None,) * len(grid.axes)
        text = [labels is not None and not _are_dates(labels) for labels in grid.labels]
        return [
            (dim, points, SquaredExponential if family is None else family, family is None and is_text)
            for dim, points, family, is_text in zip(grid.dims, grid.axes, kernels, text, strict=True)
        ]

    def _check(self, grid: Any) -> None:
        if not isinstance(grid, Grid):
            raise ValueError(
                f"grid_gp is a model of one argument, an sgp.Grid(axes, values); got {type(grid).__name__}. For "
                "scattered rows take `sgp.models.exact_gp`."
            )
        exact.require_precision("grid_gp", jnp.result_type(float))
        if self.kernels is not None and len(self.kernels) != len(grid.axes):
            raise ValueError(
                f"grid_gp: `kernels` has {len(self.kernels)} entries, and the grid the axes {list(grid.dims)}."
            )
        axes = self._axes(grid)
        for name, given, wanted in (("lengthscale", self.lengthscale, False), ("correlation", self.correlation, True)):
            takes = [dim for dim, _, family, is_text in axes if not isinstance(family, Kernel) and is_text is wanted]
            unknown = sorted(set(given) - set(takes))
            if unknown:
                raise ValueError(f"grid_gp: `{name}` has {unknown}; the axes that have one are {takes}.")
        if self.feature_scale is not None and grid.features is None:
            raise ValueError("grid_gp: `feature_scale` belongs to the `features` of a grid, and this one has none.")
        if checks.is_concrete(grid.y):
            constant = grid.features is not None and bool((np.ptp(grid.features, axis=0) == 0).any())
            check_outputs("grid_gp", grid, constant)


def grid_gp(
    kernels: Sequence[AxisKernel] | None = None,
    *,
    lengthscale: dict[str, Any] | None = None,
    correlation: dict[str, Any] | None = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    feature_scale: Any = None,
    solver: GridSolver | None = None,
) -> GridGPModel:
    """An exact GP ``y = f + noise`` on a grid with gaps, its covariance the product of a kernel an axis.

    Sites and default priors, scales those of the data: ``lengthscale_{dim}`` of each axis, a vector for a group of
    columns, log-normal with median √d/2 standard deviations of the axis (d its columns) and log sd 1; for an axis of
    text, such as stations or outputs, ``correlation_{dim}``, uniform in [0, 1], between any two of its labels instead;
    ``amplitude``, median the root mean square of y, log sd 1; ``noise_scale``, median 0.3 of it, log sd 1.5. Of a grid
    with features ``feature_scale``, with the prior of the amplitude: the standard deviation of each weight, over how
    much its feature varies over the cells (a constant: over its size). Float64 only.

    :param kernels: for each axis a class or function of (lengthscale, amplitude), a kernel with its values, or
        ``None`` for the default; squared exponentials if left out.
    :param lengthscale: priors, or numbers to hold fixed, by the name of the axis.
    :param correlation: likewise, of axes of text.
    :param amplitude: a NumPyro distribution, or a number to hold fixed.
    :param noise_scale: likewise.
    :param feature_scale: likewise.
    :param solver: how gaps are dealt with: :class:`~ppl_sgp.GridSolver`.
    :return: a picklable callable of one argument, the grid.
    :raises ValueError: for kernels that do not fit the axes; when called, for other data, y identically zero, or in
        float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> hours, days = np.arange(8.0), np.arange(6.0)
        >>> y = np.sin(hours[None] / 2) * np.cos(days[:, None] / 2) + 0.1 * np.cos(77 * np.arange(48)).reshape(6, 8)
        >>> grid = sgp.Grid([days, hours], y, dims=("day", "hour"))
        >>> with jax.enable_x64(True):
        ...     fit = sgp.fit_evidence(sgp.models.grid_gp([sgp.Matern52, None], noise_scale=0.1), grid)
        >>> sorted(fit.values)
        ['amplitude', 'lengthscale_day', 'lengthscale_hour']
    """
    given = None if kernels is None else tuple(kernels)
    for family in given or ():
        if family is not None and not callable(family) and not isinstance(family, Kernel):
            raise ValueError(
                f"grid_gp: `kernels` must hold classes such as sgp.Matern52, functions of lengthscale and amplitude, "
                f"kernels, or None; got {family!r}."
            )
    return GridGPModel(
        given,
        dict(lengthscale or {}),
        dict(correlation or {}),
        amplitude,
        noise_scale,
        feature_scale,
        GridSolver() if solver is None else solver,
    )


def _scale_of(points: Any) -> Any:
    points = jnp.asarray(points)
    return jnp.std(points, axis=0) * (jnp.ptp(points, axis=0) > 0).astype(points.dtype)


def _are_dates(labels: tuple[str, ...]) -> bool:
    try:
        np.array(labels[:1], dtype="datetime64[ns]")
    except ValueError:
        return False
    return True


def _feature_unit(grid: Grid) -> Any:
    """One over how much each feature varies over the cells; of a constant, over its size."""
    Phi = jnp.asarray(grid.features)
    spread = jnp.std(Phi, axis=0)
    size = jnp.sqrt(jnp.mean(Phi**2, axis=0))
    varies = spread > 1e-9 * size
    return 1 / jnp.where(varies, spread, jnp.where(size > 0, size, 1))
