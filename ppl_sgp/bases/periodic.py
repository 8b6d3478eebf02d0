"""Harmonics of one period.

References
    1. Solin, A. & Särkkä, S. (2014), Explicit link between periodic covariance functions and state space
       models: the Fourier series of the kernel.
    2. Trefethen, L. N. & Weideman, J. A. C. (2014), The exponentially convergent trapezoidal rule.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel, Periodic
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import checked_kernel


@pytree_dataclass
class PeriodicBasis(Basis):
    """Features ``[1, cos 2πkx/T, sin 2πkx/T]`` of one input, for harmonics k = 1..K of the period T.

    Without the constant f has mean zero over a period, so that beside a level or another season each has its own: f
    then has the kernel less its mean over a period.

    With the prior of :meth:`weight_prior` f has the :class:`~ppl_sgp.Periodic` kernel, but for
    harmonics beyond K. Those carry less than 0.1% of the variance if ``K ≥ 4/ℓ``, and fall faster than
    exponentially.

    :param period: T, units of x; a number, as features are computed once.
    :param num_harmonics: K; the number of features is ``2K + 1``, or without the constant ``2K``.
    :param constant: whether there is the constant feature, the first one.
    :raises ValueError: if the period is not a positive number, or ``num_harmonics`` not a positive integer.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.PeriodicBasis(period=12.0, num_harmonics=2)
        >>> basis.host_features([[0.0], [3.0]]).round(6).tolist()
        [[1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 0.0, -1.0, 1.0, 0.0]]
    """

    period: float = static()
    num_harmonics: int = static()
    constant: bool = static(default=True)

    def __post_init__(self) -> None:
        owner = "PeriodicBasis"
        if not checks.is_concrete(self.period) or np.ndim(self.period) > 0:
            raise ValueError(
                f"{owner}: `period` must be a number, as features are computed once; got {type(self.period).__name__}. "
                "An unknown period needs a quasi-periodic kernel on a LaplaceBasis, `Matern32(…) * Periodic(…)`, or a "
                "basis for each candidate, compared by their evidence."
            )
        checks.positive("period", self.period, owner)
        object.__setattr__(self, "period", float(self.period))
        object.__setattr__(self, "num_harmonics", checks.whole_number("num_harmonics", self.num_harmonics, 1, owner))
        object.__setattr__(self, "constant", bool(self.constant))

    @property
    def num_features(self) -> int:
        """The number of features m: two for each harmonic, and perhaps a constant."""
        return 2 * self.num_harmonics + self.constant

    @property
    def input_dim(self) -> int:
        """The number of input columns: 1."""
        return 1

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is the constant, shape (m,), Boolean: the first is, if there is one."""
        return np.arange(self.num_features) < self.constant

    def features(self, X: Any, xp: ModuleType) -> Any:
        turns = X / self.period
        angle = 2 * math.pi * (turns - xp.round(turns))  # whole turns change nothing, and would cost digits
        phase = angle * xp.arange(1, self.num_harmonics + 1, dtype=X.dtype)[None, :]
        waves = xp.concatenate([xp.cos(phase), xp.sin(phase)], axis=1)
        return xp.concatenate([xp.ones_like(angle), waves], axis=1) if self.constant else waves

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Prior variances: the coefficients of the cosine series of the kernel. O(K log K).

        By the trapezoid rule, whose error is of the order of coefficients beyond the third K [2]. Variances below
        rounding of the kernel's are raised to it, so that logarithms and their gradients stay finite.

        :param kernel: a :class:`~ppl_sgp.Periodic` kernel of the basis's period; lengthscale and amplitude may be
            traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,): the constant, if there is one, cosines, sines.
        :raises ValueError: for another kernel, or a period that is not the basis's or is traced.
        """
        remedy = (
            "For a sum of kernels stack a basis for each; for a stationary kernel use FourierBasis or LaplaceBasis."
        )
        periodic = checked_kernel(kernel, Periodic, "PeriodicBasis", remedy)
        self._check_period(periodic)
        dtype = checks.common_dtype(periodic.lengthscale, periodic.amplitude)
        log_amplitude = jnp.log(jnp.asarray(periodic.amplitude, dtype))
        log_series = periodic.log_cosine_series(self.num_harmonics).astype(dtype) / 2 + log_amplitude
        harmonics = log_series[1:] + math.log(2) / 2
        level = [log_series[:1]] if self.constant else []
        return DiagonalPrior.from_log_scale(jnp.concatenate([*level, harmonics, harmonics]))

    def _check_period(self, kernel: Periodic) -> None:
        remedy = f"Write `Periodic(basis.period, lengthscale, amplitude)`: features have the period {self.period}."
        if not checks.is_concrete(kernel.period):
            raise ValueError(f"PeriodicBasis: the kernel's `period` is traced, but a basis has a fixed one. {remedy}")
        if not math.isclose(float(kernel.period), self.period, rel_tol=1e-6):  # type: ignore[arg-type]
            raise ValueError(f"PeriodicBasis: the kernel has period {kernel.period}, the basis another. {remedy}")
