"""Eigenfunctions of the Laplacian on a box: the Hilbert-space approximation of a stationary process.

References
    1. Solin, A. & Särkkä, S. (2020), Hilbert space methods for reduced-rank Gaussian process
       regression.
    2. Riutort-Mayol, G. et al. (2022), Practical Hilbert space approximate Bayesian Gaussian processes
       for probabilistic programming: how many functions, and how wide a box.
    3. Evans, T. W. (2022), PhD thesis, section 5.3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel, Matern32, Matern52, SquaredExponential
from ..kernels.spectra import with_spectrum
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import bounding_box, checked_kernel, one_per_input
from .separable import share_outside

_SMALLEST_FACTOR = 1.2


@pytree_dataclass
class LaplaceBasis(Basis):
    """Products over inputs of ``sin(jπ(x − c + L)/2L) / √L``, on a box of centre c and half-width L.

    With independent weights of variance ``S(j/4L)``, S the spectral density, f has approximately the
    kernel of S; the more functions, and the further the box reaches beyond the data, the better [1].
    Functions vanish at the walls of the box, so f is pinned to zero there; beyond them the basis is
    wrong (f is the mirror image of f inside, with its sign changed), and warns. The box is frozen:
    new inputs never move it. All combinations of functions of single inputs are features, so m is
    their product: for many inputs take a :class:`~ppl_sgp.FourierBasis`. Features cost O(n m d).

    Make one with :meth:`from_data`; :meth:`suggest` helps to choose its arguments.

    :param num_functions: functions of each input: one number for all, or one an input.
    :param centre: middle of the box, shape (d,), units of x.
    :param boundary: half-widths L of the box, shape (d,), units of x.
    :raises ValueError: for numbers that are not positive integers, or a centre or half-width that is not of shape (d,).

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.LaplaceBasis([20, 5], centre=[0.0, 10.0], boundary=[1.5, 6.0])
        >>> basis.num_features, basis.host_features([[0.5, 8.0]]).shape
        (100, (1, 100))
    """

    approximates_kernel = True
    bounded = True
    #: Functions per boundary factor and relative lengthscale, and boundary factor per relative lengthscale [2].
    RULES = {SquaredExponential: (1.75, 3.2), Matern32: (3.42, 4.5), Matern52: (2.65, 4.1)}

    frequencies: tuple[Any, ...]  # j / 4L in cycles per unit of x, one array (m_i,) an input
    centre: Any
    boundary: Any

    def __init__(self, num_functions: int | Sequence[int], centre: Any, boundary: Any) -> None:
        owner = "LaplaceBasis"
        centre = one_per_input("centre", centre, None, owner)
        boundary = one_per_input("boundary", boundary, len(centre), owner)
        checks.positive("boundary", boundary, owner)
        numbers = [num_functions] * len(centre) if np.ndim(num_functions) == 0 else list(num_functions)  # type: ignore[arg-type]
        if len(numbers) != len(centre):
            raise ValueError(
                f"{owner}: `num_functions` must be one integer, or one for each of the {len(centre)} inputs of "
                f"`centre`; got {len(numbers)}."
            )
        numbers = [checks.whole_number("num_functions", number, 1, owner) for number in numbers]
        frequencies = tuple(np.arange(1.0, m + 1) / (4 * L) for m, L in zip(numbers, boundary, strict=True))
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "boundary", boundary)

    @classmethod
    def from_data(cls, X: Any, num_functions: int | Sequence[int], boundary_factor: Any = 1.5) -> LaplaceBasis:
        """A basis on a box around these inputs: include those at which you will predict.

        :param X: inputs, shape (n, d); only the range of each column is used.
        :param num_functions: functions of each input: one number for all, or one an input.
        :param boundary_factor: half-width of the box over that of the data, greater than 1: one number for all
            inputs, or one an input. The default serves lengthscales up to 0.47 of half the range for
            SquaredExponential, 0.37 for Matern52: :meth:`suggest` has the rule, and :func:`~ppl_sgp.report`
            and predictions say where the box was too narrow for the posterior.
        :raises ValueError: if ``X`` is not a finite (n, d) array, a column is constant, or a factor is not above 1.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> basis = sgp.LaplaceBasis.from_data(np.linspace(1990, 2020, 400)[:, None], num_functions=30)
            >>> float(basis.centre[0]), float(basis.boundary[0])
            (2005.0, 22.5)
        """
        owner = "LaplaceBasis.from_data"
        centre, half_range = bounding_box(X, owner)
        factor = np.full(len(centre), boundary_factor) if np.ndim(boundary_factor) == 0 else boundary_factor
        factor = one_per_input("boundary_factor", factor, len(centre), owner)
        if not (factor > 1).all():
            raise ValueError(
                f"{owner}: `boundary_factor` must be greater than 1, as functions vanish at the walls; got {factor}. "
                "Use 1.5, or what `LaplaceBasis.suggest` says."
            )
        return cls(num_functions, centre, factor * half_range)

    @staticmethod
    def suggest(
        X: Any, lengthscales: Any, kernel: type[Kernel] = SquaredExponential
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The smallest ``num_functions`` and ``boundary_factor`` that serve a range of lengthscales.

        With ρ the lengthscale over the half-range of an input: the longest sets the factor,
        ``c = max(1.2, bρ)``, and the shortest the number, ``m = ⌈ac/ρ⌉``, with (a, b) = (1.75, 3.2) for
        SquaredExponential, (3.42, 4.5) for Matern32 and (2.65, 4.1) for Matern52. Those keep the error of
        the kernel near 1% of its variance in the middle of the data. At its ends the prior variance is
        short by the correlation at ``2(c − 1)/ρ`` lengthscales: by over half at worst, when c = 1.2 and
        ρ is about 0.35. If ends matter use a factor of 1 + 2ρ or more, and m in proportion.

        :param X: inputs, shape (n, d).
        :param lengthscales: those to be served, such as quantiles of their prior: shape (k,) for all inputs,
            or (k, d) with a column an input; units of x.
        :param kernel: the class of the kernel.
        :return: number of functions and boundary factor of each input, as :meth:`from_data` takes them.
        :raises ValueError: for another kernel, or lengthscales that are not positive or of another shape.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> sgp.LaplaceBasis.suggest(X, lengthscales=[0.5, 4.0])
            ((45,), (2.56,))
        """
        owner = "LaplaceBasis.suggest"
        if kernel not in LaplaceBasis.RULES:
            raise ValueError(
                f"{owner}: there are rules for {', '.join(known.__name__ for known in LaplaceBasis.RULES)}; got "
                f"{getattr(kernel, '__name__', type(kernel).__name__)}. Pass the class of these that is as smooth or "
                "rougher, and compare fits with more functions."
            )
        _, half_range = bounding_box(X, owner)
        checks.positive("lengthscales", lengthscales, owner)
        scales = np.atleast_1d(np.asarray(lengthscales, dtype=np.float64))
        if scales.size == 0 or scales.ndim > 2 or (scales.ndim == 2 and scales.shape[1] != len(half_range)):
            raise ValueError(
                f"{owner}: `lengthscales` must have shape (k,) or (k, {len(half_range)}), a column an input; got "
                f"{scales.shape}."
            )
        relative = scales.reshape(len(scales), -1) / half_range
        per_ratio, per_scale = LaplaceBasis.RULES[kernel]
        factor = np.maximum(_SMALLEST_FACTOR, per_scale * relative.max(axis=0))
        number = np.ceil(per_ratio * factor / relative.min(axis=0))
        return tuple(int(m) for m in number), tuple(float(c) for c in factor)

    @property
    def num_functions(self) -> tuple[int, ...]:
        """The number of functions of each input."""
        return tuple(frequencies.shape[-1] for frequencies in self.frequencies)

    @property
    def num_features(self) -> int:
        """The number of features m: the product of the numbers of functions."""
        return math.prod(self.num_functions)

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return len(self.frequencies)

    def check_domain(self, X: Any) -> None:
        share = share_outside(X, self.centre - self.boundary, self.centre + self.boundary)
        if share > 0:
            checks.warn(
                f"LaplaceBasis: {share:.3g} of the rows lie outside the box (centre {self.centre}, half-width "
                f"{self.boundary}), where features are mirror images and predictions wrong. Make the basis and its "
                "statistics again with a box for all inputs, as in "
                "`LaplaceBasis.from_data(np.concatenate([X, X_new]), ...)`, or leave those rows out.",
                stacklevel=4,
            )

    def features(self, X: Any, xp: ModuleType) -> Any:
        boundary = xp.asarray(self.boundary, dtype=X.dtype)
        from_wall = X - xp.asarray(self.centre, dtype=X.dtype)[None, :] + boundary[None, :]
        features = xp.ones((X.shape[0], 1), dtype=X.dtype)
        for i, frequencies in enumerate(self.frequencies):
            phase = from_wall[:, i, None] * (2 * math.pi * xp.asarray(frequencies, dtype=X.dtype))[None, :]
            functions = xp.sin(phase) / xp.sqrt(boundary[i])
            size = features.shape[1] * functions.shape[1]
            features = (features[:, :, None] * functions[:, None, :]).reshape(X.shape[0], size)
        return features

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Prior variances ``S(j/4L)``, S the spectral density of the kernel in cycles per unit of x. O(m d).

        :param kernel: any stationary kernel with a spectral density; its hyperparameters may be traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,), in the log domain.
        :raises ValueError: if ``kernel`` is not a kernel with a spectral density.
        """
        remedy = "Pass a stationary one, such as sgp.SquaredExponential(0.5)."
        kernel = checked_kernel(kernel, Kernel, "LaplaceBasis", remedy)  # type: ignore[type-abstract]
        spectral = with_spectrum(kernel, "LaplaceBasis.weight_prior")
        return DiagonalPrior.from_log_scale(_log_scale(spectral, self.frequencies))


# One program also where a model is evaluated eagerly.
@jax.jit
def _log_scale(kernel: Any, axes: tuple[Any, ...]) -> jax.Array:
    dtype = checks.common_dtype(*jax.tree.leaves(kernel))
    grid = jnp.meshgrid(*(jnp.asarray(axis, dtype) for axis in axes), indexing="ij")
    return kernel.log_spectral_density(jnp.stack(grid, axis=-1).reshape(-1, len(axes))) / 2
