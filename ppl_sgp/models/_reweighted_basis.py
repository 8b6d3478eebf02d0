"""A basis re-weighted by free prior variances: chapter 5 of Evans (2022)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal import checks
from .._internal.by_value import EqualByValue
from ..evidence import evidence_cost
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, log_normal_by_mode
from ..priors import DiagonalPrior, HouseholderPrior, WeightPrior
from ..sites.observe import observe
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import (
    check_amplitudes,
    check_statistics,
    log_normal,
    refuse_amplitudes,
    require_fourier,
    sample,
    sample_noise_scale,
    scale_of_outputs,
    weight_unit,
)

#: Mode and variance of the log-normal hyper-priors, of prior variances and of the noise variance, in units of the
#: natural weight variance and of the mean square of y (Evans 2022, section 5.4.2; there the mode of the noise is
#: that of a type-II fit).
VARIANCE_PRIOR, NOISE_PRIOR = (1.0, 100.0), (0.1, 0.04)


@dataclasses.dataclass(frozen=True, eq=False)
class ReweightedBasis(EqualByValue):
    """A NumPyro model of one argument, the statistics; made by :func:`reweighted_basis`, which says what it samples."""

    reflections: int
    scale: Any
    amplitude: Any
    noise_scale: Any

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample variances and observe the compressed data."""
        check_statistics("reweighted_basis", statistics)
        self._check_reflections(statistics)
        scale, amplitude = self._scales(statistics, statistics.num_features), self._amplitude(statistics)
        prior: WeightPrior = _scaled(scale, amplitude)
        if self.reflections:
            if jnp.ndim(amplitude):
                refuse_amplitudes("reweighted_basis", HouseholderPrior)
            free = dist.Normal(0.0, 1.0).expand([self.reflections, statistics.num_orthonormal]).to_event(2)
            prior = HouseholderPrior(amplitude * scale, numpyro.sample("reflections", free))
        self._observe(statistics, prior)

    def _scales(self, statistics: SufficientStatistics, count: int) -> Any:
        # Of several outputs, amplitudes have the unit of y.
        unit = weight_unit(statistics) * (statistics.output_scale if self._one_size(statistics) else 1.0)
        default = log_normal_by_mode(*VARIANCE_PRIOR, unit).expand([count]).to_event(1)
        return sample("scale", self.scale, default, ["feature"])

    def _one_size(self, statistics: SufficientStatistics) -> bool:
        """Whether ``scale`` has the unit of y itself."""
        return self.amplitude is None and (statistics.num_outputs == 1 or self.scale is not None)

    def _amplitude(self, statistics: SufficientStatistics) -> Any:
        if self._one_size(statistics):
            return 1.0
        default = log_normal(scale_of_outputs(statistics), AMPLITUDE_SPREAD)
        amplitude = sample("amplitude", self.amplitude, default, ["output"])
        check_amplitudes("reweighted_basis", amplitude, statistics)
        return amplitude

    def _observe(self, statistics: SufficientStatistics, prior: WeightPrior) -> None:
        unit = scale_of_outputs(statistics)
        default = log_normal_by_mode(*NOISE_PRIOR, unit).to_event(jnp.ndim(unit))
        noise_scale = sample_noise_scale("reweighted_basis", statistics, self.noise_scale, default)
        observe("y", statistics, prior, noise_scale)

    def _check_reflections(self, statistics: SufficientStatistics) -> None:
        if self.reflections and not statistics.num_orthonormal:
            raise ValueError(
                f"reweighted_basis: {self.reflections} reflections need orthonormal features; pass "
                "`stats.rotate(orthonormal=True)` to the model."
            )

    def describe(self, statistics: SufficientStatistics) -> str:
        """The tier the model runs in on these statistics, and what the data leave to the prior.

        :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, rotated or not.
        """
        self._check_reflections(statistics)
        m, rank = statistics.num_features, statistics.rank
        prior: WeightPrior = DiagonalPrior(1.0)
        if self.reflections:
            prior = HouseholderPrior(jnp.ones(m), jnp.ones((self.reflections, statistics.num_orthonormal)))
        return (
            f"{evidence_cost(statistics, prior)} an evidence with its gradient; {m} weights, {rank} directions that "
            f"the data touch, {m - rank} they do not (kept for predictive variance)"
        )


def reweighted_basis(
    reflections: int = 0, *, scale: Any = None, amplitude: Any = None, noise_scale: Any = None
) -> ReweightedBasis:
    """GP regression with the kernel ``φ(x)ᵀS⁻¹φ(z)`` of any basis, S sampled (Evans 2022, section 5.2).

    Which of the three tiers it runs in follows from the statistics it is given (``model.describe(stats)``):

    - ``stats``: S diagonal, one variance a feature. O(m³), or O(m·rank²) at low rank.
    - ``stats.rotate(orthonormal=True)`` with k reflections: ``S̃ = U D Uᵀ``, U a product of k Householder
      reflections. O(k·m): O(m²) for k = m, when any S can be reached.
    - ``stats.rotate()``: S̃ diagonal, one variance a principal direction of the data. O(m). The prior then
      depends on the inputs (section 5.2.3).

    Sites: ``scale`` (m,), prior standard deviations of the weights; ``reflections`` (k, num_orthonormal), if any;
    ``noise_scale``; the observed ``y``. Default priors are the thesis's log-normals, of variances, with
    mode 1 and variance 100 in units of ``rms²·n/tr A`` (all weights together then explain y), and of the noise
    variance with mode 0.1 and variance 0.04 in units of rms², rms² being the mean square of y.

    With q > 1 outputs, which may have different units, ``scale`` is shared, in units of ``√(n/tr A)``, and multiplied
    by a site ``amplitude`` (q,): about the standard deviation of f, by default log-normal with median rms, the output's
    own, and log sd 1. ``noise_scale`` has shape (q,), too.

    :param reflections: the number k of Householder reflections.
    :param scale: a NumPyro distribution over (m,) standard deviations, or an array to hold fixed.
    :param amplitude: a NumPyro distribution, or a number to hold fixed, that multiplies ``scale``; of shape () or (q,).
        Default 1 for one output, or where ``scale`` is given.
    :param noise_scale: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: when called, for reflections without orthonormal features, y identically zero, or reflections
        with an amplitude an output.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
        >>> print(sgp.models.reweighted_basis().describe(stats.rotate()).split(";")[0])
        O(m) an evidence with its gradient
    """
    checks.whole_number("reflections", reflections, 0, "reweighted_basis")
    return ReweightedBasis(reflections, scale, amplitude, noise_scale)


def _scaled(scale: Any, amplitude: Any) -> DiagonalPrior:
    """One prior, or one for each of several amplitudes."""
    if jnp.ndim(amplitude) == 0:
        return DiagonalPrior(amplitude * scale)
    scale = jnp.asarray(scale)
    return DiagonalPrior(jnp.asarray(amplitude)[:, None] * jnp.broadcast_to(scale, (len(amplitude), scale.shape[-1])))


@dataclasses.dataclass(frozen=True, eq=False)
class FreeSpectrumGP(ReweightedBasis):
    """A NumPyro model of one argument, the statistics; made by :func:`free_spectrum_gp`."""

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample variances and observe the compressed data."""
        check_statistics("free_spectrum_gp", statistics)
        remedy = "Make one with `sgp.FourierBasis.from_data(key, X, num_features)`, and do not rotate."
        require_fourier("free_spectrum_gp", statistics, remedy)
        # A cosine and a sine share the variance of their frequency: the kernel is stationary.
        scale = jnp.tile(self._scales(statistics, statistics.num_features // 2), 2)
        self._observe(statistics, _scaled(scale, self._amplitude(statistics)))


def free_spectrum_gp(*, scale: Any = None, amplitude: Any = None, noise_scale: Any = None) -> FreeSpectrumGP:
    """GP regression with a free stationary kernel: one variance for each frequency of a Fourier basis.

    In the limit of many frequencies any continuous stationary kernel that has a spectral density (Evans 2022,
    theorem 5.2; the condition is missing in print). O(m³), or O(m·rank²) at low rank.

    Sites: ``scale`` (m/2,), the prior standard deviation of the weights of each frequency; ``noise_scale``;
    the observed ``y``. Default priors as in :func:`reweighted_basis`.

    :param scale: a NumPyro distribution over (m/2,) standard deviations, or an array to hold fixed.
    :param amplitude: as there.
    :param noise_scale: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: when called, for statistics of another basis, or y identically zero.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.models.free_spectrum_gp(noise_scale=0.1).noise_scale
        0.1
    """
    return FreeSpectrumGP(0, scale, amplitude, noise_scale)
