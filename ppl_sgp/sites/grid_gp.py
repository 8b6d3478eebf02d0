"""An exact Gaussian process on a grid with gaps as a NumPyro distribution over the observed cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .._internal import checks
from ..evidence import exact
from ..grids import evaluate, kronecker, observed_system
from ..grids.grid import Grid
from ..grids.solver import GridSolver
from ..kernels import Kernel
from .observed_distribution import ObservedDistribution, check_noise


class GridGP(ObservedDistribution):
    """Observed cells of a grid under ``y ~ N(0, K + σ²Ω⁻¹)``, with K the product of a kernel an axis: no approximation.

    Without gaps ``log_prob`` and its gradient are O(M Σ m_l) after eigendecompositions of the axes, O(Σ m_l³); with
    gaps :class:`~ppl_sgp.GridSolver` says how and at which cost. Gradients are closed forms in the covariances of the
    axes (Evans 2022, chapter 3, with the log-determinant through the gaps, which is exact). Float64 only.

    Where conjugate gradients do not converge, ``log_prob`` raises outside of ``jit``, with the residual. Inside
    it is −∞, which a sampler rejects, and warns with the residual: no number that is wrong.

    Batch shape: that of the noise. Event shape: (N,), and the value to observe is ``grid.values``.

    :param grid: the data, an :class:`~ppl_sgp.Grid`.
    :param kernels: a kernel for each axis. Only the product of their amplitudes is known.
    :param noise_scale: standard deviation of the noise of a cell of weight one.
    :param feature_scale: prior standard deviations of the fixed effects, () or (q,), if the grid has features.
    :param solver: how gaps are dealt with, and how exactly.
    :raises ValueError: for arguments that do not fit, in float32, or for what memory has no room for.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> grid = sgp.Grid([[0.0, 5.0], [0.0, 9.0]], [[0.0, 0.0], [0.0, np.nan]], gaps="nan")
        >>> with jax.enable_x64(True):
        ...     kernel = sgp.SquaredExponential(np.float64(0.1))
        ...     site = sgp.GridGP(grid, [kernel, kernel], noise_scale=np.float64(1.0))
        ...     print(round(float(site.log_prob(grid.values)), 3))  # −3/2 log 4π
        -3.797
    """

    arg_constraints = {"noise_scale": constraints.positive}
    support = constraints.real_vector
    is_evidence = True
    pytree_data_fields = ("grid", "kernels", "noise_scale", "feature_scale")
    pytree_aux_fields = ("solver",)

    def __init__(
        self,
        grid: Grid,
        kernels: Sequence[Kernel],
        noise_scale: Any,
        *,
        feature_scale: Any = None,
        solver: GridSolver | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.kernels = evaluate.checked_kernels("GridGP", grid, kernels)
        check_noise("GridGP", noise_scale)
        self.solver = GridSolver() if solver is None else solver
        evaluate.require_solvable("GridGP", grid, self.solver)
        dtype = checks.common_dtype(*jax.tree.leaves(self.kernels), noise_scale)
        exact.require_precision("GridGP", dtype)
        self.grid = grid
        self.feature_scale = jnp.asarray(evaluate.checked_feature_scale("GridGP", grid, feature_scale), dtype)
        self.noise_scale = jnp.asarray(noise_scale, dtype)
        super().__init__(jnp.shape(noise_scale), (grid.num_rows,), validate_args=validate_args)

    @property
    def data(self) -> Grid:
        """The grid."""
        return self.grid

    @property
    def observed(self) -> Any:
        """The observed cells, shape (N,), in row-major order."""
        return self.grid.values

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | θ)`` in nats; −∞ where it cannot be represented, or inside ``jit`` not be found."""
        found = evaluate.evaluate(self.grid, self.kernels, self.noise_scale, value, self.feature_scale, self.solver)
        is_solved = evaluate.converged(found.residual, self.solver)
        if checks.is_concrete(found):
            if not bool(jnp.all(is_solved | jnp.isnan(found.value))):
                raise ValueError(evaluate.not_converged("GridGP", found.iterations, found.residual, self.solver))
        elif self.solver.plan(self.grid)[0] in ("fill", "ignore"):
            jax.debug.callback(_warn, self.solver, is_solved, found.iterations, found.residual)
        return jnp.where(is_solved & ~jnp.isnan(found.value), found.value, -jnp.inf)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw the observed cells. O(M Σ m_l) a draw, after O(Σ m_l³)."""
        assert is_prng_key(key)
        shape = sample_shape + self.batch_shape
        dtype = self.noise_scale.dtype
        keys = jax.random.split(key, 3)
        eigen = kronecker.eigen(evaluate.axis_covariances(self.grid, self.kernels, dtype))
        z = jax.random.normal(keys[0], (*shape, *self.grid.shape), dtype)
        roots = [Q * jnp.sqrt(t)[None, :] for Q, t in zip(eigen.vectors, eigen.values, strict=True)]
        f = kronecker.apply(roots, z).reshape(*shape, -1)[..., jnp.asarray(self.grid.cells)]
        noise = jnp.sqrt(observed_system.noise_of_cells(self.grid, jnp.ones((), dtype)))
        e = jax.random.normal(keys[1], f.shape, dtype) * noise.reshape((1,) * len(shape) + noise.shape)
        result = f + jnp.broadcast_to(self.batched_noise_scale, shape)[..., None] * e
        if self.grid.features is None:
            return result
        beta = jax.random.normal(keys[2], (*shape, self.grid.num_features), dtype)
        Phi = jnp.asarray(self.grid.features, dtype)[jnp.asarray(self.grid.cells)]
        return result + beta @ (Phi * self.feature_scale[None, :]).T

    @property
    def mean(self) -> jax.Array:
        """Zero."""
        return jnp.zeros(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> jax.Array:
        """Of y: that of f, of fixed effects, and of the noise."""
        dtype, cells = self.noise_scale.dtype, jnp.asarray(self.grid.cells)
        points = [jnp.asarray(axis, dtype) for axis in self.grid.axes]
        diagonal = kronecker.outer([k.diag(p) for k, p in zip(self.kernels, points, strict=True)]).ravel()[cells]
        if self.grid.features is not None:
            diagonal = diagonal + (jnp.asarray(self.grid.features, dtype)[cells] ** 2) @ self.feature_scale**2
        noise = observed_system.noise_of_cells(self.grid, jnp.ones((), dtype))
        scale = self.batched_noise_scale[..., None] ** 2
        shape = (1,) * len(self.batch_shape) + noise.shape
        return scale * noise.reshape(shape) + diagonal.reshape(shape)

    @staticmethod
    def infer_shapes(grid: Any, kernels: Any, noise_scale: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        return tuple(noise_scale), jnp.shape(grid.values)


def _warn(solver: GridSolver, is_solved: Any, iterations: Any, residual: Any) -> None:
    if not np.all(is_solved):
        checks.warn(
            evaluate.not_converged("GridGP", iterations, residual, solver) + " The density is −∞ here, which samplers "
            "reject."
        )
