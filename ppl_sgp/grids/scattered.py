"""Exact GPs of scattered rows by conjugate gradients, with grid eigenfunctions, or any basis, as preconditioner.

``(ΦS⁻¹Φᵀ + σ²Ω⁻¹)⁻¹`` of the features of the rows stands for ``(K + σ²Ω⁻¹)⁻¹`` (Evans 2022, sections 3.3.4 and 4.3, the
application that the thesis names). K is formed a block of rows at a time, anew for each iteration.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.shown import Shown
from ..bases.basis import Basis
from ..evidence import exact
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from . import conjugate_gradients
from .evaluate import converged, not_converged
from .low_rank import woodbury
from .solver import GridSolver

#: Entries of the covariance that are in memory together.
ENTRIES = 2**22


@dataclasses.dataclass(frozen=True, repr=False)
class RowsSolution(Shown):
    """What :func:`solve_rows` found.

    :ivar weights: ``(K + σ²Ω⁻¹)⁻¹y``, shape (n,).
    :ivar iterations: of conjugate gradients, O(n²d) each.
    :ivar residual: the relative residual.
    :ivar converged: whether that is the tolerance.
    """

    weights: np.ndarray
    iterations: int
    residual: float
    converged: bool
    rows: Rows
    kernel: Kernel

    def facts(self) -> dict[str, Any]:
        """How it was found."""
        return {"iterations": self.iterations, "residual": self.residual, "converged": str(self.converged)}

    def mean(self, X_new: Any) -> np.ndarray:
        """Posterior mean of f at new inputs (n_new, d), shape (n_new,). O(n n_new d)."""
        X_new = checks.finite_inputs(X_new, self.rows.input_dim, "mean", "X_new")
        return np.asarray(_product(self.kernel, jnp.asarray(X_new), jnp.asarray(self.rows.X), self.weights[None]))[0]


def solve_rows(
    rows: Rows,
    kernel: Kernel,
    noise_scale: Any,
    basis: Basis | None = None,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> RowsSolution:
    """The weights of an exact GP at given hyperparameters without an n × n factor: memory O(np), O(n²d) an iteration.

    For some ten thousand rows, where the Cholesky factor of :class:`~ppl_sgp.ExactGP` has no room.

    :param rows: from :func:`~ppl_sgp.rows`, of one output.
    :param kernel: any kernel.
    :param noise_scale: standard deviation of the noise.
    :param basis: whose p features approximate the kernel, such as ``sgp.GridEigenBasis.from_kernel(kernel, X, p)``, and
        make the preconditioner, O(np²). Without it, none.
    :param tolerance: largest relative residual.
    :raises ValueError: for arguments that do not fit. Warns, with the residual, where it has not converged.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> rows = sgp.rows(X, np.sin(6 * X[:, 0]))
        >>> kernel = sgp.SquaredExponential(0.3)
        >>> with jax.enable_x64(True):
        ...     basis = sgp.GridEigenBasis.from_kernel(kernel, X, 10, 20)
        ...     solution = sgp.solve_rows(rows, kernel, 0.1, basis)
        >>> solution.converged, solution.iterations < 10
        (True, True)
    """
    if not isinstance(rows, Rows) or rows.num_outputs > 1:
        raise ValueError(f"solve_rows: `rows` must be sgp.rows(X, y) of one output; got {rows!r}.")
    if not isinstance(kernel, Kernel):
        raise ValueError(f"solve_rows: `kernel` must be a kernel; got {type(kernel).__name__}.")
    if basis is not None and not isinstance(basis, Basis):
        raise ValueError(f"solve_rows: `basis` must be a basis such as sgp.GridEigenBasis; got {type(basis).__name__}.")
    checks.positive("noise_scale", noise_scale, "solve_rows")
    exact.require_precision("solve_rows", jnp.result_type(float))
    limits = GridSolver(tolerance=tolerance, max_iterations=max_iterations)
    features = np.zeros((rows.num_rows, 0))
    if basis is not None:
        scale = np.exp(0.5 * np.asarray(basis.weight_prior(kernel).log_variance, dtype=np.float64))
        features = np.asarray(basis(rows.X)) * scale[None, :]
    noise = jnp.asarray(noise_scale) ** 2 / jnp.asarray(rows.weights)
    y = jnp.asarray(rows.y).reshape(1, -1)
    solved = _solve((tolerance, max_iterations), kernel, jnp.asarray(rows.X), y, noise, jnp.asarray(features))
    residual = float(solved.residual[0])
    is_solved = bool(converged(residual, limits))
    if not is_solved:
        checks.warn(
            f"{not_converged('solve_rows', solved.iterations, residual, limits).split(' Raise ')[0]} Give it a `basis` "
            "with more features, raise `max_iterations`, or bound the noise from below."
        )
    return RowsSolution(np.asarray(solved.x[0]), int(solved.iterations), residual, is_solved, rows, kernel)


@functools.partial(jax.jit, static_argnums=0)
def _solve(limits: Any, kernel: Kernel, X: Any, y: Any, noise: Any, features: Any) -> conjugate_gradients.Solved:
    def product(x: jax.Array) -> jax.Array:
        return _product(kernel, X, X, x) + noise[None, :] * x

    return conjugate_gradients.solve(product, y, woodbury(features, noise), *limits)


@jax.jit
def _product(kernel: Kernel, X: Any, X2: Any, x: Any) -> jax.Array:
    """``k(X, X2) x`` of columns (c, n2), some rows at a time."""
    width = max(1, min(len(X), ENTRIES // len(X2)))
    count = -(-len(X) // width)
    padded = jnp.concatenate([X, jnp.repeat(X[-1:], count * width - len(X), axis=0)]).reshape(count, width, -1)
    with full_precision():
        found = jax.lax.map(lambda block: kernel(block, X2) @ x.T, padded)
    return found.reshape(count * width, -1)[: len(X)].T
