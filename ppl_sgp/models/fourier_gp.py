"""GP regression on importance-weighted Fourier features, with its hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from .. import _checks
from ..bases.fourier import FourierBasis
from ..kernels import Kernel
from ..primitives import observe
from ..scales import lengthscale_prior
from ..statistics.statistics import SufficientStatistics

#: Log standard deviations of the default priors of the amplitude and of the noise.
AMPLITUDE_SPREAD, NOISE_SPREAD = 1.0, 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class FourierGP:
    """A NumPyro model of one argument, the statistics; made by :func:`fourier_gp`, which says what it samples."""

    kernel: Callable[..., Kernel] | None
    lengthscale: Any
    amplitude: Any
    noise_scale: Any
    shape: dict[str, Any]

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        if not isinstance(statistics, SufficientStatistics):
            raise ValueError(
                "fourier_gp is a model of one argument, the statistics from sgp.sufficient_statistics(basis, X, y); "
                f"got {type(statistics).__name__}."
            )
        basis = statistics.basis
        if not isinstance(basis, FourierBasis):
            raise ValueError(
                f"fourier_gp needs statistics of a FourierBasis; got {type(basis).__name__}. After `rotate`, write the "
                "model yourself: `sgp.observe('y', rotated, sgp.DiagonalPrior(amplitude), noise_scale)`."
            )
        _check_scale(statistics)
        scale = statistics.output_scale
        lengthscale = _sample(
            "lengthscale", _first(self.lengthscale, _default_lengthscale(basis, statistics)), ["input"]
        )
        amplitude = _sample("amplitude", _first(self.amplitude, _log_normal(scale, AMPLITUDE_SPREAD)))
        noise_scale = _sample("noise_scale", _first(self.noise_scale, _log_normal(0.3 * scale, NOISE_SPREAD)))
        shape = {name: _sample(name, value) for name, value in self.shape.items()}
        kernel = (self.kernel or _proposal_family(basis))(lengthscale, amplitude, **shape)
        prior = basis.weight_prior(kernel)
        numpyro.deterministic("effective_features", prior.effective_features)
        observe("y", statistics, prior, noise_scale)


def fourier_gp(
    kernel: Callable[..., Kernel] | None = None,
    *,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    **shape: Any,
) -> FourierGP:
    """A GP regression model ``y = f(x) + noise``, f of mean zero, over a frozen :class:`~ppl_sgp.FourierBasis`.

    Sites (all standard deviations and lengthscales, none a variance): ``lengthscale``, () or (d,);
    ``amplitude``; ``noise_scale``; the observed ``y``; and the deterministic ``effective_features``,
    how many of the m features carry weight (small: draw the basis closer, or with more features).

    Default priors follow the data's scale through the statistics. With rms the root mean square of y:

    - lengthscale: log-normal, median √d/2 standard deviations of each input, log sd 1. One for each
      input if the basis was drawn with one for each input, else one for all.
    - amplitude: log-normal, median rms, log sd 1.
    - noise_scale: log-normal, median 0.3 rms, log sd 1.5 (95%: 0.016 to 5.7 rms).

    An evidence costs O(m³), or O(m·rank²) when the numerical rank is low; never depends on n.

    :param kernel: class of the kernel; default that of the basis's proposal.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed.
    :param amplitude: a NumPyro distribution, or a number to hold fixed.
    :param noise_scale: a NumPyro distribution, or a number to hold fixed; with q outputs, shape (q,) is allowed.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: when called, for statistics of another basis, or y identically zero.

    .. doctest::

        >>> import numpyro.distributions as dist, ppl_sgp as sgp
        >>> model = sgp.models.fourier_gp(sgp.Matern52, noise_scale=dist.HalfNormal(0.1))
        >>> model.kernel.__name__
        'Matern52'
    """
    return FourierGP(kernel, lengthscale, amplitude, noise_scale, shape)


def _first(given: Any, default: Any) -> Any:
    return default if given is None else given


def _sample(name: str, value: Any, event_dims: list[str] | None = None) -> Any:
    if not isinstance(value, dist.Distribution):
        return value
    infer = {"event_dims": event_dims} if event_dims and value.event_dim else {}
    return numpyro.sample(name, value, infer=infer)


def _log_normal(median: Any, spread: float) -> dist.Distribution:
    return dist.LogNormal(jnp.log(jnp.asarray(median)), spread)


def _default_lengthscale(basis: FourierBasis, statistics: SufficientStatistics) -> dist.Distribution:
    median, spread = lengthscale_prior(statistics.input_scale)
    if np.ndim(getattr(basis.proposal[0], "lengthscale", 0.0)) == 1:
        return dist.LogNormal(jnp.log(median), spread).to_event(1)
    return dist.LogNormal(jnp.mean(jnp.log(median)), spread)


def _proposal_family(basis: FourierBasis) -> Callable[..., Kernel]:
    families = {type(kernel) for kernel in basis.proposal}
    family = families.pop()
    if families or not hasattr(basis.proposal[0], "lengthscale"):
        raise ValueError(
            "fourier_gp: the basis was drawn from kernels of several kinds, so say which the model uses: "
            "`fourier_gp(sgp.Matern52)`. For sums and products write the model with `sgp.observe`."
        )
    return family


def _check_scale(statistics: SufficientStatistics) -> None:
    moments = statistics.moments
    if not _checks.is_concrete(moments):
        return
    if not np.all(moments.sum_squares > 0):
        raise ValueError(
            "fourier_gp: y is identically zero, so its scale says nothing about amplitude and noise. "
            "Check the outputs, or write a model with priors of your own."
        )
    mean = np.abs(moments.y_mean)
    spread = np.sqrt(np.maximum(moments.sum_squares / moments.num_rows - mean**2, 0))
    if np.any(mean > 2 * spread) and moments.log_weights == 0:
        _checks.warn(
            f"The mean of y ({float(np.max(mean)):.3g}) is large against its standard deviation "
            f"({float(np.max(spread)):.3g}), but the GP has mean zero. Subtract the mean first, and add it to "
            "predictions.",
            stacklevel=2,
        )
