"""A ready additive model: a sum of independent functions, one a part of a stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpyro.distributions as dist

from .._internal import checks
from .._internal.by_value import EqualByValue
from ..bases.basis import Basis
from ..bases.rotated import RotatedBasis
from ..bases.stack import stack
from ..kernels import Kernel, Sum
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from ..sites.observe import observe
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import check_outputs, check_statistics, log_normal, require_one_output, sample_noise_scale
from .part_priors import DataScales, factors_of, part_kernel, sampled_part


@dataclasses.dataclass(frozen=True, eq=False)
class AdditiveGP(EqualByValue):
    """A NumPyro model of one argument, the statistics of a stack; made by :func:`additive`, which says what it samples.

    :ivar noise_scale: what was given for the noise.
    :ivar parts: by the name of a part, what was given for it.
    """

    noise_scale: Any
    parts: Mapping[str, Mapping[str, Any]]

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        check_statistics("additive", statistics, any_mean=True)
        require_one_output("additive", statistics, ", as in `sufficient_statistics(basis, X, y[:, j])`")
        basis = statistics.basis
        if isinstance(basis, RotatedBasis):
            raise ValueError(
                "additive: after `rotate` the features are no longer those of the parts. Pass the statistics as they "
                "were before."
            )
        parts = _parts_of(basis)
        unknown = sorted(set(self.parts) - set(parts))
        if unknown:
            raise ValueError(f"additive: the basis has no parts {unknown}; it has {list(parts)}.")
        scales, priors, start = DataScales.of_statistics(statistics), [], 0
        level = next((name for name, part in parts.items() if part.constant_features.any()), None)
        if level is None and checks.is_concrete(statistics.moments):
            check_outputs("additive", statistics)
        for name, part in parts.items():
            own = dataclasses.replace(
                scales,
                mean=scales.mean if name == level else 0.0 * scales.mean,  # of several constants one has it
                features=scales.features[start : start + part.num_features],
            )
            priors.append(sampled_part(name, part, own, self.parts.get(name, {})))
            start += part.num_features
        noise = log_normal(NOISE_SHARE * scales.spread, NOISE_SPREAD)
        observe("y", statistics, stack(*priors), sample_noise_scale("additive", statistics, self.noise_scale, noise))

    def kernel_at(self, draw: dict[str, Any], basis: Basis, output: int = 0) -> Kernel:
        """See :meth:`KernelModel.kernel_at`: the sum of :meth:`part_kernels`."""
        return Sum(tuple(self.part_kernels(draw, basis).values()))

    def part_kernels(self, draw: dict[str, Any], basis: Basis) -> dict[str, Kernel]:
        """The kernel of each part, over all inputs, by its name; what is linear in its weights has the exact one.

        :param draw: values of the latent sites, which may be traced.
        :param basis: the basis of the statistics.
        """
        kernels = {}
        for name, part in _parts_of(basis).items():
            given = self.parts.get(name, {})
            factors = factors_of(part, given.get("kernel"))
            words = [word + suffix for suffix, factor in factors for word in factor.words]
            values = {word: draw.get(f"{name}_{word}", given.get(word)) for word in words}
            kernels[name] = part_kernel(part, values, given.get("kernel"))
        return kernels


def additive(*, noise_scale: Any = None, **parts: Any) -> AdditiveGP:
    """An additive model ``y = f₁(x) + f₂(x) + … + noise`` over a stack: independent functions, each with its prior.

    A function for each part of a :func:`~ppl_sgp.stack` (of one basis, a single one), with the sites and the default
    priors of :func:`part_prior`, named after the part: ``trend_amplitude`` of ``stack(trend=..., ...)``, ``part
    0_amplitude`` where parts have no names. ``noise_scale`` is log-normal, with 0.3 standard deviations of y as its
    median and log sd 1.5. The first constant among the features has the mean of y as its prior mean. y has one output.
    On a compressed likelihood there is no noise, a typical scale of the predictor takes the place of y's standard
    deviation, and zero that of its mean.

    What each part is of f: ``posterior.predict(X_new, parts="trend")``; how much of y:
    :func:`~ppl_sgp.variance_shares`.

    :param noise_scale: a NumPyro distribution, or a number to hold fixed.
    :param parts: by the name of a part, a dictionary of what is not to have its default, such as ``trend={"kernel":
        sgp.Matern52, "lengthscale": dist.LogNormal(0.0, 0.5)}``; or a class of kernels alone. Names that are no
        identifiers go as ``**{"part 0": sgp.Matern52}``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: for other values; when called, for parts or hyperparameters that the basis does not have,
        several outputs, rotated statistics, or y identically zero.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> x = np.linspace(0, 3, 90)[:, None]
        >>> y = 5 + x[:, 0] ** 2 + np.sin(2 * np.pi * x[:, 0]) + 0.1 * np.cos(77 * x[:, 0])
        >>> season = sgp.PeriodicBasis(1.0, 4, constant=False)
        >>> basis = sgp.stack(level=sgp.ConstantBasis(1), trend=sgp.LaplaceBasis.from_data(x, 40, 4.0), season=season)
        >>> stats = sgp.sufficient_statistics(basis, x, y)
        >>> model = sgp.models.additive(trend=sgp.Matern52)
        >>> fit = sgp.fit_evidence(model, stats)
        >>> sorted(fit.values)[:3]
        ['level_scale', 'noise_scale', 'season_amplitude']
        >>> season = sgp.posterior(model, fit, stats).predict(x, parts="season")
        >>> bool(np.abs(season.mean - np.sin(2 * np.pi * x[:, 0])).max() < 0.1)
        True
    """
    made = {}
    for name, given in parts.items():
        if callable(given) and not isinstance(given, (Kernel, Mapping, dist.Distribution)):
            given = {"kernel": given}
        if not isinstance(given, Mapping) or isinstance(given.get("kernel"), Kernel):
            raise ValueError(
                f"additive: what is given for the part {name!r} must be a class of kernels, such as sgp.Matern52, or a "
                "dictionary of its hyperparameters, such as "
                f"{{'kernel': sgp.Matern52, 'amplitude': dist.HalfNormal(1.0)}}; got {given!r}."
            )
        made[name] = dict(given)
    return AdditiveGP(noise_scale, made)


def _parts_of(basis: Basis) -> dict[str, Basis]:
    """The parts by name; a basis that is no stack is one part."""
    if not basis.parts:
        return {"f": getattr(basis, "basis", basis) if basis.recipe is not None else basis}
    return dict(zip(basis.part_names, basis.parts, strict=True))
