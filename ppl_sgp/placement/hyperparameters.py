"""Lengthscales, amplitude and noise: the maximum a posteriori of an exact GP on some of the rows.

The GP has an unknown level: its kernel is ``a²(1 + k(x, z))``, k of unit amplitude, for y about its mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ..evidence import exact
from ..inference.maximise import Objective
from ..kernels import Constant, Kernel, SquaredExponential
from ..kernels.hyperprior_scales import NOISE_SHARE, lengthscale_prior
from ..statistics.kept_rows import Rows
from .prior import LogPrior
from .starts import starting_points
from .subset import chosen_rows, spacing_scale

#: Rows on which starts are tried and improved, and iterations on these and on all rows that are looked at.
FEW_ROWS, FEW_ITERATIONS, MOST_ITERATIONS = 300, 60, 60
#: Relative gain of a step of L-BFGS below which it ends: of hundreds of nats, some thousandths.
TOLERANCE = 1e-5
#: How far lengthscales and amplitude (downwards) may be from their prior medians, and the noise from y, in logarithms.
FAR, LEAST_NOISE, MOST_NOISE = 12.0, np.log(1e-5), np.log(10.0)
#: Added to the logarithm of a noise at which the covariance has no factor, as of outputs without noise.
NOISIER = np.log(3.0)

Family = Callable[..., Kernel]


class Hyperparameters(NamedTuple):
    """What an exact GP found.

    :ivar family: the class of the kernel.
    :ivar lengthscale: (d,), units of x.
    :ivar amplitude: standard deviation of f and of its level, units of y.
    :ivar noise_scale: standard deviation of the noise of a row of average weight, units of y.
    :ivar log_evidence: of the rows that were looked at, in nats.
    :ivar num_rows: how many these are.
    :ivar complete: false if the search was interrupted.
    :ivar found_by: by what, in words.
    """

    family: Family
    lengthscale: np.ndarray
    amplitude: float
    noise_scale: float
    log_evidence: float
    num_rows: int
    complete: bool
    found_by: str = "Exact GP"

    def __str__(self) -> str:
        lengthscales = ", ".join(f"{value:.3g}" for value in self.lengthscale)
        return (
            f"{self.found_by} on {self.num_rows:,} rows: {getattr(self.family, '__name__', 'kernel')}, lengthscales "
            f"[{lengthscales}], amplitude {self.amplitude:.3g}, noise {self.noise_scale:.3g}; log evidence "
            f"{self.log_evidence:.1f}."
        )

    def unit_kernel(self, factor: float = 1.0) -> Kernel:
        """The kernel of amplitude one, with lengthscales multiplied by a factor."""
        return self.family(factor * self.lengthscale, np.float64(1.0))


def find_hyperparameters(
    rng: np.random.Generator,
    families: Sequence[Family],
    rows: Rows,
    prior: LogPrior,
    progress: Callable[[str], None],
) -> list[Hyperparameters]:
    """Those of each family, the best first. O(k³) a step for k rows; deterministic given the generator.

    Interrupted, what is best so far, not complete.

    :param rows: the k rows to look at, with a y of mean about zero.
    :param progress: told of each step, in words.
    """
    few = chosen_rows(rng, rows.X, FEW_ROWS)
    weights = None if rows.row_weights is None else rows.row_weights[few]
    small = Rows(rows.X[few], rows.y[few], weights)
    spaced, median = spacing_scale(small.X), np.exp(prior.centre[:-2])
    with jax.enable_x64(True):
        spaced = np.where(spaced > 0, np.asarray(lengthscale_prior(spaced)[0]), median)
    found: list[Hyperparameters] = []
    for family in families:
        name = getattr(family, "__name__", "kernel")
        with jax.enable_x64(True):  # whatever JAX's precision
            progress(f"{name}: lengthscales to start from")
            starts = starting_points(family, small, prior, (median, spaced))
            best, used = maximum(_exact, small, family, prior, starts, FEW_ITERATIONS), small
            if best.complete and rows.num_rows > small.num_rows:
                progress(f"{name}: exact GP on {rows.num_rows:,} rows")
                best, used = maximum(_exact, rows, family, prior, [best.point], MOST_ITERATIONS), rows
        found.append(best.hyperparameters(family, prior, used.num_rows))
        if not best.complete:
            break
    return sorted(found, key=lambda each: -each.log_evidence / each.num_rows)


def _exact(rows: Rows, kernel: Kernel, noise_scale: Any) -> jax.Array:
    return exact.evaluate(rows, kernel, noise_scale, rows.y)


class Best(NamedTuple):
    """The best point of a search, in coordinates of the prior, with evidence × prior there."""

    point: np.ndarray
    value: float
    complete: bool

    def hyperparameters(self, family: Family, prior: LogPrior, num_rows: int) -> Hyperparameters:
        """In their own units."""
        theta = np.exp(self.point + prior.centre)
        evidence = self.value - float(prior(self.point))
        return Hyperparameters(
            family, theta[:-2], float(theta[-2]), float(theta[-1]), evidence, num_rows, self.complete
        )


def maximum(
    evidence: Callable[[Any, Kernel, Any], jax.Array],
    data: Any,
    family: Family,
    prior: LogPrior,
    starts: list[np.ndarray],
    iterations: int,
    near: tuple[np.ndarray, float] | None = None,
) -> Best:
    """The best of the ends of L-BFGS from all starts; interrupted, the best point so far.

    :param evidence: a function of a module, of the data, a kernel that has the level, and the noise scale.
    :param starts: coordinates of the prior.
    :param near: a point that no coordinate may leave by more than a number.
    """
    d = len(prior.centre) - 2
    lower = np.array([-FAR] * (d + 1) + [LEAST_NOISE - np.log(NOISE_SHARE)])
    # The amplitude has no upper bound: where all coordinates have both, L-BFGS-B takes its first step to the bounds.
    upper = np.array([FAR] * d + [np.inf, MOST_NOISE - np.log(NOISE_SHARE)])
    if near is not None:
        lower, upper = np.maximum(lower, near[0] - near[1]), np.minimum(upper, near[0] + near[1])

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = density(evidence, family, data, prior.centre, prior.spread, point)
        return float(value), np.asarray(gradient)

    objective, complete = Objective(evaluate, float(np.finfo(np.float64).eps)), True
    options = {"maxiter": iterations, "ftol": TOLERANCE}
    bounds = list(zip(lower, upper, strict=True))
    try:
        for start in starts:
            start = np.clip(start, lower, upper)
            while not np.isfinite(objective(start)[0]) and start[-1] < upper[-1]:
                start[-1] = min(start[-1] + NOISIER, upper[-1])
            minimize(objective.negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    except KeyboardInterrupt:
        if not np.isfinite(objective.best_value):
            raise
        complete = False
    if not np.isfinite(objective.best_value):
        raise ValueError(
            f"place: the evidence of a GP with {getattr(family, '__name__', 'this kernel')} is not finite at any "
            "start. Rescale inputs of extreme size, or pass another `kernel`."
        )
    return Best(objective.best_x, objective.best_value, complete)


@functools.partial(jax.jit, static_argnums=(0, 1))
def density(
    evidence: Callable[..., jax.Array], family: Family, data: Any, centre: Any, spread: Any, point: Any
) -> tuple[jax.Array, jax.Array]:
    """Log evidence plus log prior of the coordinates, and the gradient in these."""

    def value(point: jax.Array) -> jax.Array:
        theta = jnp.exp(point + centre)
        kernel = family(theta[:-2], theta[-2]) + Constant(theta[-2])
        return evidence(data, kernel, theta[-1]) - 0.5 * jnp.sum((point / spread) ** 2)

    return jax.value_and_grad(value)(point)


def kernel_families(kernel: Any) -> tuple[Family, ...]:
    """The classes that were asked for; what cannot be placed is refused."""
    given = (
        (SquaredExponential,) if kernel is None else tuple(kernel) if isinstance(kernel, list | tuple) else (kernel,)
    )
    for family in given:
        check_family(family, "place")
    if not given:
        raise ValueError("place: `kernel` is an empty list. Leave it out, or pass classes such as sgp.Matern52.")
    return given


def check_family(family: Any, owner: str) -> None:
    """Refuse what is no class of kernels with lengthscales and an amplitude."""
    if isinstance(family, Kernel) or not callable(family):
        got = f"one of {type(family).__name__}" if isinstance(family, Kernel) else repr(family)
        raise ValueError(
            f"{owner}: `kernel` must be a class such as sgp.Matern52, a function of lengthscales and amplitude, or "
            f"(`place`) a list of these to choose among; got {got}. Its hyperparameters are what is to be found."
        )
    try:
        made = family(np.array([1.0, 2.0]), np.float64(1.0))
        made = made if isinstance(made, Kernel) and np.isfinite(np.asarray(made(np.zeros((1, 2))))).all() else None
    except (TypeError, ValueError):
        made = None
    if made is None or any(len(part.terms) > 1 for part in made.factors):
        raise ValueError(
            f"{owner}: {getattr(family, '__name__', family)} does not make a kernel, which is no sum, of lengthscales "
            "(d,) and an amplitude. Pass sgp.SquaredExponential, a Matern class, sgp.RationalQuadratic, or a function "
            "such as `lambda lengthscale, amplitude: sgp.Matern52(lengthscale, amplitude)`. For sums, seasons and "
            "trends make a basis for each term and `sgp.stack` them."
        )
