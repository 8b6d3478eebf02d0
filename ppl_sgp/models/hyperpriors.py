"""What the ready models share: sampling what may be fixed instead, default hyper-priors, and a look at y first."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from .._internal import checks
from ..bases.fourier import FourierBasis
from ..bases.rotated import RotatedBasis
from ..priors import WeightPrior
from ..statistics.grouped import GroupedStatistics
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics

Data = SufficientStatistics | GroupedStatistics | Rows | ChunkedRows

#: Mean of y in units of its standard deviation that a GP of mean zero can follow.
MOST_MEAN = 2.0


def sample(name: str, value: Any, default: Any = None, event_dims: list[str] | None = None) -> Any:
    """A draw from ``value``, or from ``default`` if it is ``None``; numbers and arrays are held fixed."""
    value = default if value is None else value
    if not isinstance(value, dist.Distribution):
        return value
    infer = {"event_dims": event_dims} if event_dims and value.event_dim else {}
    return numpyro.sample(name, value, infer=infer)


def sample_noise_scale(owner: str, data: Data, value: Any, default: dist.Distribution) -> Any:
    """The noise as :func:`sample` has it; one where a likelihood takes its place."""
    if data.has_noise:
        return sample("noise_scale", value, default, ["output"])
    if value is not None:
        raise ValueError(
            f"{owner}: compressed likelihoods have no noise scale, but `noise_scale` was given. Leave it out; "
            "parameters of the likelihood are those of the class in `sgp.likelihoods`."
        )
    return 1.0


class OneProgramLogNormal(dist.LogNormal):
    """Log-normal whose density is one program also where NumPyro evaluates a model eagerly, as it does for initial
    values: a dozen otherwise, and as many for the gradient."""

    def log_prob(self, value: Any, intermediates: Any = None) -> jax.Array:
        """Log density, elementwise."""
        return _log_density(self.loc, self.scale, value)


@jax.jit
def _log_density(loc: Any, scale: Any, value: Any) -> jax.Array:
    return dist.LogNormal(loc, scale).log_prob(value)


def log_normal(median: Any, spread: float) -> dist.Distribution:
    """Log-normal with the given median, () or (q,), and standard deviation of the logarithm."""
    dtype = checks.common_dtype(median)
    location = np.log(np.asarray(median, dtype)) if checks.is_concrete(median) else jnp.log(jnp.asarray(median))
    return OneProgramLogNormal(location, spread).to_event(jnp.ndim(median))


def scale_of_outputs(data: Data) -> Any:
    """Root mean square of y: a number for one output, of several each one's own, shape (q,)."""
    return data.output_scales if data.num_outputs > 1 else data.output_scale


def check_amplitudes(owner: str, amplitude: Any, data: Data) -> None:
    """Refuse amplitudes that are not positive, or neither one for all outputs nor one for each."""
    checks.positive("amplitude", amplitude, owner)
    if jnp.shape(amplitude) not in ((), (data.num_outputs,)):
        raise ValueError(
            f"{owner}: `amplitude` must be a number for all outputs, or one for each of {data.num_outputs}; got "
            f"shape {jnp.shape(amplitude)}."
        )


def refuse_amplitudes(owner: str, prior: type[WeightPrior]) -> None:
    """Say that correlated weights have one covariance for all outputs."""
    raise ValueError(
        f"{owner}: a {prior.__name__} has one amplitude for all outputs. Divide each column of y by its scale and pass "
        "one amplitude, such as `amplitude=dist.LogNormal(0.0, 1.0)`, or use the statistics of one output at a time."
    )


def weight_unit(statistics: SufficientStatistics) -> Any:
    """Standard deviation of independent weights with which f has mean square one over the rows: √(n/tr A)."""
    moments = statistics.moments
    trace = moments.gram.sum() if moments.gram.ndim == 1 else moments.gram.trace()
    return (statistics.total_weight / trace) ** 0.5


def check_statistics(owner: str, statistics: Any, any_mean: bool = False) -> None:
    """Refuse other arguments and y identically zero; warn of a mean that a GP of mean zero cannot follow."""
    if not isinstance(statistics, SufficientStatistics):
        kept = " For rows that are not compressed take `sgp.models.exact_gp`." if isinstance(statistics, Rows) else ""
        raise ValueError(
            f"{owner} is a model of one argument, the statistics from sgp.sufficient_statistics(basis, X, y); "
            f"got {type(statistics).__name__}.{kept}"
        )
    statistics.require_one_group(owner)
    moments = statistics.moments
    if not checks.is_concrete(moments):
        return
    if not np.any(moments.gram > 0):
        raise ValueError(
            f"{owner}: all features are zero at all rows. The basis ({type(statistics.basis).__name__}) does not cover "
            "these inputs, or has lengthscales far shorter than the distance from its points: check units and range."
        )
    check_outputs(owner, statistics, any_mean)


def check_outputs(owner: str, data: Data, any_mean: bool = False) -> None:
    """Refuse y identically zero; warn of a mean that a GP of mean zero cannot follow, unless the model follows any."""
    if not np.all(data.output_scales > 0):
        raise ValueError(
            f"{owner}: y is identically zero, so its scale says nothing about amplitude and noise. "
            "Check the outputs, or write a model with priors of your own."
        )
    excess = None if any_mean else mean_excess(data)
    if excess is not None:
        checks.warn(
            f"The mean of y ({excess[0]:.3g}) is large against its standard deviation ({excess[1]:.3g}), but the GP "
            "has mean zero. Subtract the mean first, and add it to predictions."
        )


def mean_and_spread(data: Data) -> tuple[Any, Any] | None:
    """Mean and standard deviation of each output, shape () or (q,). Of weighted rows and of groups not known."""
    if isinstance(data, GroupedStatistics):
        return None
    if not isinstance(data, SufficientStatistics):
        return None if data.row_weights is not None else (data.y.mean(axis=0), data.y.std(axis=0))
    moments = data.moments
    if moments.log_weights != 0:
        return None
    mean = moments.y_mean
    return mean, np.sqrt(np.maximum(moments.sum_squares / moments.num_rows - mean**2, 0))


def mean_excess(data: Data) -> tuple[float, float] | None:
    """Mean and standard deviation of y, if a GP of mean zero follows that mean badly. Of weighted rows not known."""
    known = mean_and_spread(data)
    if known is None or not np.any(np.abs(known[0]) > MOST_MEAN * known[1]):
        return None
    return float(np.max(np.abs(known[0]))), float(np.max(known[1]))


def require_one_output(owner: str, statistics: SufficientStatistics, remedy: str) -> None:
    """Refuse statistics of several outputs."""
    if np.ndim(statistics.moments.sum_squares):
        raise ValueError(
            f"{owner} needs y of shape (n,); the statistics are of {statistics.num_outputs} outputs. Run it for each"
            f"{remedy}."
        )


def refuse_parts(owner: str, statistics: Any) -> None:
    """Refuse statistics of a stack, whose parts have kernels of their own."""
    if isinstance(statistics, SufficientStatistics) and statistics.basis.parts:
        raise ValueError(
            f"{owner} is a model of one kernel, and the basis is a stack of {len(statistics.basis.parts)} parts. Use "
            "`sgp.models.additive()`, which has default priors for each part, or write the model yourself: "
            "`sgp.observe('y', stats, stats.basis.weight_prior((k1, k2)), noise_scale)`."
        )


def require_fourier(owner: str, statistics: SufficientStatistics, remedy: str) -> FourierBasis:
    """The Fourier basis of the statistics; any other is refused."""
    if not isinstance(statistics.basis, FourierBasis):
        got = type(statistics.basis).__name__
        raise ValueError(f"{owner} needs statistics of a FourierBasis; got {got}. {remedy}")
    return statistics.basis


def feature_unit(statistics: SufficientStatistics) -> Any:
    """Weights with which each feature alone has mean square one over the rows: √(n/A_jj), shape (m,).

    Of statistics rotated with a diagonal prior, the units are those of the features before. A feature that is zero at
    all rows gets the largest unit of the others.
    """
    moments = statistics.moments
    square = moments.gram if moments.gram.ndim == 1 else jnp.diagonal(jnp.asarray(moments.gram))
    if isinstance(statistics.basis, RotatedBasis):
        T = jnp.asarray(statistics.basis.rotation)  # TTᵀ is the prior covariance S₀⁻¹, and T⁻¹ = TᵀS₀
        square = (T / jnp.sum(T**2, axis=1)[:, None]) ** 2 @ square
    least = jnp.min(jnp.where(square > 0, square, jnp.inf))
    return (statistics.total_weight / jnp.maximum(square, least)) ** 0.5
