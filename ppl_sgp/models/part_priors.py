"""Default priors of the parts of additive models: each follows the scale of the data and of its own inputs."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ..bases.basis import Basis
from ..bases.columns import SelectedColumns
from ..bases.feature_kernel import FeatureKernel
from ..bases.fourier import FourierBasis
from ..bases.frozen_kernel import FrozenKernelBasis
from ..bases.linear import LinearBasis
from ..bases.periodic import PeriodicBasis
from ..bases.tensor import TensorBasis, tensor
from ..kernels import Kernel, Linear, Matern32, OfColumns, Periodic, Sum
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, lengthscale_prior
from ..priors import DiagonalPrior, WeightPrior
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import log_normal, mean_and_spread, sample

#: Standard deviation of a part as a share of that of y, the median of its prior; and the spread of the logarithm, by
#: which 95% are within a factor 19 either way: a part may be next to nothing, or nearly all.
PART_SHARE, PART_SPREAD = 0.3, 1.5
#: The same of the lengthscale of a season, on the unit circle: from three bumps a period to one smooth wave.
SEASON_LENGTHSCALE, SEASON_SPREAD = 1.0, 0.7
#: Median standard deviation of the level about the mean of y, in standard deviations of y: as good as unknown.
LEVEL_SPREAD = 3.0


#: Of smooth parts. Rows of tables have more turns than a squared exponential, which makes up for them by short
#: lengthscales and large amplitudes: by 75 nats of 20,000 flights (benchmarks/flights.py), in all parts.
DEFAULT_KERNEL = Matern32


@dataclasses.dataclass(frozen=True)
class DataScales:
    """What default priors follow.

    :ivar mean: mean of y; zero where it is not known.
    :ivar spread: standard deviation of y, or its root mean square where the mean is not known; a typical one of f, of
        another likelihood.
    :ivar inputs: standard deviation of each input, shape (d,).
    :ivar features: mean square of each feature over the rows, weighted as they are, shape (m,).
    """

    mean: Any
    spread: Any
    inputs: Any
    features: Any

    @classmethod
    def of_statistics(cls, statistics: SufficientStatistics) -> DataScales:
        """Those of statistics of one output."""
        rms, known = statistics.output_scale, mean_and_spread(statistics)
        mean, spread = (jnp.asarray(0.0), rms) if known is None else known
        whole = jnp.isfinite(mean) & (spread > 1e-6 * rms)  # of simulated outputs the mean is not known
        moments = statistics.moments
        square = moments.gram if moments.gram.ndim == 1 else jnp.diagonal(jnp.asarray(moments.gram))
        return cls(
            jnp.where(whole, mean, 0.0),
            jnp.where(whole, spread, rms),
            jnp.asarray(statistics.input_scale),
            jnp.sum(jnp.reshape(square, (-1, statistics.basis.num_features)), axis=0) / statistics.total_weight,
        )

    def of_columns(self, columns: Any) -> DataScales:
        """Those of some of the inputs."""
        return dataclasses.replace(self, inputs=self.inputs[jnp.asarray(columns)])

    @property
    def part(self) -> Any:
        """The median standard deviation of a part."""
        return PART_SHARE * self.spread


@dataclasses.dataclass(frozen=True)
class Part:
    """How a basis becomes a part of an additive model: its hyperparameters, and its prior at values of these.

    :ivar sites: default priors by the last word of a site's name, functions of :class:`DataScales`.
    :ivar build: from values by such words to what ``weight_prior`` of the basis takes, or to a prior of its weights.
    :ivar scale: the word of the hyperparameter that multiplies f, which is one in all factors of a product but one.
    :ivar exact: from values to the kernel that features stand for, where ``build`` makes a prior of their weights.
    """

    sites: Mapping[str, Callable[[DataScales], dist.Distribution]]
    build: Callable[[Mapping[str, Any]], Kernel | WeightPrior]
    scale: str
    exact: Callable[[Mapping[str, Any]], Kernel] | None = None


def part_prior(
    name: str,
    basis: Basis,
    statistics: SufficientStatistics,
    *,
    features: slice = slice(None),
    **given: Any,
) -> WeightPrior:
    """Inside a NumPyro model, sample the hyperparameters of one part of a stack, and return the prior of its weights.

    Sites are called after the part, ``trend_amplitude`` of a part ``trend``. Default priors follow the data: standard
    deviations of parts are log-normal with 0.3 times that of y as their median and log sd 1.5, so that each part may be
    next to nothing or nearly all of y. By the kind of the basis:

    ==================================  =============================================================================
    basis                               sites
    ==================================  =============================================================================
    one that stands for a kernel        ``_amplitude``, and ``_lengthscale``, one an input, log-normal with √d/2
    (Laplace, interpolation, Fourier    standard deviations of the input as median and log sd 1; of ``Matern32``, or of
    of one kernel)                      the class of kernel that random features were drawn from
    ``FourierBasis`` of several         ``_amplitude``: f has the average of the kernels that it was drawn from; with a
    kernels (``from_data``)             ``kernel`` as above, by importance weights
    ``PeriodicBasis``                   ``_amplitude``; ``_lengthscale`` on the unit circle, log-normal, 1 and 0.7
    ``LinearBasis``                     ``_scale``, the standard deviation of each slope, one an input; ``_bias`` as a
                                        level, if there is a constant
    ``ConstantBasis``                   ``_scale``, of the level about the mean of y: log-normal, with three times the
                                        standard deviation of y as median and log sd 1
    ``tensor`` of bases                 those of the factors, numbered, ``_lengthscale_1``; the last one has the scale
    ``CategoricalBasis`` and others     ``_scale``, the standard deviation of all weights
    ==================================  =============================================================================

    :param name: the name of the part.
    :param basis: the basis of the part, one of ``statistics.basis.parts``.
    :param statistics: the statistics, of one output.
    :param features: which of the features of the statistics are those of the part.
    :param given: by the last word of a site, a NumPyro distribution in place of the default, or a number to hold fixed;
        and ``kernel``, a class such as ``sgp.Matern52``.
    :raises ValueError: for other words than the part has.

    .. doctest::

        >>> import numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> x = np.linspace(0, 3, 90)[:, None]
        >>> basis = sgp.stack(trend=sgp.LinearBasis(1), season=sgp.PeriodicBasis(1.0, 4, constant=False))
        >>> y = x[:, 0] + np.sin(2 * np.pi * x[:, 0]) + 0.1 * np.cos(77 * x[:, 0])
        >>> stats = sgp.sufficient_statistics(basis, x, y)
        >>> def model(stats):
        ...     trend, season = stats.basis.parts
        ...     season = sgp.models.part_prior("season", season, stats, lengthscale=dist.LogNormal(0.0, 0.3))
        ...     sgp.observe("y", stats, sgp.stack(sgp.DiagonalPrior([10.0, 1.0]), season), noise_scale=0.1)
        >>> sorted(sgp.fit_evidence(model, stats).values)
        ['season_amplitude', 'season_lengthscale']
    """
    scales = DataScales.of_statistics(statistics)
    scales = dataclasses.replace(scales, features=scales.features[features])
    return sampled_part(name, basis, scales, given)


def sampled_part(name: str, basis: Basis, scales: DataScales, given: Mapping[str, Any]) -> WeightPrior:
    """The prior of a part, its hyperparameters sampled; a constant has the mean of y as its prior mean."""
    factors = factors_of(basis, given.get("kernel"))
    words = {word + suffix for suffix, factor in factors for word in factor.words}
    unknown = sorted(set(given) - words - {"kernel"})
    if unknown:
        raise ValueError(f"The part {name!r} has no hyperparameters {unknown}; it has {sorted(words)}.")
    values: dict[str, Any] = {}
    for suffix, factor in factors:
        own = factor.scales(scales)
        for word in factor.words:
            values[word + suffix] = sample(
                f"{name}_{word}{suffix}", given.get(word + suffix), factor.part.sites[word](own)
            )
    prior = _prior(basis, factors, values)
    constant = np.flatnonzero(basis.constant_features)
    if len(constant) and isinstance(prior, DiagonalPrior):
        mean = jnp.zeros(basis.num_features, prior.log_scale.dtype)
        mean = mean.at[constant[0]].set(jnp.asarray(scales.mean, mean.dtype))
        prior = DiagonalPrior.from_log_scale(prior.log_scale, mean)
    return prior


def part_kernel(basis: Basis, values: Mapping[str, Any], family: Any) -> Kernel:
    """The kernel of a part, over all inputs, at values of its hyperparameters."""
    factors = factors_of(basis, family)
    return functools.reduce(operator.mul, [factor.kernel(suffix, values) for suffix, factor in factors])


@dataclasses.dataclass(frozen=True)
class Factor:
    """A basis that is a part, or a factor of one.

    :ivar basis: the basis.
    :ivar columns: which inputs it sees; ``None`` for all.
    :ivar part: what it is made of.
    :ivar unit: whether another factor has the scale of the product.
    """

    basis: Basis
    columns: Any
    part: Part
    unit: bool

    @property
    def words(self) -> list[str]:
        """Hyperparameters that are sampled."""
        return [word for word in self.part.sites if not (self.unit and word == self.part.scale)]

    def scales(self, scales: DataScales) -> DataScales:
        """Those of the inputs that it sees."""
        return scales if self.columns is None else scales.of_columns(self.columns)

    def own(self, suffix: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Its hyperparameters among those of the part."""
        own = {word: values[word + suffix] for word in self.words}
        return own | ({self.part.scale: jnp.asarray(1.0)} if self.unit else {})

    def built(self, suffix: str, values: Mapping[str, Any]) -> Kernel | WeightPrior:
        """A kernel of the basis, or a prior of its weights."""
        return self._sized(self.part.build(self.own(suffix, values)))

    def kernel(self, suffix: str, values: Mapping[str, Any]) -> Kernel:
        """The kernel over all inputs."""
        made = self._sized((self.part.exact or self.part.build)(self.own(suffix, values)))
        kernel = FeatureKernel(self.basis, made) if isinstance(made, WeightPrior) else made
        return kernel if self.columns is None else OfColumns(kernel, self.columns)

    def _sized(self, made: Kernel | WeightPrior) -> Kernel | WeightPrior:
        return made.sized(self.basis.num_features) if isinstance(made, WeightPrior) else made


def factors_of(basis: Basis, family: Any) -> list[tuple[str, Factor]]:
    """The factors of a part, one for most, with the suffixes of their hyperparameters; the last one has the scale."""
    outer = basis.columns if isinstance(basis, SelectedColumns) else None
    inner = basis.basis if isinstance(basis, SelectedColumns) else basis
    bases = inner.bases if isinstance(inner, TensorBasis) else (inner,)
    factors = []
    for number, each in enumerate(bases):
        columns, own = outer, each
        if isinstance(each, SelectedColumns):
            columns, own = each.columns if outer is None else outer[each.columns], each.basis
        suffix = f"_{number + 1}" if len(bases) > 1 else ""
        factors.append((suffix, Factor(own, columns, part_of(own, family), number < len(bases) - 1)))
    return factors


def _prior(basis: Basis, factors: list[tuple[str, Factor]], values: Mapping[str, Any]) -> WeightPrior:
    made = [factor.built(suffix, values) for suffix, factor in factors]
    priors = [
        each if isinstance(each, WeightPrior) else factor.basis.weight_prior(each)
        for each, (_, factor) in zip(made, factors, strict=True)
    ]
    return priors[0] if len(priors) == 1 else tensor(*priors)


@functools.singledispatch
def part_of(basis: Basis, family: Any) -> Part:
    """What a basis is as a part of an additive model; classes of bases of your own may be registered."""
    if basis.approximates_kernel and not isinstance(basis, FrozenKernelBasis):
        return _of_kernel(family or DEFAULT_KERNEL, basis.input_dim)
    if family is not None:
        raise ValueError(f"A {type(basis).__name__} has one prior, whatever the kernel; leave `kernel` out.")
    level = basis.constant_features.all()
    return Part({"scale": _level if level else _weights}, lambda values: DiagonalPrior(values["scale"]), "scale")


def _family_of(basis: FourierBasis) -> Callable[..., Kernel]:
    """The class of the kernel that random features were drawn from, if it has a lengthscale."""
    drawn = basis.proposal[0]
    return type(drawn) if hasattr(drawn, "lengthscale") else DEFAULT_KERNEL


def _of_kernel(family: Callable[..., Kernel], input_dim: int) -> Part:
    def lengthscale(scales: DataScales) -> dist.Distribution:
        median, spread = lengthscale_prior(scales.inputs)
        return log_normal(median if input_dim > 1 else median[0], spread)

    sites = {"amplitude": _amplitude, "lengthscale": lengthscale}
    return Part(sites, lambda values: family(values["lengthscale"], values["amplitude"]), "amplitude")


@part_of.register
def _(basis: FourierBasis, family: Any) -> Part:
    drawn = basis.proposal
    if family is not None or len(drawn) == 1:
        return _of_kernel(family or _family_of(basis), basis.input_dim)
    # With weights of equal variance f has the average of these kernels: all features count, whatever is learned.
    unit, share = (2 / basis.num_features) ** 0.5, len(drawn) ** -0.5

    def average(values: Mapping[str, Any]) -> Kernel:
        return Sum(tuple(dataclasses.replace(each, amplitude=values["amplitude"] * share) for each in drawn))  # type: ignore[type-var]

    return Part(
        {"amplitude": _amplitude}, lambda values: DiagonalPrior(values["amplitude"] * unit), "amplitude", average
    )


@part_of.register
def _(basis: PeriodicBasis, family: Any) -> Part:
    def kernel(values: Mapping[str, Any]) -> Kernel:
        return (family or Periodic)(basis.period, values["lengthscale"], values["amplitude"])

    season = log_normal(SEASON_LENGTHSCALE, SEASON_SPREAD)
    return Part({"amplitude": _amplitude, "lengthscale": lambda _: season}, kernel, "amplitude")


@part_of.register
def _(basis: LinearBasis, family: Any) -> Part:
    def slopes(scales: DataScales) -> dist.Distribution:
        size = jnp.where(scales.inputs > 0, scales.inputs, 1.0)
        return log_normal(scales.part / size / basis.input_dim**0.5, PART_SPREAD)

    def kernel(values: Mapping[str, Any]) -> Kernel:
        scale = jnp.broadcast_to(values["scale"], (basis.input_dim,))
        return Linear(scale, values["bias"]) if basis.bias else Linear(scale)

    sites = {"scale": slopes} | ({"bias": _level} if basis.bias else {})
    return Part(sites, kernel, "scale")


def _amplitude(scales: DataScales) -> dist.Distribution:
    return log_normal(scales.part, PART_SPREAD)


def _level(scales: DataScales) -> dist.Distribution:
    return log_normal(LEVEL_SPREAD * scales.spread, AMPLITUDE_SPREAD)


def _weights(scales: DataScales) -> dist.Distribution:
    total = jnp.sum(scales.features)
    return log_normal(scales.part / jnp.sqrt(jnp.where(total > 0, total, 1.0)), PART_SPREAD)
