"""The model of a placed basis: a level, and a process whose lengthscales are free or frozen."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from .._internal import checks
from .._internal.by_value import EqualByValue
from .._internal.shown import ShownFields
from ..bases.basis import Basis
from ..bases.rotated import RotatedBasis
from ..kernels import Constant, Kernel
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, LOG_LENGTHSCALE_SPREAD, NOISE_SHARE, NOISE_SPREAD
from ..models.hyperpriors import log_normal, sample
from ..priors import DiagonalPrior
from ..sites.observe import observe
from ..statistics.statistics import SufficientStatistics


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlacedGP(EqualByValue, ShownFields):
    """A NumPyro model of one argument, the statistics of a placed basis; made by :func:`~ppl_sgp.place`.

    ``y = level + f(x) + noise``, where the level has the prior N(mean of y, amplitude²) and f the amplitude of the
    kernel. Sites: ``lengthscale`` (d,), unless it is frozen, log-normal with log sd 1 about what an exact GP found;
    ``amplitude``, log-normal with the standard deviation of y as its median and log sd 1; ``noise_scale``, log-normal
    with 0.3 of it and log sd 1.5; the observed ``y``. The scales are those of the rows that were placed. Of other
    likelihoods the predictor is ``level + f(x)``: the level has the constant that fits best as its mean, the amplitude
    the scale of predictors as its median (one, unless they have the unit of y), and there is no noise scale.

    :ivar family: the class of the kernel.
    :ivar lengthscale: what an exact GP found, (d,), units of x.
    :ivar free: whether lengthscales are sampled.
    :ivar level: the mean of y.
    :ivar output_scale: the standard deviation of y.
    :ivar noise_unit: that of y weighted by row, of which the noise is a part: the same without row weights. ``None`` of
        other likelihoods.
    """

    family: Callable[..., Kernel]
    lengthscale: Any
    free: bool
    level: float
    output_scale: float
    noise_unit: float | None

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        if not isinstance(statistics, SufficientStatistics):
            raise ValueError(
                "The model of `place` takes one argument, statistics of its basis such as `placed.statistics`; got "
                f"{type(statistics).__name__}."
            )
        statistics.require_one_group("place")
        if statistics.has_noise != (self.noise_unit is not None):
            kinds = "a likelihood of its own", "Gaussian noise"
            raise ValueError(
                f"This model was placed for {kinds[self.noise_unit is not None]}, and the statistics are of "
                f"{kinds[statistics.has_noise]}. Place again: `sgp.place(key, X, y, likelihood=...)`."
            )
        lengthscale = self.lengthscale
        if self.free:
            median = log_normal(self.lengthscale, LOG_LENGTHSCALE_SPREAD)
            lengthscale = sample("lengthscale", None, median, ["input"])
        amplitude = sample("amplitude", None, log_normal(self.output_scale, AMPLITUDE_SPREAD))
        noise_scale = None
        if self.noise_unit is not None:
            noise_scale = sample("noise_scale", None, log_normal(NOISE_SHARE * self.noise_unit, NOISE_SPREAD))
        prior = self.weight_prior(statistics.basis, lengthscale, amplitude)
        if self.free:
            numpyro.deterministic("effective_features", prior.effective_features)
        observe("y", statistics, prior, noise_scale)

    def kernel_at(self, draw: dict[str, Any], basis: Basis | None = None, output: int = 0) -> Kernel:
        """See :meth:`~ppl_sgp.models.KernelModel.kernel_at`: that of the process plus that of the level."""
        amplitude = draw["amplitude"]
        return self.family(draw.get("lengthscale", self.lengthscale), amplitude) + Constant(amplitude)

    def weight_prior(self, basis: Basis, lengthscale: Any, amplitude: Any) -> DiagonalPrior:
        """The prior of the weights of a placed basis, that of the level first."""
        dtype = checks.common_dtype(amplitude)
        if self.free:
            return _free_prior(self.family, basis, lengthscale, amplitude, np.asarray([self.level], dtype))
        log_amplitude = jnp.log(jnp.asarray(amplitude, dtype))
        m = basis.num_features
        mean = basis.rotation[0] if isinstance(basis, RotatedBasis) else jnp.arange(m) == 0
        scales = jnp.broadcast_to(log_amplitude, (m,))
        return DiagonalPrior.from_log_scale(scales, self.level * jnp.asarray(mean, dtype))


# One program also where NumPyro evaluates the model eagerly, operation by operation.
@functools.partial(jax.jit, static_argnums=0)
def _free_prior(family: Any, basis: Any, lengthscale: Any, amplitude: Any, level: Any) -> DiagonalPrior:
    log_amplitude = jnp.log(jnp.asarray(amplitude, level.dtype))
    of_level = DiagonalPrior.from_log_scale(log_amplitude[None], level)
    return basis.weight_prior((of_level, family(lengthscale, amplitude)))
