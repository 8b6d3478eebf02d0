"""What can be wrong with a basis, a prior, or the inputs that predictions are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bases.basis import Basis
from ..bases.feature_kernel import FeatureKernel
from ..bases.fourier import FEW_FEATURES
from ..evidence import joint
from ..grids.grid import Grid
from ..models.hyperpriors import mean_and_spread, mean_excess
from ..models.kernel_model import KernelModel
from ..posteriors.observed_data import COMPRESSED, Data, input_range
from ..posteriors.posterior import Posterior
from ..posteriors.site_draws import KernelParameters, MarginalParameters, SiteParameters
from ..priors.members import single_priors
from ..sites.tracing import draw_once, is_improper, prior_draws
from ..statistics.statistics import SufficientStatistics
from .finding import Finding
from .kernel_checks import median_error

#: Share of features that the data may use up (where a kernel on [0, 1] was resolved, random features used a third).
MOST_USED = 0.6
#: Relative error of a kernel that is known below which its features are not too few.
KERNEL_ERROR = 0.05
#: Posterior medians in a tail of the prior of this size contradict it.
PRIOR_TAIL = 0.005
#: Share of the entries of a site that may lie in such tails, as a few of many do.
MOST_IN_TAIL = 0.05
#: Draws of the prior that its tails are measured with.
PRIOR_DRAWS = 4000
#: Correlation over the rows from which two features are the same.
SAME_FEATURE = 1 - 1e-9
#: Share of the range of an input that predictions may lie beyond it: a season at its turn is no extrapolation.
MARGIN = 0.01
#: Residual variance of a draw, relative to the mean square of y, below which the fit interpolates.
INTERPOLATES = 1e-6


def basis_findings(posterior: Posterior) -> Iterator[Finding]:
    """Whether features suffice, and whether some of them are the same. O(m³) a draw."""
    statistics = posterior.statistics
    m = statistics.num_features
    parameters = posterior.parameters()
    share, used = map(np.asarray, _looked_at(statistics, parameters))
    if np.median(share) < FEW_FEATURES:
        yield Finding(
            "few effective features",
            f"Only {np.median(share):.1%} of the Fourier features of a kernel carry prior variance: it is poorly "
            "approximated.",
            "Draw the basis closer to the posterior (a list of kernels in `FourierBasis.sample`), or use another: with "
            "many inputs features spread thin.",
        )
    used_up = statistics.basis.approximates_kernel and np.median(used) > MOST_USED * m
    if used_up and isinstance(posterior.model, KernelModel):
        # Little noise lets the data use up features that have all of the kernel, too.
        used_up = median_error(posterior, None).error > KERNEL_ERROR
    if used_up:
        yield Finding(
            "too few features",
            f"The data use {np.median(used):.1f} of {m} features: what they cannot represent counts as noise.",
            "Use more features, and see whether the noise and held-out errors fall.",
        )
    yield from noise_findings(statistics, parameters.noise_scale)
    yield from _duplicates(statistics)


def noise_findings(data: Data, noise_scale: Any) -> Iterator[Finding]:
    """Whether the noise, at draws along a first axis, is next to nothing."""
    known = mean_and_spread(data)
    # Of simulated outputs the mean is not known.
    size = data.output_scales if known is None or not np.all(known[1] > 0) else known[1]
    noise = np.asarray(noise_scale).reshape(len(noise_scale), -1) / np.asarray(size)
    least = np.median(noise.min(axis=1))
    if least**2 < INTERPOLATES:
        fewer = ", and fewer features than rows" if isinstance(data, SufficientStatistics) else ""
        yield Finding(
            "interpolation",
            f"The noise is {least:.1e} of the standard deviation of y, a thousandth or less: the fit interpolates.",
            f"If y is noisy, give the noise a prior that says so{fewer}.",
        )


@jax.jit
def _looked_at(statistics: SufficientStatistics, parameters: SiteParameters) -> tuple[jax.Array, jax.Array]:
    """Share of effective features, and number of features used by the data, at each draw."""

    def look(each: SiteParameters) -> tuple[jax.Array, jax.Array]:
        if not isinstance(each, MarginalParameters):
            return jnp.asarray(1.0), jnp.asarray(0.0)
        share = statistics.basis.effective_share(each.prior.log_variance)
        return share, jnp.max(_used(statistics, each.prior, each.noise_scale))

    return jax.lax.map(look, parameters)


def _used(statistics: SufficientStatistics, prior: Any, noise_scale: Any) -> jax.Array:
    """Effective number of parameters, ``tr R C Rᵀ (R C Rᵀ + σ²I)⁻¹`` (MacKay's γ), of each output."""
    R = joint.dense_factor(statistics, jnp.result_type(float))
    eigenvalues = jnp.stack([jnp.linalg.eigvalsh(R @ each.apply(R.T)).clip(0) for each in single_priors(prior)])
    noise_variance = jnp.broadcast_to(noise_scale, (statistics.num_outputs,))[:, None] ** 2
    eigenvalues = jnp.broadcast_to(eigenvalues, (statistics.num_outputs, len(R)))
    return jnp.sum(eigenvalues / (eigenvalues + noise_variance), axis=-1)


def _duplicates(statistics: SufficientStatistics) -> Iterator[Finding]:
    gram = np.asarray(statistics.moments.gram)
    if gram.ndim == 1:
        return
    norms = np.sqrt(np.diag(gram))
    if np.any(norms == 0):
        yield Finding(
            "empty features",
            f"{np.sum(norms == 0)} of {len(norms)} features are zero at all rows.",
            "Drop them, or choose centres, grids or columns where the data are.",
        )
    constant = np.flatnonzero(statistics.basis.constant_features)
    if len(constant) > 1:
        yield Finding(
            "several constants",
            f"Features {constant.tolist()} are the constants of several parts of the basis: the data tell their sum, "
            "not which of them it is.",
            "Nothing, if you look at the sum of the parts. To compare parts, leave out constants (`bias=False` of "
            "`LinearBasis` and `CentredBasis`), or subtract each part's mean.",
        )
    norms = np.where(norms > 0, norms, np.inf)
    alike = np.triu(np.abs(gram / np.outer(norms, norms)) > SAME_FEATURE, 1)
    alike[np.ix_(constant, constant)] = False
    same = np.argwhere(alike)
    if len(same):
        i, j = same[0]
        yield Finding(
            "duplicated features",
            f"{len(same)} pairs of features are the same at all rows up to a factor, such as {i} and {j}: the data do "
            "not tell their weights apart.",
            "Look for duplicated or constant input columns and repeated centres.",
        )


def prior_findings(posterior: Posterior) -> Iterator[Finding]:
    """Whether posterior medians lie where their prior has next to nothing, and the mean of y where the GP has not."""
    model, samples, data = posterior.model, posterior.samples, posterior.run.data
    conflicts = []
    drawn = prior_draws(model, data, jax.random.key(0), PRIOR_DRAWS, observed=False)
    for name, site in draw_once(model, data).items():
        if site["type"] != "sample" or site["is_observed"] or site["fn"].is_discrete or is_improper(site["fn"]):
            continue
        below = np.mean(np.asarray(drawn[name]) < np.median(samples[name], axis=0), axis=0)
        if np.mean((below < PRIOR_TAIL) | (below > 1 - PRIOR_TAIL)) > MOST_IN_TAIL:
            conflicts.append(name)
    if conflicts:
        remedy = "Check the units of X and y; then widen or move the prior, or doubt the model."
        if conflicts == ["noise_scale"]:
            remedy = (
                "Nothing, if y is as exact as that, as of a simulator: many rows outweigh this prior. Else: " + remedy
            )
        yield Finding(
            "prior-data conflict",
            f"Posterior medians of {conflicts} lie in a tail of {PRIOR_TAIL:.1%} of their prior.",
            remedy,
        )
    excess = mean_excess(posterior.data)
    if excess is not None and not _has_constant(posterior):
        of_rows = not isinstance(posterior.data, SufficientStatistics)
        constant = (
            "a constant to the grid: `features=np.ones((*values.shape, 1))`"
            if isinstance(posterior.data, Grid)
            else "a trend to the model: `models.exact_gp(features=sgp.LinearBasis(d))`"
            if of_rows
            else "a constant to the basis: `sgp.stack(basis, sgp.LinearBasis(d))`"
        )
        yield Finding(
            "mean of y",
            f"The mean of y ({excess[0]:.3g}) is large against its standard deviation ({excess[1]:.3g}), and the GP "
            "has mean zero.",
            f"Subtract the mean from y first, or add {constant}.",
        )


def _has_constant(posterior: Posterior) -> bool:
    """Whether a constant is among the features, or added to the kernel of an exact GP."""
    if isinstance(posterior.data, SufficientStatistics):
        return bool(posterior.data.basis.unrotated.constant_features.any())
    if isinstance(posterior.data, Grid):
        return posterior.data.features is not None and bool((np.ptp(posterior.data.features, axis=0) == 0).any())
    parameters = posterior.draws.structure()
    terms = parameters.kernel.terms if isinstance(parameters, KernelParameters) else ()
    return any(isinstance(term, FeatureKernel) and term.basis.constant_features.any() for term in terms)


def domain_findings(data: Data, X_new: Any) -> Iterator[Finding]:
    """Whether predictions are asked for outside the range of the training inputs."""
    lower, upper = input_range(data)
    margin = MARGIN * (upper - lower)
    outside = (X_new < lower - margin) | (X_new > upper + margin)
    rows = outside.any(axis=1)
    if rows.any():
        worst = int(np.argmax(outside.sum(axis=0)))
        yield Finding(
            "out of domain",
            f"{rows.sum()} of {len(rows)} rows of `X_new` lie outside the training inputs, most often in input {worst} "
            f"({lower[worst]:.4g} to {upper[worst]:.4g}).",
            _beyond(data.basis)
            if isinstance(data, COMPRESSED)
            else "The GP returns to its prior there, within a lengthscale or two, and says what the kernel says.",
        )


def _beyond(basis: Basis) -> str:
    """What to do for predictions beyond the training inputs."""
    if basis.bounded:
        return "Its features mean nothing there: make the basis for a box, or with a grid, that covers them."
    kernel = ", kernel=sgp.Matern52(lengthscale)" if basis.centre_kernel is None else ""
    return (
        "A finite basis is too certain there: use "
        f"`predict(..., augment=sgp.Augmentation(X, y{kernel}))`, or make the basis for a range that covers them."
    )


def pareto_findings(rows: np.ndarray, pareto_k: np.ndarray, good: float, gaussian: bool) -> Iterator[Finding]:
    """Whether leave-one-out densities by importance sampling can be trusted, up to ``good`` (Vehtari et al. 2024).

    :param rows: numbers of the rows that were left out, as many as ``pareto_k`` are.
    :param gaussian: whether the noise is.
    """
    bad = np.flatnonzero(~(pareto_k <= good))
    if len(bad):
        tails = "`sgp.compress_likelihood` with Student-t" if gaussian else "one with heavier tails"
        yield Finding(
            "Pareto k",
            f"{len(bad)} of {len(pareto_k)} rows have a Pareto k above {good:.2f}, the first row {rows[bad[0]]}: "
            "hyperparameters without that row differ from those with it.",
            f"Look at these rows: outliers want another likelihood ({tails}), or better inputs.",
        )
