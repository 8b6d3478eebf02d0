"""What can be wrong with a basis that stands for a known kernel: it may be too poor for the kernel, or for the data.

Whether it is too poor for the data only rows can tell: a basis may take a season for noise, at lengthscales for which
it is good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..bases.basis import Basis
from ..bases.columns import SelectedColumns
from ..bases.fourier import FourierBasis
from ..bases.frozen_kernel import FrozenKernelBasis, evaluate
from ..bases.laplace import LaplaceBasis
from ..kernels import Kernel, Sum
from ..models._additive import AdditiveGP
from ..posteriors.posterior import Posterior
from .exact_comparison import Comparison, compare_with_exact, covariance, predicts_better
from .finding import Finding

#: Points at which a kernel is compared with that of its basis.
POINTS = 100
#: Relative error above which a basis that could have all of the kernel is poor: good ones have a third of it.
MOST_ERROR = 0.1
#: Random features are poor with an error this many times that of as many features drawn for the kernel itself, which is
#: 0.05 to 0.4 and no fault, and above a least error; or with less than this share of its variance, where they miss
#: short lengthscales. Bases with the evidence of an exact GP had ratios of 0.5 to 1.9 and shares of 0.66 to 1.4.
MOST_RATIO, LEAST_ERROR, LEAST_VARIANCE = 2.5, 0.3, 0.5
#: Nats by which an exact GP may be better, and nats a row: 40 of 300 rows. It is fitted to the rows it is compared on.
#: Good bases fell short of it by 16 nats at most, poor ones by 67 or more (benchmarks/README.md).
MOST_NATS, MOST_NATS_A_ROW = 10.0, 0.1
#: It is better as well where its evidence and its densities of rows left out are so many nats better, by so many
#: standard errors: of few rows a poor basis may fall short by less than the above. Good bases of the sets that were
#: looked at fell short by 8 nats at most, and by 6 of rows left out; three of six
#: default bases of 150 rows with four inputs by 17 to 24, and by 15 to 23 of rows left out, with 1.6 to 2.3 times the
#: RMSE of an exact GP.
LEAST_NATS, STANDARD_ERRORS = 10.0, 2.0


class KernelError(NamedTuple):
    """How far the kernel of a basis is from the exact one, at the draw of median error, and where it was compared."""

    error: float
    variance_ratio: float
    draw: dict[str, np.ndarray]
    points: np.ndarray


def median_error(posterior: Posterior, X: np.ndarray | None) -> KernelError:
    """The relative error at some training rows, or, if there are none, at points of their box."""
    points = compared_points(posterior, X)
    errors = posterior.kernel_error(points)
    errors = errors.max([dim for dim in errors.dims if dim != "draw"])  # of outputs with kernels of their own the worst
    middle = int(np.argsort(errors["relative_error"].values)[len(errors["draw"]) // 2])
    draw = {name: values[middle] for name, values in posterior.latent.items()}
    error, ratio = (float(errors[name][middle]) for name in ("relative_error", "variance_ratio"))
    return KernelError(error, ratio, draw, points)


def compared_points(posterior: Posterior, X: np.ndarray | None) -> np.ndarray:
    """Some training rows, or, if there are none, points of their box."""
    rng = np.random.default_rng(0)
    if X is not None:
        return X[rng.choice(len(X), min(len(X), POINTS), replace=False)]
    low, high = posterior.statistics.moments.x_min, posterior.statistics.moments.x_max
    return posterior.statistics.basis.admissible(low + (high - low) * rng.random((POINTS, len(low))))


def kernel_findings(posterior: Posterior, X: np.ndarray | None) -> Iterator[Finding]:
    """Whether the basis has the kernel of the posterior. O(m) a draw and pair of a hundred points."""
    model = posterior.model
    if isinstance(model, AdditiveGP) and len(posterior.statistics.basis.parts) > 1:
        yield from _part_findings(posterior, X)
        return
    basis = _process(posterior.statistics.basis)
    if X is None and isinstance(basis, FrozenKernelBasis):
        return  # these are good near their points only, and where the rows are is not known
    error, ratio, draw, points = median_error(posterior, X)
    finding = _poor(basis, model.kernel_at(draw, posterior.statistics.basis), error, ratio, points)
    if finding is not None:
        yield finding
    moments = posterior.statistics.moments
    yield from _narrow_box(basis, moments.x_min, moments.x_max, model.kernel_at(draw, posterior.statistics.basis))


def _part_findings(posterior: Posterior, X: np.ndarray | None) -> Iterator[Finding]:
    """Whether each part of a stack has its kernel, at the draw in the middle."""
    basis, points = posterior.statistics.basis, compared_points(posterior, X)
    moments = posterior.statistics.moments
    middle = posterior.take([posterior.num_draws // 2])
    draw = {name: values[0] for name, values in middle.latent.items()}
    variances = np.exp(np.asarray(middle.marginal_parameters("report").prior.log_variance[0]))
    kernels, start = posterior.model.part_kernels(draw, basis), 0
    for name, part in zip(basis.part_names, basis.parts, strict=True):
        variance, start = variances[start : start + part.num_features], start + part.num_features
        if not part.approximates_kernel or not isinstance(part, SelectedColumns | FourierBasis | LaplaceBasis):
            continue
        own_basis: Basis = part
        kernel: Any = kernels[name]
        columns = np.arange(basis.input_dim)
        if isinstance(part, SelectedColumns):
            own_basis, kernel, columns = part.basis, kernel.kernel, np.asarray(part.columns)
        if isinstance(own_basis, FrozenKernelBasis) or not isinstance(kernel, Kernel):
            continue
        own = points[:, columns]
        K, Phi = evaluate(covariance, kernel, own, np), own_basis.host_features(own)
        implied = (Phi * variance) @ Phi.T
        error = float(np.linalg.norm(implied - K) / np.linalg.norm(K))
        finding = _poor(own_basis, kernel, error, float(np.trace(implied) / np.trace(K)), own)
        found = [] if finding is None else [finding]
        found += _narrow_box(own_basis, moments.x_min[columns], moments.x_max[columns], kernel)
        yield from (each._replace(symptom=f"Part {name!r}: {each.symptom}") for each in found)


def _poor(basis: Basis, kernel: Any, error: float, ratio: float, points: np.ndarray) -> Finding | None:
    """What is wrong with a basis whose kernel is off by ``error``, and has ``ratio`` of its variance."""
    if isinstance(basis, FourierBasis):
        good = _error_when_drawn_for(kernel, basis, points)
        poor = error > max(LEAST_ERROR, MOST_RATIO * good) or ratio < LEAST_VARIANCE
        bound = f"{good:.2f} when drawn for it"
        remedy = "Draw the basis closer to the posterior (a list of kernels in `FourierBasis.sample`), or larger."
    else:
        poor, bound = error > MOST_ERROR, f"at most {MOST_ERROR}"
        remedy = (
            "Use more functions, or a wider box: `LaplaceBasis.suggest` names both."
            if isinstance(basis, LaplaceBasis)
            else "Use more features: a finer grid, or more points where the rows are."
        )
    if not poor:
        return None
    return Finding(
        "poor kernel",
        f"The kernel of the basis is off by {error:.2f} of the exact one ({bound}), with {ratio:.2f} of its "
        "variance, at a typical draw.",
        remedy,
    )


def _narrow_box(basis: Basis, x_min: np.ndarray, x_max: np.ndarray, kernel: Any) -> Iterator[Finding]:
    """Whether the walls of the box, at which f is zero, are nearer to the data than its lengthscales allow."""
    found = basis.unsuited(kernel, x_min, x_max)
    if found is not None:
        yield Finding("narrow box", *found)


def _process(basis: Basis) -> Basis:
    """The part of a basis that stands for a kernel, if there is one such part beside a level or a trend."""
    standing = [part for part in basis.unrotated.parts if part.approximates_kernel]
    return standing[0] if len(standing) == 1 else basis


def _error_when_drawn_for(kernel: Any, basis: FourierBasis, points: np.ndarray) -> float:
    """The relative error of as many random features made for this very kernel; of a level beside it there is none."""
    random = [term for term in kernel.terms if term.has_spectrum]
    process = random[0] if len(random) == 1 else Sum(tuple(random))
    drawn = FourierBasis.sample(jax.random.key(0), process, basis.num_features, basis.input_dim, centre=basis.centre)
    features = drawn.host_features(points) * np.exp(np.asarray(drawn.weight_prior(process).log_variance) / 2)
    K, of_process = (evaluate(covariance, each, points, np) for each in (kernel, process))
    return float(np.linalg.norm(features @ features.T - of_process) / np.linalg.norm(K))


def exact_findings(
    posterior: Posterior, X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None
) -> Iterator[Finding]:
    """Whether an exact GP explains some hundred of the rows much better, and predicts more of them better."""
    found = compare_with_exact(posterior, X, y, row_weights)
    gain = found.best.log_evidence - found.of_basis
    left_out, error = float(np.sum(found.gained)), float(np.std(found.gained)) * len(found.gained) ** 0.5
    closer = min(gain, left_out) > LEAST_NATS and left_out > STANDARD_ERRORS * error
    if not (gain > MOST_NATS + MOST_NATS_A_ROW * found.num_rows or closer):
        return
    if len(X) > found.num_rows and not predicts_better(posterior, found, X, y, row_weights):
        return
    before, after = _lengthscales(posterior, found)
    yield Finding(
        "poorer than an exact GP",
        f"On {found.num_rows} of the rows an exact GP is {gain:.0f} nats better than this basis at its best draw: with "
        f"{after} and noise {_shown(found.best.noise_scale)}. This run has {before} and noise "
        f"{_shown(found.noise_scale)}. Each row from the others it predicts better, by {left_out:.0f} ± {error:.0f} "
        "nats together.",
        f"Make the basis for {after}, and give the model's prior that median, so that it starts there. "
        "`NystromBasis(X[rows], kernel)`, at some hundred rows and with the lengthscale fixed, needs the fewest "
        "features. `FourierBasis.sample(key, kernels, m, d)`, with kernels from half to twice it and more features, or "
        "`LaplaceBasis` as large as `suggest` says leave the lengthscale free. `sgp.adapt_features(key, X, y, "
        "num_features=m)` draws such features, and `sgp.place(key, X, y)` chooses all of it.",
    )


def _lengthscales(posterior: Posterior, found: Comparison) -> tuple[str, str]:
    """Those of the run and of the exact GP, in words."""
    value = getattr(posterior.model.kernel_at(found.draw, posterior.statistics.basis), "lengthscale", None)
    if value is None:
        return "its own", f"lengthscales {_shown(found.best.scaling)} times as long"
    value = np.asarray(value, dtype=np.float64)
    scaled = value * found.best.scaling
    if value.ndim == 0 and np.ptp(scaled) == 0:
        scaled = scaled[0]
    return f"lengthscale {_shown(value)}", f"lengthscale {_shown(scaled)}"


def _shown(values: Any) -> str:
    texts = [f"{value:.3g}" for value in np.atleast_1d(values)]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
