"""From what users pass to the problem and the first state of quadruply stochastic inference."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..bases.basis import Basis
from ..bases.centred import CentredBasis
from ..bases.fourier import FourierBasis
from ..bases.frozen_kernel import covariances, evaluate
from ..kernels import Kernel
from ..likelihoods.likelihood import Likelihood
from ..priors import DiagonalPrior, WeightPrior
from .batches import RowBatches
from .indices import choose
from .precisions import DiagonalPrecision, KernelPrecision
from .quadruply_step import Problem, State, Touched
from .starting import starting_gp
from .updates import Adam

OWNER = "quadruply"
#: Points of the Nyström control variate, and most weights of which the determinant of a precision matrix is computed.
NYSTROM_POINTS, MOST_FOR_DETERMINANT = 200, 2000
#: A mean of y beyond so many standard deviations is no longer one that functions of mean zero can be asked to explain.
FAR_FROM_ZERO = 3.0
#: The first steps move f, where all weights agree, by this share of its size, and no weight by more than this share of
#: its unit.
FIRST_MOVE, MOST_RATE = 1.0, 0.2


def checked_likelihood(likelihood: Likelihood | None, num_functions: int, num_features: int) -> None:
    """Refuse likelihoods that have no bound.

    :raises ValueError: for several predictors a row; and for one that is not log-concave, unless each step has all
        functions.
    """
    if likelihood is None:
        return
    name = type(likelihood).__name__
    if not isinstance(likelihood, Likelihood):
        raise ValueError(f"{OWNER}: `likelihood` must be one of `sgp.likelihoods`; got {name}.")
    if likelihood.num_latents > 1:
        raise ValueError(
            f"{OWNER}: {name} has {likelihood.num_latents} predictors a row, and bounds are of one. Fit "
            "`sgp.likelihoods.Bernoulli()` to one class against the others, or use `sgp.compress_likelihood`."
        )
    if not likelihood.is_log_concave and num_functions < num_features:
        raise ValueError(
            f"{OWNER}: {name} is not log-concave in its predictor, so that random functions give no bound (theorem 6.3 "
            f"of Evans 2022). Pass `num_functions={num_features}`, all of them, with which nothing is bounded, "
            "or a log-concave likelihood: for heavy tails `sgp.likelihoods.AsymmetricLaplace()`."
        )


def model_of(
    key: jax.Array,
    basis: Any,
    batches: RowBatches,
    likelihood: Likelihood | None,
    prior: WeightPrior | None,
    kernel: Any,
    noise_scale: Any,
    progress: bool,
) -> tuple[Basis, WeightPrior | None, Kernel | None, float | None]:
    """Basis, prior (``None``: ``S = k(Z, Z)``), kernel and noise, by an exact GP on some rows where not given."""
    key_rows, key_basis = jax.random.split(key)
    if likelihood is not None and noise_scale is not None:
        raise ValueError(f"{OWNER}: `noise_scale` is of Gaussian noise; leave it out with a likelihood.")
    if prior is not None and kernel is not None:
        raise ValueError(f"{OWNER}: pass `prior` or `kernel`, not both.")
    own_precision = isinstance(basis, CentredBasis) and not basis.bias and prior is None and kernel is None
    known = isinstance(kernel, Kernel) or prior is not None or own_precision
    if not known or (noise_scale is None and likelihood is None):
        if likelihood is not None:
            raise ValueError(
                f"{OWNER}: pass `kernel=sgp.SquaredExponential(lengthscale, amplitude)`, or a `prior`: only with "
                "Gaussian noise are they found from the rows."
            )
        family = type(kernel) if isinstance(kernel, Kernel) else kernel
        found, found_noise = starting_gp(key_rows, batches, family if not known else None, progress=progress)
        kernel = kernel if known else found
        noise_scale = found_noise if noise_scale is None else noise_scale
    if isinstance(basis, int) and not isinstance(basis, bool):
        if kernel is None:
            raise ValueError(f"{OWNER}: of a number of Fourier features the `kernel` is wanted, not a `prior`.")
        basis = FourierBasis.sample(key_basis, kernel, basis, batches.input_dim)
    if not isinstance(basis, Basis):
        raise ValueError(f"{OWNER}: `basis` must be a basis, or a number of Fourier features; got {basis!r}.")
    if kernel is not None:
        prior = basis.weight_prior(kernel)
    if prior is not None:
        prior = _independent(prior, basis.num_features)
    if likelihood is None:
        checks.positive("noise_scale", noise_scale, OWNER)
        noise_scale = float(noise_scale)
    return basis, prior, kernel, noise_scale


def _independent(prior: Any, num_features: int) -> DiagonalPrior:
    if not isinstance(prior, DiagonalPrior) or prior.batch_shape or prior.mean is not None:
        raise ValueError(
            f"{OWNER}: `prior` must be one of independent weights with mean zero, a DiagonalPrior; got "
            f"{type(prior).__name__}{' with a mean' if getattr(prior, 'mean', None) is not None else ''}. Correlated "
            "weights of kernels at centres: `CentredBasis(centres, kernel, bias=False)` and no prior."
        )
    return prior.sized(num_features)


def problem_of(
    key: jax.Array,
    basis: Basis,
    batches: RowBatches,
    likelihood: Likelihood | None,
    prior: WeightPrior | None,
    kernel: Kernel | None,
    noise_scale: float | None,
    num_support: int,
    learned: tuple[str, ...],
    relevance: bool = False,
) -> tuple[Problem, Any]:
    """The problem, on the device, and first values of the hyperparameters."""
    dtype, m = jnp.result_type(float), basis.num_features
    keys = jax.random.split(key)
    rows = batches.some(keys[0], max(num_support, 1))
    if likelihood is None and abs(rows.y.mean()) > FAR_FROM_ZERO * rows.y.std() > 0:
        checks.warn(
            f"{OWNER}: y has the mean {rows.y.mean():.4g} and the standard deviation {rows.y.std():.4g}, and f has the "
            "prior mean zero. Subtract the mean of y, or stack a `sgp.ConstantBasis`."
        )
    log_det: Any = 0.0
    if prior is not None:
        precision: Any = DiagonalPrecision()
        log_unit = jnp.broadcast_to(0.5 * prior.log_variance, (m,)).astype(dtype)
    else:
        assert isinstance(basis, CentredBasis)
        precision, log_det = _kernel_precision(keys[1], basis)
        # Weights are (y − f)/σ² in the end, of size 1/σ; of a likelihood slopes of the log density.
        log_unit = jnp.full(m, -np.log(noise_scale) if noise_scale is not None else 0.0, dtype)
        log_det = log_det + 2 * m * float(log_unit[0]) if m <= MOST_FOR_DETERMINANT else 0.0
    parameters = () if likelihood is None else likelihood.free_parameters(np.asarray(rows.y, np.float64))
    loc = jnp.asarray([each.loc for each in parameters], dtype).reshape(-1)
    width = jnp.asarray([each.scale for each in parameters], dtype).reshape(-1)
    used = num_support if likelihood is None else 0
    problem = Problem(
        basis=basis,
        log_unit=log_unit,
        precision=precision,
        support_X=rows.X[:used],
        support_y=rows.y[:used],
        likelihood=likelihood,
        parameter_prior=(loc, width),
        kernel=kernel if "log_kernel" in learned else None,
        log_det=jnp.asarray(log_det, dtype),
        num_rows=batches.num_rows,
        learned=learned,
        relevance=relevance,
    )
    hyper = {
        "log_noise": jnp.asarray(0.0 if noise_scale is None else np.log(noise_scale), dtype),
        "log_prior": jnp.zeros((), dtype),
        "parameters": jnp.array(loc, copy=True),  # steps consume it
        "log_kernel": jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf, dtype)), problem.kernel),
    }
    return jax.device_put(problem), hyper


def _kernel_precision(key: jax.Array, basis: CentredBasis) -> tuple[KernelPrecision, float]:
    centres = np.asarray(basis.centres, dtype=np.float64)
    rng = host_generator(key, OWNER)
    points = centres[rng.choice(len(centres), min(NYSTROM_POINTS, len(centres)), replace=False)]
    covariance = evaluate(covariances, (basis.kernel, points), points, np)
    jitter = 1e-6 * np.trace(covariance) / len(points)
    root = np.linalg.cholesky(covariance + jitter * np.eye(len(points)))
    log_det = 0.0
    if len(centres) <= MOST_FOR_DETERMINANT:
        values = np.linalg.eigvalsh(evaluate(covariances, (basis.kernel, centres), centres, np))
        log_det = float(np.sum(np.log(np.maximum(values, values[-1] * np.finfo(np.float64).eps))))
    return KernelPrecision(centres, basis.kernel, points, root), log_det


def first_state(problem: Problem, hyper: Any, num_columns: int) -> State:
    """The prior: means zero, deviations one in units of the weights."""
    dtype, m = problem.log_unit.dtype, len(problem.log_unit)
    support = len(problem.support_X)
    nystrom = problem.precision.points.shape[0] if isinstance(problem.precision, KernelPrecision) else 0

    def zeros(*shape: int) -> jax.Array:
        return jnp.zeros(shape, dtype)

    def weights() -> Touched:
        return Touched(zeros(m), zeros(m), zeros(m, num_columns))

    start, squares = weights(), weights()
    of_columns, nystrom_of_columns = _first_columns(problem, num_columns, nystrom)
    return State(
        mu=start.mu,
        log_diagonal=start.log_diagonal,
        columns=start.columns,
        average=zeros(m),
        squares=squares,
        mean_square=zeros(m),
        seen=zeros(m),
        log_precision=zeros(m if problem.relevance else 0),
        of_mu=zeros(support),
        of_columns=of_columns,
        nystrom_of_mu=zeros(nystrom),
        nystrom_of_columns=nystrom_of_columns,
        hyper=Adam.of(hyper, dtype),
        time=jnp.zeros((), jnp.int32),
    )


def _first_columns(problem: Problem, num_columns: int, nystrom: int) -> tuple[jax.Array, jax.Array]:
    """Products of fixed features with the dense columns, which begin as those of a unit matrix."""
    first, support, dtype = jnp.arange(num_columns), len(problem.support_X), problem.log_unit.dtype
    if not num_columns:
        return jnp.zeros((support, 0), dtype), jnp.zeros((nystrom, 0), dtype)
    unit = jnp.exp(problem.log_unit[:num_columns])
    of_rows = problem.basis.some_features(problem.support_X, first) * unit[None, :]
    return of_rows, problem.precision.features(first, unit)


def learning_rate(
    key: jax.Array, problem: Problem, batches: RowBatches, num_functions: int, among: np.ndarray | None = None
) -> float:
    """A step size with which the first steps move f by a fixed share of its size.

    AdaGrad's first steps move all weights that are touched by the rate, and where rows agree all of them the same way:
    by how much they move f together is found at some rows.
    """
    keys = jax.random.split(key)
    rows = batches.some(keys[0], 500)
    sets = choose(keys[1], len(problem.log_unit), num_functions, np.dtype(problem.log_unit.dtype), among)
    X, union = jnp.asarray(rows.X), np.asarray(sets.union)
    # Of one shape, whatever there is: what is no function has the unit zero.
    unit = np.where(
        union < len(problem.log_unit), np.exp(np.asarray(problem.log_unit, np.float64).take(union, mode="clip")), 0.0
    )
    Phi = np.asarray(_some_features(problem, X, jnp.asarray(union)), np.float64) * unit
    if problem.likelihood is None:
        slope, size = rows.y.astype(np.float64), float(np.sqrt(np.mean(rows.y.astype(np.float64) ** 2)))
    else:
        likelihood, parameters = problem.likelihood, problem.parameter_prior[0]
        start = jnp.zeros(len(rows.X), X.dtype)
        slope = np.asarray(
            jax.grad(lambda eta: jnp.sum(likelihood.log_prob(eta, jnp.asarray(rows.y), parameters)))(start)
        )
        size = likelihood.predictor_scale(np.asarray(rows.y, np.float64))
    move = Phi @ np.sign(Phi.T @ slope)
    together = float(np.sqrt(np.mean(move**2)))
    return MOST_RATE if together == 0 or size == 0 else min(MOST_RATE, FIRST_MOVE * size / together)


@jax.jit
def _some_features(problem: Problem, X: jax.Array, union: jax.Array) -> jax.Array:
    return problem.basis.some_features(X, union)
