"""Grid-structured eigenfunctions (GP-GRIEF): a Nyström approximation from a grid too large to form.

References
    1. Evans, T. W. (2022), PhD thesis, section 4.3: eqs 4.1-4.9, theorem 4.2 and algorithm 4.1.
    2. Evans, T. W. & Nair, P. B. (2018), Scalable Gaussian processes with grid-structured eigenfunctions.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from .frozen_kernel import FrozenKernelBasis, eigenpairs, evaluate, evaluate_rows, freeze, whitening
from .separable import one_dimensional, share_outside

#: A grid that keeps less than this share of the prior variance is announced.
LEAST_KEPT = 0.5


@pytree_dataclass
class GridEigenBasis(FrozenKernelBasis):
    """The p leading eigenfunctions of a product kernel on a Cartesian grid, which is never formed.

    With U the grid, ``k(U, U) = QΛQᵀ`` and p columns of Q chosen by the largest eigenvalues, features are
    ``φ(x) = Λ_p^-½ Q_pᵀ k(U, x)``: the Nyström approximation of the kernel, truncated (eqs 4.1-4.2 of [1]). Each
    feature is a product over inputs of whitened one-dimensional eigenfunctions. None of those exceeds 1, so the
    product neither overflows nor loses digits, and eq 4.9 needs no logarithms of features.

    The kernel is frozen but for its amplitude (:meth:`weight_prior`); free the variance of each feature with
    ``DiagonalPrior(scale)``. Beyond the grid features decay to zero, and with them the prior variance: a warning
    says what share of rows lies there.

    Make one with :meth:`from_kernel`.

    :param kernels: one-dimensional kernels of unit amplitude, stacked: hyperparameters have shape (d,).
    :param points: grid points of each input, shape (d, m̄); a shorter grid is filled up with its last point.
    :param eigenvalues: eigenvalues of each input's grid, shape (d, m̄), largest first, filled up with zeros.
    :param eigenvectors: eigenvectors of each input's grid in columns, shape (d, m̄, m̄), filled up with zeros.
    :param indices: which eigenfunction of each input makes a feature, shape (d, p).
    :param log_eigenvalues: log Λ_p, shape (p,), largest first.
    """

    kernels: Kernel
    points: Any
    eigenvalues: Any
    eigenvectors: Any
    indices: Any
    log_eigenvalues: Any
    hyperparameters: str = static()

    @property
    def num_features(self) -> int:
        """The number of features p."""
        return self.indices.shape[-1]

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.points.shape[-2]

    @classmethod
    def from_kernel(
        cls, kernel: Kernel, X_or_bounds: Any, num_features: int, points_per_dim: Any = 10
    ) -> GridEigenBasis:
        """Eigenfunctions of ``kernel`` on an equally spaced grid. O(d m̄³ + d m̄ p); grids of 10¹⁰⁰ points are fine.

        A squared exponential is a product over inputs. Of a Matérn or rational quadratic kernel, the product of
        one-dimensional kernels with the lengthscale of each input is taken: a separable kernel, which is not the
        kernel of the Euclidean distance.

        :param kernel: a squared exponential, Matérn or rational quadratic kernel, or a product of them.
        :param X_or_bounds: training inputs, shape (n, d), whose range the grid spans; or a tuple
            ``(lower, upper)`` of its corners, shape (d,) each. A constant column gets a single grid point.
        :param num_features: p. There are fewer where the grid has fewer eigenvalues above rounding level (1e-14
            of the largest of its input).
        :param points_per_dim: grid points m̄ of each input, one number or d. About 2 a lengthscale are plenty.
        :raises ValueError: for another kernel, non-finite inputs, or numbers that are not positive integers.
        :warns UserWarning: if the grid is too coarse for the lengthscales.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> kernel = sgp.SquaredExponential(np.full(30, 5.0))
            >>> basis = sgp.GridEigenBasis.from_kernel(kernel, (np.zeros(30), np.ones(30)), num_features=200)
            >>> basis.num_features, basis(np.full((1, 30), 0.5)).shape
            (200, (1, 200))
        """
        owner = "GridEigenBasis.from_kernel"
        lower, upper = _range(X_or_bounds, owner)
        d = len(lower)
        sizes = np.where(upper > lower, _checked_sizes(points_per_dim, d, owner), 1)
        unit, hyperparameters = freeze(kernel, owner)
        kernels = jax.tree.map(lambda *leaves: np.array(leaves, np.float64), *one_dimensional(unit, d, owner))
        largest = int(sizes.max())
        points, eigenvalues = np.empty((d, largest)), np.zeros((d, largest))
        eigenvectors = np.zeros((d, largest, largest))
        for i, size in enumerate(sizes):
            points[i] = upper[i]
            points[i, :size] = np.linspace(lower[i], upper[i], size) if size > 1 else (lower[i] + upper[i]) / 2
        covariances = evaluate(_covariances, kernels, points, np)
        log_factors = []
        for i, size in enumerate(sizes):
            values, vectors = eigenpairs(covariances[i, :size, :size])
            eigenvalues[i, : len(values)], eigenvectors[i, :size, : len(values)] = values, vectors
            log_factors.append(np.log(values))
        _warn_coarse(owner, (kernels, points, eigenvalues, eigenvectors), _probes(X_or_bounds, points, sizes))
        log_eigenvalues, indices = largest_products(
            log_factors, checks.whole_number("num_features", num_features, 1, owner)
        )
        return cls(kernels, points, eigenvalues, eigenvectors, indices, log_eigenvalues, hyperparameters)

    def check_domain(self, X: Any) -> None:
        share = share_outside(X, self.points.min(axis=1), self.points.max(axis=1))
        if share > 0:
            checks.warn(
                f"GridEigenBasis: {share:.3g} of the rows lie outside the grid, where features and prior variance "
                "decay to zero. Make the basis with bounds `(lower, upper)` that cover all inputs, new ones too.",
            )

    def frozen_variance(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of the product over inputs, at inputs (n, d), shape (n,), float64."""
        return evaluate(_diagonal, self.kernels, X, np)

    def features(self, X: Any, xp: ModuleType) -> Any:
        tree = (self.kernels, self.points, self.eigenvalues, self.eigenvectors, self.indices)
        return evaluate_rows(_product_over_inputs, tree, X, xp, self.num_features)


def largest_products(log_factors: list[np.ndarray], number: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest entries of ``λ₁ ⊗ … ⊗ λ_d`` in O(d m̄ p): algorithm 4.1 of [1].

    Every prefix of a large product is a large product, so only ``number`` are kept after each factor.

    :param log_factors: log λᵢ, of any sizes, d of them.
    :param number: how many entries.
    :return: their logarithms, descending, shape (p,) with p = min(number, Π sizes); and indices, shape (d, p).
    """
    logs, indices = np.zeros(1), np.zeros((0, 1), dtype=np.int32)
    for log_factor in log_factors:
        every = (logs[:, None] + log_factor[None, :]).ravel()
        order = np.argsort(-every, kind="stable")[:number]
        prefix, last = np.divmod(order, len(log_factor))
        logs, indices = every[order], np.vstack([indices[:, prefix], last.astype(np.int32)])
    return logs, indices


def _diagonal(kernels: Any, X: jax.Array) -> jax.Array:
    return jnp.prod(jax.vmap(lambda kernel, x: kernel.diag(x[:, None]))(kernels, X.T), axis=0)


def _covariances(kernels: Any, points: jax.Array) -> jax.Array:
    """One-dimensional covariances (d, m̄, m̄)."""
    return jax.vmap(lambda kernel, u: kernel(u[:, None]))(kernels, points)


def _product_over_inputs(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    """Features (n, p), one input at a time, in O(n p) memory."""
    *grid, indices = tree

    def multiply(features, per_input):
        one, index = per_input
        return features * _one_input(one)[:, index], None

    start = jnp.ones((X.shape[0], indices.shape[-1]), X.dtype)
    return jax.lax.scan(multiply, start, (_by_input(grid, X), indices))[0]


def _kept_variances(grid: tuple[Any, ...], X: jax.Array) -> jax.Array:
    """The share of the prior variance of each one-dimensional kernel that its grid keeps at rows, shape (d, n)."""
    return jax.lax.map(lambda one: jnp.sum(_one_input(one) ** 2, axis=1), _by_input(grid, X))


def _by_input(grid: Any, X: jax.Array) -> tuple[Any, ...]:
    kernels, points, eigenvalues, eigenvectors = grid
    return kernels, X.T, points, eigenvectors * whitening(eigenvalues)[:, None, :]


def _one_input(one: tuple[Any, ...]) -> jax.Array:
    """All whitened eigenfunctions of one input, (n, m̄)."""
    kernel, x, u, projection = one
    return kernel(x[:, None], u[:, None]) @ projection


def _probes(X_or_bounds: Any, points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where the grid is looked at: at most 1,000 of the inputs, or for bounds the centres of cells on a diagonal."""
    if not isinstance(X_or_bounds, tuple):
        X = np.asarray(X_or_bounds, dtype=np.float64)
        return X[:: -(-len(X) // 1000)]
    cells = np.arange(points.shape[1])[:, None] % np.maximum(sizes - 1, 1)
    inputs = np.arange(len(points))
    return 0.5 * (points[inputs, cells] + points[inputs, np.minimum(cells + 1, sizes - 1)])


def _warn_coarse(owner: str, grid: tuple[Any, ...], X: np.ndarray) -> None:
    kept = evaluate(_kept_variances, grid, X, np)
    share = float(np.prod(kept, axis=0).mean())
    if share < LEAST_KEPT:
        each = kept.mean(axis=1)
        coarse = np.flatnonzero(each < 1 - (1 - LEAST_KEPT) / len(each))
        checks.warn(
            f"{owner}: between its points the grid loses the kernel; on average {100 * share:.2g}% of the prior "
            f"variance is left. The lengthscale is short against the spacing for input(s) {coarse.tolist()}: use more "
            "`points_per_dim` there, about 2 a lengthscale.",
        )


def _range(X_or_bounds: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the grid; those of bounds are the range of two rows."""
    rows = checks.host_numbers("X_or_bounds", X_or_bounds, owner)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(
            f"{owner}: `X_or_bounds` must be inputs of shape (n, d), or two corners of shape (d,); got shape "
            f"{rows.shape}. For one input use `X[:, None]` or `([lower], [upper])`."
        )
    checks.require_finite("X_or_bounds", rows, owner)
    return rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)


def _checked_sizes(points_per_dim: Any, d: int, owner: str) -> np.ndarray:
    sizes = np.asarray(points_per_dim)
    if sizes.shape not in ((), (d,)) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        raise ValueError(
            f"{owner}: `points_per_dim` must be an integer of 1 or more, or {d} of them; got {points_per_dim}."
        )
    return np.broadcast_to(sizes, (d,))
