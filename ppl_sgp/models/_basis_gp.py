"""GP regression on any basis that knows its kernels, with hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro

from .._internal import checks
from ..kernels import Kernel
from ..priors import DiagonalPrior
from ..sites.observe import observe
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import check_statistics, refuse_amplitudes, refuse_parts, scale_of_outputs
from .kernel_gp import KernelGP


@dataclasses.dataclass(frozen=True, eq=False)
class BasisGP(KernelGP):
    """A NumPyro model of one argument, the statistics; made by :func:`basis_gp`, which says what it samples."""

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        refuse_parts("basis_gp", statistics)
        check_statistics("basis_gp", statistics)
        self._observe(statistics, statistics.basis.input_dim > 1)

    def _observe(self, statistics: SufficientStatistics, ard: bool) -> None:
        basis, scale = statistics.basis, scale_of_outputs(statistics)
        kernel, amplitude, noise_scale = self._sample("basis_gp", statistics, basis, ard, scale)
        if jnp.ndim(amplitude):
            prior = jax.vmap(lambda amplitude: basis.weight_prior(kernel(amplitude)))(
                jnp.asarray(amplitude, checks.common_dtype(amplitude))
            )
            if not isinstance(prior, DiagonalPrior):
                refuse_amplitudes("basis_gp", type(prior))
        else:
            prior = basis.weight_prior(kernel(amplitude))
        numpyro.deterministic("effective_features", prior.effective_features)
        observe("y", statistics, prior, noise_scale)


def basis_gp(
    kernel: Callable[..., Kernel] | None = None,
    *,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    **shape: Any,
) -> BasisGP:
    """A GP regression model ``y = f(x) + noise`` over any basis with a prior for kernels, f of mean zero.

    For example :class:`~ppl_sgp.LaplaceBasis` or :class:`~ppl_sgp.InterpolationBasis`. Bases whose features
    hold one lengthscale frozen (:class:`~ppl_sgp.GridEigenBasis`, :class:`~ppl_sgp.NystromBasis`) need it
    fixed here as well, and sample the amplitude. Sites and default priors are those of
    :func:`fourier_gp`, with one lengthscale an input. The cost is that of the basis's prior:
    :func:`~ppl_sgp.evidence_cost`. With several outputs, a basis whose weights are correlated
    (:class:`~ppl_sgp.InterpolationBasis`) takes one amplitude for all of them, so give it one.

    :param kernel: class of the kernel, or a function of (lengthscale, amplitude); default squared exponential.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed; or :class:`SparseAxes`, for many
        inputs of which few matter.
    :param amplitude: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :param noise_scale: likewise.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: for a kernel with values; when called, for a stack, which :func:`additive` takes, another basis
        without a prior for this kernel, y identically zero, or an amplitude an output where weights are correlated.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 20), X, y)
        >>> fit = sgp.fit_evidence(sgp.models.basis_gp(sgp.Matern52, noise_scale=0.1), stats)
        >>> sorted(fit.values)
        ['amplitude', 'lengthscale']
    """
    return BasisGP(kernel, lengthscale, amplitude, noise_scale, shape)
