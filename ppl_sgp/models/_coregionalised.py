"""Several correlated outputs: the intrinsic model of coregionalisation, with its covariance between outputs free."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal import checks
from ..kernels import Kernel
from ..sites.observe import observe_groups
from ..statistics.grouped import GroupedStatistics
from .hyperpriors import check_outputs
from .kernel_gp import KernelGP


@dataclasses.dataclass(frozen=True, eq=False)
class CoregionalisedGP(KernelGP):
    """A NumPyro model of one argument, the grouped statistics; made by :func:`coregionalised`."""

    concentration: Any = 1.0

    def __call__(self, statistics: GroupedStatistics) -> None:
        """Sample hyperparameters and observe the compressed data of all outputs."""
        if not isinstance(statistics, GroupedStatistics) or statistics.num_outputs < 2:
            raise ValueError(
                "coregionalised is a model of the statistics of two or more outputs, from sgp.output_statistics(basis, "
                f"X, y); got {type(statistics).__name__}. For one output take `sgp.models.basis_gp`."
            )
        if statistics.basis.parts:
            raise ValueError(
                "coregionalised is a model of one kernel, and the basis is a stack. Write the model yourself: "
                "`sgp.observe_groups('y', stats, stats.basis.weight_prior((k1, k2)), noise_scale, mixing)`."
            )
        check_outputs("coregionalised", statistics)
        basis, q = statistics.basis, statistics.num_outputs
        kernel, amplitude, noise_scale = self._sample(
            "coregionalised", statistics, basis, basis.input_dim > 1, statistics.output_scales
        )
        L = numpyro.sample("correlation_factor", dist.LKJCholesky(q, self.concentration))
        numpyro.deterministic("correlation", L @ L.T)
        prior = basis.weight_prior(kernel(jnp.ones((), checks.common_dtype(amplitude))))
        numpyro.deterministic("effective_features", prior.effective_features)
        observe_groups("y", statistics, prior, noise_scale, jnp.broadcast_to(amplitude, (q,))[:, None] * L)


def coregionalised(
    kernel: Callable[..., Kernel] | None = None,
    *,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    concentration: Any = 1.0,
    **shape: Any,
) -> CoregionalisedGP:
    """Correlated outputs ``y_k = f_k(x) + noise``, ``cov(f_k(x), f_l(x')) = aₖ aₗ Rₖₗ k(x, x')``; some may be missing.

    The intrinsic model of coregionalisation (Bonilla, Chai & Williams 2008) with any correlation matrix R of the q
    outputs. Sites: ``lengthscale``, () or (d,); ``amplitude`` a and ``noise_scale``, (q,), with the default priors of
    :func:`fourier_gp`, each output with its own rms; ``correlation_factor``, the Cholesky factor of R; the observed
    ``y``; and the deterministic ``correlation`` R and ``effective_features``. An evidence costs what
    :func:`~ppl_sgp.observe_groups` says. float64 only.

    :param kernel: class of the kernel, or a function of (lengthscale, amplitude); default squared exponential.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed.
    :param amplitude: likewise, of shape () or (q,).
    :param noise_scale: likewise.
    :param concentration: of the LKJ prior of R: one is uniform over correlation matrices, more favours independence.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the statistics of :func:`~ppl_sgp.output_statistics`.
    :raises ValueError: for a kernel with values, or a concentration that is not positive; when called, for other
        statistics, one output, a stack, or y identically zero.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = np.hstack([np.cos(6 * X), np.cos(6 * X) + 0.1 * np.cos(77 * X)])
        >>> y[20:, 1] = np.nan
        >>> stats = sgp.output_statistics(sgp.LaplaceBasis.from_data(X, 12), X, y)
        >>> model = sgp.models.coregionalised(sgp.Matern52, lengthscale=0.4, noise_scale=0.1)
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     sorted(sgp.fit_evidence(model, stats).values)
        ['amplitude', 'correlation_factor']
    """
    checks.positive("concentration", concentration, "coregionalised")
    return CoregionalisedGP(kernel, lengthscale, amplitude, noise_scale, shape, concentration)
