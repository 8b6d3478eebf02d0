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
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import ndtri

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel, Matern32, Matern52, SquaredExponential
from ..kernels.hyperprior_scales import lengthscale_prior
from ..kernels.spectra import with_spectrum
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import bounding_box, checked_kernel, one_per_input
from .separable import share_outside

_SMALLEST_FACTOR = 1.2
#: Central share of a prior of lengthscales that number and box are chosen for; features at most, and box at least, that
#: are chosen.
_SERVED, _MOST_CHOSEN, _LEAST_CHOSEN = 0.8, 200, 1.5
#: Boxes narrower than this share of what `suggest` says bias lengthscales (by 40% at half of it: Engel's data).
_LEAST_BOX = 0.6
#: Lengthscales over half the range of an input beyond which no wider box is asked for: f is nearly a line. Engel's data
#: are at 1.1; a box of 0.6 of what is asked for has the sd outside the data within 5%.
_LONGEST = 1.0


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
    RULES: ClassVar[dict[type[Kernel], tuple[float, float]]] = {
        SquaredExponential: (1.75, 3.2),
        Matern32: (3.42, 4.5),
        Matern52: (2.65, 4.1),
    }

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
    def from_data(
        cls,
        X: Any,
        num_functions: int | Sequence[int] | None = None,
        boundary_factor: Any = None,
        *,
        lengthscale: Any = None,
        kernel: type[Kernel] = Matern52,
    ) -> LaplaceBasis:
        """A basis on a box around these inputs: include those at which you will predict.

        What is not given is chosen for the prior of the lengthscale, by the rule of :meth:`suggest`: number and box for
        its central 80%, with at most 200 features in all; of fewer functions, the box with which the lengthscales that
        they serve lie around the middle of the prior, at least 1.5 times as wide as the data. Posteriors may be
        elsewhere: :func:`~ppl_sgp.fit_evidence`, predictions and :func:`~ppl_sgp.report` say where the box was too
        narrow for the lengthscales found.

        :param X: inputs, shape (n, d).
        :param num_functions: functions of each input: one number for all, or one an input.
        :param boundary_factor: half-width of the box over that of the data, greater than 1: one number for all
            inputs, or one an input.
        :param lengthscale: prior of the lengthscale, a NumPyro distribution over one, or over one an input; or
            lengthscales to be served, as :meth:`suggest` takes them. Default: the prior of the ready models.
        :param kernel: the class of the kernel, of those that :meth:`suggest` has rules for.
        :raises ValueError: if ``X`` is not a finite (n, d) array, a column is constant, a factor is not above 1, or
            a lengthscale is given that nothing is chosen for.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> years = np.linspace(1990, 2020, 400)[:, None]
            >>> basis = sgp.LaplaceBasis.from_data(years, num_functions=30, boundary_factor=2.0)
            >>> float(basis.centre[0]), float(basis.boundary[0])
            (2005.0, 30.0)
            >>> sgp.LaplaceBasis.from_data(years, lengthscale=[3.0, 15.0]).num_functions  # all that it takes
            (55,)
        """
        owner = "LaplaceBasis.from_data"
        centre, half_range = bounding_box(X, owner)
        if num_functions is None or boundary_factor is None:
            served = _default_lengthscales(X) if lengthscale is None else lengthscale
            number, factor = _chosen(X, served, kernel, num_functions, boundary_factor)
        elif lengthscale is not None:
            raise ValueError(
                f"{owner}: `lengthscale` chooses what is not given, and both number and box are. Drop one."
            )
        else:
            number, factor = num_functions, boundary_factor
        factor = np.full(len(centre), factor) if np.ndim(factor) == 0 else factor
        factor = one_per_input("boundary_factor", factor, len(centre), owner)
        if not (factor > 1).all():
            raise ValueError(
                f"{owner}: `boundary_factor` must be greater than 1, as functions vanish at the walls; got {factor}. "
                "Use 1.5, or what `LaplaceBasis.suggest` says."
            )
        return cls(number, centre, factor * half_range)

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
            or (k, d) with a column an input; units of x. Or their prior, a NumPyro distribution, of which the central
            80% are served.
        :param kernel: the class of the kernel.
        :return: number of functions and boundary factor of each input, as :meth:`from_data` takes them.
        :raises ValueError: for another kernel, or lengthscales that are not positive or of another shape.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> sgp.LaplaceBasis.suggest(X, lengthscales=[0.5, 4.0])
            ((45,), (2.56,))
        """
        shortest, longest = _served(X, lengthscales, kernel, "LaplaceBasis.suggest")
        per_ratio, per_scale = LaplaceBasis.RULES[kernel]
        factor = np.maximum(_SMALLEST_FACTOR, per_scale * longest)
        number = np.ceil(per_ratio * factor / shortest)
        return tuple(int(m) for m in number), tuple(float(c) for c in factor)

    def unsuited(self, kernel: Any, x_min: np.ndarray, x_max: np.ndarray) -> tuple[str, str] | None:
        """Whether the walls of the box, at which f is zero, are nearer to the data than the lengthscales of a kernel
        allow: what is wrong, and the remedy. Lengthscales beyond the range of the data ask for no more than those: f
        is a straight line."""
        terms = [term for term in kernel.terms if type(term) in LaplaceBasis.RULES]
        if len(terms) != 1:
            return None
        kernel, half_range = terms[0], (x_max - x_min) / 2
        lengthscale = np.broadcast_to(np.asarray(kernel.lengthscale, dtype=np.float64), half_range.shape)
        served = np.minimum(lengthscale, _LONGEST * half_range)
        _, wanted = LaplaceBasis.suggest(np.stack([x_min, x_max]), served[None], type(kernel))
        factor = self.boundary / half_range
        worst = int(np.argmin(factor / np.asarray(wanted)))
        if factor[worst] >= _LEAST_BOX * wanted[worst]:
            return None
        return (
            f"The box of the basis is {factor[worst]:.2g} times as wide as the data in input {worst}; for lengthscale "
            f"{lengthscale[worst]:.3g} it should be {wanted[worst]:.2g} times. f is drawn to zero towards its "
            "walls, so lengthscales come out short, and predictions near the walls too certain.",
            f"`LaplaceBasis.from_data(X, m, boundary_factor={np.ceil(wanted[worst]):.0f})` with m in proportion; "
            "`LaplaceBasis.suggest(X, lengthscales)` names both (`sgp.place(key, X, y)` makes the basis for you).",
        )

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


def _default_lengthscales(X: Any) -> np.ndarray:
    """The ends of what is served of the default prior, shape (2, d)."""
    median, spread = lengthscale_prior(np.std(checks.finite_inputs(X, None, "LaplaceBasis.from_data"), axis=0))
    return np.exp(spread * ndtri(0.5 + _SERVED / 2) * np.array([[-1.0], [1.0]])) * np.asarray(median, dtype=np.float64)


def _quantiles(prior: dist.Distribution) -> np.ndarray:
    """The same of any prior, from draws."""
    draws = np.asarray(prior.sample(jax.random.key(0), (4000,)), dtype=np.float64)
    return np.quantile(draws, [0.5 - _SERVED / 2, 0.5 + _SERVED / 2], axis=0)


def _served(X: Any, lengthscales: Any, kernel: type[Kernel], owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The shortest and the longest lengthscale that are asked for, over half the range of each input, shapes (d,)."""
    if kernel not in LaplaceBasis.RULES:
        raise ValueError(
            f"{owner}: there are rules for {', '.join(known.__name__ for known in LaplaceBasis.RULES)}; got "
            f"{getattr(kernel, '__name__', type(kernel).__name__)}. Pass the class of these that is as smooth or "
            "rougher, and compare fits with more functions."
        )
    _, half_range = bounding_box(X, owner)
    if isinstance(lengthscales, dist.Distribution):
        lengthscales = _quantiles(lengthscales)
    checks.positive("lengthscales", lengthscales, owner)
    scales = np.atleast_1d(np.asarray(lengthscales, dtype=np.float64))
    if scales.size == 0 or scales.ndim > 2 or (scales.ndim == 2 and scales.shape[1] != len(half_range)):
        raise ValueError(
            f"{owner}: `lengthscales` must have shape (k,) or (k, {len(half_range)}), a column an input; got "
            f"{scales.shape}."
        )
    relative = scales.reshape(len(scales), -1) / half_range
    return relative.min(axis=0), relative.max(axis=0)


def _chosen(X: Any, lengthscales: Any, kernel: type[Kernel], number: Any, factor: Any) -> tuple[Any, Any]:
    """Number and box, of which one may be given, for lengthscales as :meth:`LaplaceBasis.suggest` takes them."""
    shortest, longest = _served(X, lengthscales, kernel, "LaplaceBasis.from_data")
    per_ratio, per_scale = LaplaceBasis.RULES[kernel]
    widest = np.maximum(_LEAST_CHOSEN, per_scale * longest)
    if number is None:
        wanted = np.ceil(per_ratio * (widest if factor is None else np.asarray(factor, dtype=np.float64)) / shortest)
        most = int(_MOST_CHOSEN ** (1 / len(shortest)))
        number = [int(m) for m in (wanted if np.prod(wanted) <= _MOST_CHOSEN else np.minimum(wanted, most))]
    if factor is None:
        # So many functions serve lengthscales from a c/m to c/b: around the middle of those that are wanted.
        middle = np.sqrt(shortest * longest) * np.sqrt(per_scale * np.asarray(number, dtype=np.float64) / per_ratio)
        factor = np.clip(middle, _LEAST_CHOSEN, widest)
    return number, factor
