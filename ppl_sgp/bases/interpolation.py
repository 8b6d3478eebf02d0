"""Interpolation on a fixed grid, under a prior for the values at its points: any kernel, learned in full.

References
    1. Evans, T. W. (2022), PhD thesis, section 5.3.3.
    2. Wilson, A. G. & Nickisch, H. (2015), Kernel interpolation for scalable structured Gaussian processes.
    3. Keys, R. G. (1981), Cubic convolution interpolation for digital image processing.
    4. Shepard, D. (1968), A two-dimensional interpolation function for irregularly-spaced data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from ..priors import DensePrior, KroneckerPrior
from . import interpolation_weights
from .basis import Basis
from .separable import one_dimensional, share_outside

_BY_INPUT = {
    "linear": interpolation_weights.linear,
    "cubic": interpolation_weights.cubic,
    "nearest": interpolation_weights.nearest,
}
METHODS = (*_BY_INPUT, "shepard")


@pytree_dataclass
class InterpolationBasis(Basis):
    """Features w(x) that interpolate from the points of a Cartesian grid; weights are the values of f there.

    With the prior ``w ~ N(0, k(U, U))`` over the values at the grid points U, f has the covariance
    ``w(x)ᵀ k(U, U) w(z) ≈ k(x, z)``, for any kernel k and any hyperparameters (section 5.3.3 of [1]). Features are
    sparse, but handled as dense: m is the product of the sizes of the grid, so use it for few inputs.

    Methods, all with weights that sum to one:

    * ``"linear"`` in each input (multilinear): error O(h²) for grid spacing h; any spacing.
    * ``"cubic"``: Keys' convolution [3] in each input, equally spaced, of at least 3 points: error O(h³), exact for
      quadratic functions up to the edges, where the missing value is extrapolated from three; some weights are
      negative.
    * ``"nearest"``: the value at the nearest grid point, error O(h).
    * ``"shepard"``: inverse squared distances, in cells, to the 2^d corners of the cell [4]. Continuous for one
      input only; not exact for linear functions.

    :param grid: d increasing arrays, the grid points of each input; one array of numbers for d = 1.
    :param method: how to interpolate.
    :raises ValueError: for grids that are not increasing, too short, or not equally spaced where they must be.
        Features raise it for inputs outside the grid; where those cannot be read, under ``jit``, they count as its
        edge.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> basis = sgp.InterpolationBasis([np.linspace(0, 1, 5), [10.0, 20.0]], method="linear")
        >>> basis.num_features, basis.host_features([[0.25, 12.5]])[0, 2:4].tolist()
        (10, [0.75, 0.25])
    """

    approximates_kernel = True
    bounded = True

    grid: tuple[Any, ...]
    method: str = static(default="cubic")

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be one of {', '.join(map(repr, METHODS))}; got {self.method!r}.")
        object.__setattr__(self, "grid", _checked_grid(self.grid, self.method))

    @property
    def num_features(self) -> int:
        """The number of features m: the product of the sizes of the grid."""
        return math.prod(points.shape[-1] for points in self.grid)

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return len(self.grid)

    def weight_prior(self, kernel: Kernel) -> KroneckerPrior | DensePrior:
        """The covariance of ``kernel`` between the grid points. Its evidence needs float64.

        :param kernel: any kernel; its hyperparameters may be traced.
        :return: for separable kernels (squared exponentials, which are products over inputs) a
            :class:`~ppl_sgp.KroneckerPrior` in O(Σmᵢ²); else a :class:`~ppl_sgp.DensePrior` in O(m²).
        :raises ValueError: if ``kernel`` is no kernel, or has lengthscales for another number of inputs.
        """
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"weight_prior needs a kernel such as sgp.SquaredExponential(0.5); got {type(kernel).__name__}."
            )
        dtype = checks.common_dtype(*jax.tree.leaves(kernel))
        grid = [jnp.asarray(points, dtype) for points in self.grid]
        if kernel.separable:
            kernels = one_dimensional(kernel, self.input_dim, "InterpolationBasis.weight_prior")
            return KroneckerPrior([k(points[:, None]) for k, points in zip(kernels, grid, strict=True)])
        return DensePrior(kernel(jnp.stack([axis.ravel() for axis in jnp.meshgrid(*grid, indexing="ij")], axis=1)))

    def check_domain(self, X: Any) -> None:
        if not checks.is_concrete(self.grid):
            return
        lower, upper = (np.array([points[end] for points in self.grid]) for end in (0, -1))
        share = share_outside(X, lower, upper)
        if share > 0:
            raise ValueError(
                f"InterpolationBasis: {share:.3g} of the rows lie outside the grid, which reaches from {lower} to "
                f"{upper}: there is nothing to interpolate. Make the basis with a grid that covers all inputs, new "
                "ones too, or leave those rows out."
            )

    def features(self, X: Any, xp: ModuleType) -> Any:
        grid = tuple(xp.asarray(points, dtype=X.dtype) for points in self.grid)
        if self.method == "shepard":
            return interpolation_weights.shepard(X, grid, xp)
        weights = _BY_INPUT[self.method]
        return interpolation_weights.across(
            [weights(X[:, i], points, xp) for i, points in enumerate(grid)], operator.mul
        )


def _checked_grid(grid: Any, method: str) -> tuple[np.ndarray, ...]:
    owner = "InterpolationBasis"
    if not checks.is_concrete(grid):
        raise ValueError(f"{owner}: `grid` is traced, but must be known. Make the basis outside `jit` and models.")
    if not isinstance(grid, Sequence | np.ndarray | jax.Array) or len(grid) == 0:
        raise ValueError(f"{owner}: `grid` must be a sequence of arrays, one for each input; got {grid!r}.")
    one_input = all(np.ndim(points) == 0 for points in grid)
    axes = [grid] if one_input else grid
    arrays = tuple(np.array(checks.real_numbers("grid", points, owner), dtype=np.float64) for points in axes)
    smallest = 3 if method == "cubic" else 2
    for i, points in enumerate(arrays):
        increasing = points.ndim == 1 and np.isfinite(points).all() and (np.diff(points) > 0).all()
        if not increasing or len(points) < smallest:
            raise ValueError(
                f"{owner}: `grid[{i}]` must be an increasing array of at least {smallest} finite numbers for method "
                f"{method!r}; got shape {points.shape}. Leave an input that never varies out of the model."
            )
        gaps = np.diff(points)
        if method == "cubic" and np.ptp(gaps) > 1e-6 * gaps.mean():
            raise ValueError(
                f"{owner}: `grid[{i}]` must be equally spaced for method 'cubic'; its gaps are {gaps.min()} to "
                f"{gaps.max()}. Use np.linspace, or method 'linear'."
            )
    return arrays
