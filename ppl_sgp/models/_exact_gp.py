"""An exact GP of some thousand rows, with its hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .._internal import checks
from ..bases.basis import Basis
from ..bases.feature_kernel import FeatureKernel, unit_weights
from ..kernels import Kernel
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD
from ..priors import DiagonalPrior
from ..sites.observe import observe_exact
from ..statistics.kept_rows import Rows
from .hyperpriors import check_outputs, log_normal, sample
from .kernel_gp import KernelGP, require_rows


@dataclasses.dataclass(frozen=True, eq=False)
class ExactGPModel(KernelGP):
    """A NumPyro model of one argument, the rows; made by :func:`exact_gp`, which says what it samples.

    Its ``kernel_at`` is the kernel without the features.
    """

    features: Basis | None
    feature_scale: Any

    def __post_init__(self) -> None:
        """Refuse features that are no basis, and a scale of none."""
        super().__post_init__()
        if self.features is None and self.feature_scale is None:
            return
        if not isinstance(self.features, Basis):
            raise ValueError(
                "exact_gp: `features` must be a basis, such as sgp.LinearBasis(d) or one of `sgp.stack`, and "
                f"`feature_scale` belongs to it; got {type(self.features).__name__}."
            )

    def __call__(self, rows: Rows) -> None:
        """Sample hyperparameters and observe the rows."""
        self._check(rows)
        total, noise_scale = self._sample_for_rows("exact_gp", rows)
        if self.features is not None:
            scale = sample("feature_scale", self.feature_scale, log_normal(rows.output_scale, AMPLITUDE_SPREAD))
            checks.positive("feature_scale", scale, "exact_gp")
            unit = unit_weights(self.features, rows.X)
            total = total + FeatureKernel(self.features, DiagonalPrior(jnp.asarray(scale, unit.dtype) * unit))
        observe_exact("y", rows, total, noise_scale)

    def _check(self, rows: Any) -> None:
        require_rows("exact_gp", rows, (Rows,))
        if self.features is not None and self.features.input_dim != rows.input_dim:
            raise ValueError(
                f"exact_gp: `features` are of {self.features.input_dim} inputs, and the rows have {rows.input_dim}."
            )
        if checks.is_concrete(rows):
            check_outputs("exact_gp", rows, self.features is not None and bool(self.features.constant_features.any()))


def exact_gp(
    kernel: Callable[..., Kernel] | None = None,
    *,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    features: Basis | None = None,
    feature_scale: Any = None,
    **shape: Any,
) -> ExactGPModel:
    """An exact GP ``y = f(x) + noise`` of up to a few thousand rows, without a basis: O(n³) a gradient.

    Sites and default priors are those of :func:`fourier_gp`, with one lengthscale an input: log-normal with median √d/2
    standard deviations of that input and log sd 1; ``amplitude``, median the root mean square of y, log sd 1;
    ``noise_scale``, median 0.3 of it, log sd 1.5. Float64 only.

    f has mean zero, and with ``features`` a part linear in them: ``φ(x)ᵀw``, its weights integrated out with the rest.
    They are independent, with a standard deviation of ``feature_scale`` over how much the feature varies over the rows;
    beside a constant a feature is taken about its mean, so that it does not matter where inputs are counted from.
    ``feature_scale`` has the default prior of the amplitude.

    Several outputs are independent functions of one kernel, with a noise each; they should be of similar scale.

    :param kernel: class of the kernel, or a function of (lengthscale, amplitude); default squared exponential.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed; or :class:`SparseAxes`, for many
        inputs of which few matter.
    :param amplitude: a NumPyro distribution, or a number to hold fixed; one for all outputs.
    :param noise_scale: likewise; with q outputs, of shape () or (q,).
    :param features: a basis, such as ``sgp.LinearBasis(d)`` for a trend.
    :param feature_scale: a NumPyro distribution, or a number to hold fixed, in units of y.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the rows.
    :raises ValueError: for a kernel with values, or features that are no basis; when called, for other data than rows,
        y identically zero, an amplitude an output, or in float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> rows = sgp.rows(X, np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> with jax.enable_x64(True):
        ...     fit = sgp.fit_evidence(sgp.models.exact_gp(sgp.Matern52, noise_scale=0.1), rows)
        >>> sorted(fit.values)
        ['amplitude', 'lengthscale']
    """
    return ExactGPModel(kernel, lengthscale, amplitude, noise_scale, shape, features, feature_scale)
