"""``log p(y | θ)`` of a Gaussian process on a grid, with gradients by implicit differentiation.

Eigendecompositions are not differentiated: derivatives in the covariance of an axis are
``⟨Q_l C_l Q_lᵀ, dK_l⟩`` with C_l made of quadratic forms and traces in the eigenbasis (``system``), which are defined
also where eigenvalues coincide. With fixed effects F = Φ diag(s), ``β ~ N(0, I)``, ``M = I + FᵀA⁻¹F`` and
``β̂ = M⁻¹FᵀA⁻¹y``

    −2 log p = rᵀA⁻¹r + β̂ᵀβ̂ + log|A| + log|M| + N log 2π,   r = y − Fβ̂,

whose columns are that of r, and ``A⁻¹F chol(M)⁻ᵀ``. Second derivatives, along directions, are central differences of
the gradient: Hessians by forward over reverse mode are right to six digits.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal.batching import full_precision
from ..evidence import joint
from . import kronecker, log_determinant
from .grid import Grid
from .observed_system import axis_products, noise_of_cells, solved_by_ignoring
from .solver import GridSolver
from .system import (
    Columns,
    Contraction,
    System,
    contraction,
    filled_factor,
    quadratic,
    solved_by_filling,
    system,
    traces,
    weights,
)


class Parameters(NamedTuple):
    """What the evidence is differentiated in: K_l, σ, y (N,), and standard deviations of the fixed effects (q,)."""

    covariances: tuple[jax.Array, ...]
    noise_scale: jax.Array
    y: jax.Array
    feature_scale: jax.Array


class Evidence(NamedTuple):
    """The value in nats, and how it was found.

    :ivar error: standard error of a log-determinant that is estimated, halved as it is in the evidence.
    :ivar iterations: of conjugate gradients.
    :ivar residual: the largest relative residual of a solution.
    """

    value: jax.Array
    error: jax.Array
    iterations: jax.Array
    residual: jax.Array


class Settings(NamedTuple):
    """What is static: how to solve, and which axes may be multiplied by FFT."""

    solver: GridSolver
    stationary: tuple[bool, ...]


class Mixed(NamedTuple):
    """Solutions of y and of the features together: the columns of r, and those of ``A⁻¹F chol(M)⁻ᵀ``."""

    residual: Columns
    features: Columns
    beta: jax.Array
    factor: jax.Array
    quadratic: jax.Array


def observed_features(grid: Grid, dtype: Any) -> jax.Array:
    """Φ of the observed cells, transposed, (q, N)."""
    if grid.features is None:
        return jnp.zeros((0, grid.num_rows), dtype)
    return jnp.asarray(grid.features, dtype)[jnp.asarray(grid.cells)].T


def solve(
    settings: Settings, grid: Grid, found: System, parameters: Parameters, right: jax.Array, factor: jax.Array | None
) -> tuple[Columns, jax.Array, jax.Array]:
    """Columns of ``A_XX α = y`` for several y (c, N), as the settings say."""
    solver = settings.solver
    if solver.plan(grid)[0] == "ignore":
        factors = axis_products(grid, settings.stationary, parameters.covariances)
        limits = (solver.rank, solver.tolerance, solver.max_iterations)
        return solved_by_ignoring(grid, found, factors, parameters.noise_scale, right, *limits)
    use = factor if solver.plan(grid)[0] == "gaps" else None
    return solved_by_filling(grid, found, right, use, solver.tolerance, solver.max_iterations)


def mixed(system: System, solved: Columns, scale: jax.Array) -> Mixed:
    """Fixed effects taken out of solutions of y and, after it, of the features."""
    y = jax.tree.map(lambda each: each[:1], solved)
    by_feature = Columns(*(scale.reshape(-1, *[1] * (each.ndim - 1)) * each[1:] for each in solved))
    gram = quadratic(system, by_feature, by_feature)
    factor = jnp.linalg.cholesky(jnp.eye(len(scale), dtype=scale.dtype) + gram)
    beta = cho_solve((factor, True), quadratic(system, by_feature, y)[:, 0])
    residual = jax.tree.map(lambda a, b: a - jnp.tensordot(beta, b, 1)[None], y, by_feature)
    half = solve_triangular(factor, jnp.eye(len(scale), dtype=scale.dtype), lower=True)
    columns = jax.tree.map(lambda each: jnp.tensordot(half, each, 1), by_feature)
    return Mixed(residual, columns, beta, factor, quadratic(system, residual, residual)[0, 0])


def _evaluate(settings: Settings, grid: Grid, parameters: Parameters) -> tuple[Evidence, Parameters]:
    """The evidence and its gradient."""
    found = system(grid, parameters.covariances, parameters.noise_scale)
    solver = settings.solver
    plan, dtype = solver.plan(grid), parameters.y.dtype
    factor = filled_factor(grid, found) if "gaps" in plan else None
    features = observed_features(grid, dtype)
    right = jnp.concatenate([parameters.y[None], features])
    solved, iterations, residual = solve(settings, grid, found, parameters, right, factor)
    parts = mixed(found, solved, parameters.feature_scale)
    alpha = weights(grid, found, parts.residual).ravel()[jnp.asarray(grid.cells)]
    fitted = (parameters.feature_scale * parts.beta) @ features
    form = parts.quadratic
    if plan[0] == "ignore":  # stationary in α, as the other form is in z
        form = 2 * jnp.sum((parameters.y - fitted) * alpha) - form
    total = jax.tree.map(jnp.add, contraction(found, parts.residual), contraction(found, parts.features))
    log_det = _log_determinant(grid, found, plan[1], factor, solver)
    total = jax.tree.map(jnp.add, total, log_det.columns)
    square = jnp.sum(parts.beta**2)
    effects = 2 * jnp.sum(jnp.log(jnp.diagonal(parts.factor)))
    value = -0.5 * (form + square + log_det.value + effects + grid.num_rows * jnp.log(2 * jnp.pi))
    gradient = _gradient(found, log_det, total, parts, alpha, parameters)
    as_number = functools.partial(jnp.asarray, dtype=dtype)
    worst = jnp.max(residual)
    return Evidence(value, 0.5 * log_det.error, as_number(iterations), worst), gradient


class _LogDeterminant(NamedTuple):
    """``log|A_XX|`` and its derivatives: of columns, and of traces in the eigenbasis (τ_l, and in s and log σ)."""

    value: jax.Array
    error: jax.Array
    columns: Contraction
    traces: tuple[jax.Array, ...]
    in_noise: jax.Array


def _log_determinant(
    grid: Grid, found: System, how: str, factor: jax.Array | None, solver: GridSolver
) -> _LogDeterminant:
    s, dtype = found.noise_variance, found.inverse.dtype
    zero = jnp.zeros((), dtype)
    if how == "nystrom":
        value, slope = log_determinant.nystrom_spectrum(grid, found)
        share = jnp.asarray(grid.num_rows / grid.num_cells, dtype)
        of_slope = traces(found._replace(inverse=share * slope))
        none = Contraction(tuple(jnp.zeros((len(t), len(t)), dtype) for t in found.eigen.values), zero, zero)
        return _LogDeterminant(value, zero, none, of_slope, 2 * s * jnp.sum(slope))
    part = (
        log_determinant.of_probes(grid, found, solver)
        if factor is None or how == "lanczos"
        else log_determinant.of_factor(grid, found, factor)
    )
    stiff = jnp.asarray(grid.stiffness, dtype)
    noisier = jnp.sum((stiff > 0).astype(dtype))
    excess = -jnp.sum(jnp.log(jnp.where(found.stiffness > 0, found.stiffness, 1)))
    value = found.eigen.log_determinant(s) + part.value + excess
    in_noise = 2 * s * jnp.sum(found.inverse) + 2 * noisier
    return _LogDeterminant(value, part.error, part.contraction, traces(found), in_noise)


def _gradient(
    found: System, log_det: _LogDeterminant, total: Contraction, parts: Mixed, alpha: jax.Array, parameters: Parameters
) -> Parameters:
    with full_precision():
        covariances = tuple(
            -0.5 * Q @ (jnp.diag(tau) - C) @ Q.T
            for Q, tau, C in zip(found.eigen.vectors, log_det.traces, total.axes, strict=True)
        )
    in_log_noise = log_det.in_noise - 2 * found.noise_variance * total.squares - 2 * total.stiff
    kept = cho_solve((parts.factor, True), jnp.eye(len(parts.beta), dtype=alpha.dtype))
    in_log_scale = parts.beta**2 - 1 + jnp.diagonal(kept)
    return Parameters(
        covariances,
        -0.5 * in_log_noise / parameters.noise_scale,
        -alpha,
        in_log_scale / parameters.feature_scale,
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_gradient(settings: Settings, grid: Grid, parameters: Parameters) -> tuple[Evidence, Parameters]:
    return _evaluate(settings, grid, parameters)


@_with_gradient.defjvp
def _gradient_jvp(settings: Settings, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """By central differences along the direction."""
    grid, parameters = primals
    direction = tangents[1]

    leaves = [
        pair for pair in zip(jax.tree.leaves(parameters), jax.tree.leaves(direction), strict=True) if pair[0].size
    ]
    sizes = [(jnp.max(jnp.abs(p)), jnp.max(jnp.abs(d))) for p, d in leaves]
    ratios = [jnp.where(d > 0, p / jnp.where(d > 0, d, 1), jnp.inf) for p, d in sizes]
    smallest = jnp.min(jnp.stack(ratios))
    step = 1e-5 * jnp.where(jnp.isfinite(smallest) & (smallest > 0), smallest, 1)
    ahead, behind = (
        _with_gradient(settings, grid, jax.tree.map(lambda p, d, h=h: p + h * d, parameters, direction))
        for h in (step, -step)
    )
    return _with_gradient(settings, grid, parameters), jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _evidence(settings: Settings, grid: Grid, parameters: Parameters) -> Evidence:
    return _with_gradient(settings, grid, parameters)[0]


@_evidence.defjvp
def _evidence_jvp(settings: Settings, primals: Any, tangents: Any) -> tuple[Evidence, Evidence]:
    grid, parameters = primals
    value, gradient = _with_gradient(settings, grid, parameters)
    products = jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, tangents[1])
    tangent = jax.tree.reduce(jnp.add, products)
    zero = jnp.zeros_like(tangent)
    return value, Evidence(tangent, zero, zero, zero)


def evidence(settings: Settings, grid: Grid, parameters: Parameters) -> Evidence:
    """Of one set of parameters; where the observed cells are fewest, by their dense covariance."""
    if settings.solver.plan(grid)[1] == "rows":
        return of_rows(grid, parameters)
    with full_precision():
        return _evidence(settings, grid, parameters)


def of_rows(grid: Grid, parameters: Parameters) -> Evidence:
    """By the covariance of the observed cells, (N, N): O(N³), with derivatives of any order."""
    cells, dtype = jnp.asarray(grid.cells), parameters.y.dtype
    noise = noise_of_cells(grid, parameters.noise_scale)
    root = parameters.noise_scale / jnp.sqrt(noise)  # √ω
    K = kronecker.at_cells(parameters.covariances, cells, cells, grid.shape)
    F = parameters.feature_scale[:, None] * observed_features(grid, dtype)
    with full_precision():
        covariance = root[:, None] * (K + F.T @ F) * root[None, :]
        projection = jnp.append(root * parameters.y, jnp.zeros((), dtype))
        fitted = jnp.zeros(grid.num_rows, dtype)
        design = joint.Design(jnp.asarray(grid.num_rows, dtype), None, None)
        given = joint.Parameters(covariance, fitted, parameters.noise_scale, projection)
        value, _ = joint.relative_evidence(design, jnp.ones((), dtype), given)
    value = value - 0.5 * grid.num_rows * jnp.log(2 * jnp.pi) + jnp.sum(jnp.log(root))
    zero = jnp.zeros((), dtype)
    return Evidence(value, zero, zero, zero)
