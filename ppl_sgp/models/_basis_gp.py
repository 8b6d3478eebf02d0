"""GP regression on any basis that knows its kernels, with hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal import checks
from .._internal.by_value import EqualByValue
from ..bases.basis import Basis
from ..kernels import Kernel, SquaredExponential
from ..kernels.hyperprior_scales import lengthscale_prior
from ..priors import DiagonalPrior, WeightPrior
from ..sites.observe import observe
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import check_amplitudes, check_statistics, log_normal, refuse_amplitudes, sample, scale_of_outputs

#: Log standard deviations of the default priors of the amplitude and of the noise.
AMPLITUDE_SPREAD, NOISE_SPREAD = 1.0, 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class BasisGP(EqualByValue):
    """A NumPyro model of one argument, the statistics; made by :func:`basis_gp`, which says what it samples."""

    kernel: Callable[..., Kernel] | None
    lengthscale: Any
    amplitude: Any
    noise_scale: Any
    shape: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse a kernel whose hyperparameters have values already."""
        if self.kernel is None or (callable(self.kernel) and not isinstance(self.kernel, Kernel)):
            return
        got = f"one of {type(self.kernel).__name__}" if isinstance(self.kernel, Kernel) else repr(self.kernel)
        raise ValueError(
            f"`kernel` must be a class such as sgp.Matern52, or a function of lengthscale and amplitude; got {got}. "
            "The model samples hyperparameters; hold some fixed with `lengthscale=`, `amplitude=`."
        )

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        check_statistics("basis_gp", statistics)
        self._observe(statistics, statistics.basis.input_dim > 1)

    def kernel_at(self, draw: dict[str, Any], basis: Basis, output: int = 0) -> Kernel:
        """See :meth:`KernelModel.kernel_at`."""
        shape = {name: draw.get(name, value) for name, value in self.shape.items()}
        lengthscale, amplitude = draw.get("lengthscale", self.lengthscale), draw.get("amplitude", self.amplitude)
        return self._family(basis)(lengthscale, amplitude[output] if jnp.ndim(amplitude) else amplitude, **shape)

    def _family(self, basis: Any) -> Callable[..., Kernel]:
        return self.kernel or SquaredExponential

    def _observe(self, statistics: SufficientStatistics, ard: bool) -> None:
        basis, scale = statistics.basis, scale_of_outputs(statistics)
        kernel = self._family(basis)
        median, spread = lengthscale_prior(statistics.input_scale)
        each, shared = dist.LogNormal(jnp.log(median), spread), dist.LogNormal(jnp.mean(jnp.log(median)), spread)
        lengthscale = sample("lengthscale", self.lengthscale, each.to_event(1) if ard else shared, ["input"])
        amplitude = sample("amplitude", self.amplitude, log_normal(scale, AMPLITUDE_SPREAD), ["output"])
        noise_scale = sample("noise_scale", self.noise_scale, log_normal(0.3 * scale, NOISE_SPREAD), ["output"])
        shape = {name: sample(name, value) for name, value in self.shape.items()}
        check_amplitudes("basis_gp", amplitude, statistics)

        def prior_of(amplitude: Any) -> WeightPrior:
            return basis.weight_prior(kernel(lengthscale, amplitude, **shape))

        if jnp.ndim(amplitude):
            prior = jax.vmap(prior_of)(jnp.asarray(amplitude, checks.common_dtype(amplitude)))
            if not isinstance(prior, DiagonalPrior):
                refuse_amplitudes("basis_gp", type(prior))
        else:
            prior = prior_of(amplitude)
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
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed.
    :param amplitude: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :param noise_scale: likewise.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: for a kernel with values; when called, for a basis without a prior for this kernel, y
        identically zero, or an amplitude an output where weights are correlated.

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
