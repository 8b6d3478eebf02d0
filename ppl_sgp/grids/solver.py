"""How systems of a grid are solved, and how exactly."""

from __future__ import annotations

from typing import Any, Literal

from .._internal import checks
from .._internal.by_value import EqualByValue
from .._internal.pytree import pytree_dataclass, static

METHODS = ("auto", "fill", "ignore")
LOG_DETERMINANTS = ("auto", "exact", "lanczos", "nystrom")


@pytree_dataclass
class GridSolver(EqualByValue):
    """How a grid with gaps is solved. Grids without gaps and with equal noise need none of it.

    With a factor of the N observed cells or of the L gaps, whichever are fewer, everything is exact: O(min(N, L)³).
    Beyond ``dense_limit`` systems are solved by conjugate gradients, and log-determinants are estimated by Lanczos
    quadrature with probes that stay the same, so that the potential is a smooth function of the hyperparameters.

    :param method: ``"auto"``: a factor while one is small enough, else ``"fill"``. ``"fill"`` finds the values of the
        gaps by conjugate gradients, ``V(K + σ²)⁻¹Vᵀy_Z = −V(K + σ²)⁻¹Wᵀy_X`` (Evans 2022, eq 3.5), well conditioned
        where gaps are scattered. ``"ignore"`` works on the observed cells, ``W(K + σ²)Wᵀα = y_X`` (eq 3.4), with a
        preconditioner of ``rank`` p (eq 3.7): better where few cells are observed.
    :param tolerance: largest relative residual of a solution. Values are off by its square, gradients by itself.
    :param max_iterations: of conjugate gradients.
    :param rank: p, of ``"ignore"``.
    :param log_determinant: ``"exact"`` by a Cholesky factor; ``"lanczos"``: a stochastic estimate, unbiased up to the
        steps; ``"nystrom"``: ``Σ log(N/M λ_i + σ²)`` over the N largest eigenvalues (section 3.4), which is *biased*,
        no bound, and without an error bar; ``"auto"``: exact while a factor is small enough, else Lanczos.
    :param num_probes: random vectors of the estimate, whose standard error falls with their square root.
    :param lanczos_steps: products with the matrix for each of them.
    :param dense_limit: largest size of a Cholesky factor under ``"auto"``.
    :param seed: of the probes.
    :raises ValueError: for numbers or names that are none of these.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.GridSolver(method="ignore", rank=100).tolerance
        1e-09
    """

    method: Literal["auto", "fill", "ignore"] = static(default="auto")
    tolerance: float = static(default=1e-9)
    max_iterations: int = static(default=1000)
    rank: int = static(default=0)
    log_determinant: Literal["auto", "exact", "lanczos", "nystrom"] = static(default="auto")
    num_probes: int = static(default=8)
    lanczos_steps: int = static(default=25)
    dense_limit: int = static(default=2048)
    seed: int = static(default=0)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            biased = " Penalised gaps are biased, and offered by `sgp.solve_grid` to compare with." * (
                self.method == "penalise"
            )
            raise ValueError(f"GridSolver: `method` must be one of {METHODS}; got {self.method!r}.{biased}")
        if self.log_determinant not in LOG_DETERMINANTS:
            raise ValueError(
                f"GridSolver: `log_determinant` must be one of {LOG_DETERMINANTS}; got {self.log_determinant!r}."
            )
        checks.positive("tolerance", self.tolerance, "GridSolver")
        for name, least in (("max_iterations", 1), ("rank", 0), ("num_probes", 2), ("lanczos_steps", 2)):
            checks.whole_number(name, getattr(self, name), least, "GridSolver")
        for name in ("dense_limit", "seed"):
            checks.whole_number(name, getattr(self, name), 0, "GridSolver")

    def plan(self, grid: Any) -> tuple[str, str]:
        """How systems are solved, ``"rows"``, ``"gaps"``, ``"fill"`` or ``"ignore"``, and log-determinants found."""
        num_rows, num_filled = grid.cells.shape[0], grid.filled.shape[0]
        if num_filled == 0:
            return "gaps", "gaps"
        smaller = "rows" if num_rows < num_filled else "gaps"
        exact = self.log_determinant == "exact" or (
            self.log_determinant == "auto" and min(num_rows, num_filled) <= self.dense_limit
        )
        if self.method == "auto" and exact:
            return smaller, smaller
        solve = "fill" if self.method == "auto" else self.method
        if exact:
            return solve, smaller
        return solve, "lanczos" if self.log_determinant == "auto" else self.log_determinant
