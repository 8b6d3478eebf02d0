"""Where inducing points go: greedily to the largest conditional variance, to centres of clusters, or to random rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.clusters import cluster
from .._internal.random import host_generator
from .._internal.shown import ShownFields
from ..bases.frozen_kernel import covariances, evaluate, variances
from ..evidence.inducing import JITTER
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows

METHODS = ("greedy", "k-means", "uniform")


@dataclasses.dataclass(frozen=True, repr=False)
class InducingPoints(ShownFields):
    """What :func:`~ppl_sgp.select_inducing_points` chose.

    :ivar points: shape (m, d), float64, in the order of choice.
    :ivar indices: numbers of the rows they are, shape (m,); ``None`` for centres of clusters.
    :ivar residual_trace: ``tr(K − Q)`` over all rows after each point, shape (m,): the prior variance that the points
        do not explain. Over ``2σ²`` it is what the bound of Titsias loses by its trace term, in nats.
    :ivar num_candidates: rows that were looked at; fewer than there are only if memory did not allow more, and
        ``residual_trace`` is extrapolated then.
    """

    points: np.ndarray
    indices: np.ndarray | None
    residual_trace: np.ndarray
    num_candidates: int


def select_inducing_points(
    key: jax.Array,
    X: Any,
    kernel: Kernel,
    num_points: int,
    method: str = "greedy",
    *,
    threshold: float = 0.0,
    max_memory: float = 1e9,
) -> InducingPoints:
    """Choose inducing points for a kernel, by a partial Cholesky factorisation of K: O(n m²) time, O(n m) memory.

    ``"greedy"`` takes the row of the largest variance given the points so far (conditional variance: Burt and others
    2019; Hughes-Hallett 2022, section 3.1.1, whose eq 3.1 lacks an inverse in print); of equal ones, such as at the
    start for stationary kernels, a random one. It looks at the kernel's hyperparameters, and never at y. ``"k-means"``
    takes centres of clusters, in units of the inputs' standard deviations, ``"uniform"`` rows at random.

    There may be fewer points than asked for: no more than distinct rows, and greedy choice ends where the largest
    variance left is 1e-10 of the largest variance, as with a kernel of low rank.

    :param key: a JAX random key.
    :param X: inputs, shape (n, d), or rows from :func:`~ppl_sgp.rows`.
    :param kernel: the kernel, with hyperparameters that can be read.
    :param num_points: m.
    :param method: ``"greedy"``, ``"k-means"`` or ``"uniform"``.
    :param threshold: stop where ``tr(K − Q)`` is no more than this, in squared units of f; greedy only.
    :param max_memory: bytes. If ``8 n m`` is more, points are chosen among as many random rows as fit.
    :raises ValueError: for arguments that do not fit, or a kernel that is not finite at the rows.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> chosen = sgp.select_inducing_points(jax.random.key(0), X, sgp.SquaredExponential(0.3), 50)
        >>> len(chosen.points) < 20, bool(chosen.residual_trace[-1] < 1e-6)
        (True, True)
    """
    owner = "select_inducing_points"
    rng = host_generator(key, owner)
    num_points = checks.whole_number("num_points", num_points, 1, owner)
    if method not in METHODS:
        raise ValueError(f"{owner}: `method` must be one of {METHODS}; got {method!r}.")
    if not isinstance(kernel, Kernel) or not checks.is_concrete(kernel):
        got = f"a traced {type(kernel).__name__}" if isinstance(kernel, Kernel) else type(kernel).__name__
        raise ValueError(
            f"{owner}: `kernel` must be a kernel such as sgp.SquaredExponential(0.5), outside `jit` and models; got "
            f"{got}."
        )
    if not np.isfinite(threshold) or threshold < 0:
        raise ValueError(f"{owner}: `threshold` must be a number of at least 0; got {threshold}.")
    limit = int(max(checks.memory_cap(max_memory, owner) // (8 * num_points), num_points, 2))
    if not isinstance(X, ChunkedRows):
        X = X.X if isinstance(X, Rows) else checks.finite_inputs(X, None, owner)
    num_rows = X.num_rows if isinstance(X, ChunkedRows) else len(X)
    numbers = np.arange(num_rows) if num_rows <= limit else np.sort(rng.choice(num_rows, limit, replace=False))
    X = X.inputs.at(numbers) if isinstance(X, ChunkedRows) else np.asarray(X[numbers])
    num_points = min(num_points, len(X))
    scale = num_rows / len(X)
    if method == "greedy":
        order = rng.permutation(len(X))  # so that argmax breaks ties at random
        residual = Residual(kernel, X[order], num_points, owner)
        chosen = order[residual.greedily(num_points, threshold / scale)]
        points, indices = X[chosen], numbers[chosen]
    else:
        if method == "uniform":
            chosen = rng.choice(len(X), num_points, replace=False)
            points, indices = X[chosen], numbers[chosen]
        else:
            points, indices = cluster(X, num_points, rng)[0], None
        residual = Residual(kernel, np.concatenate([X, points]), len(points), owner, len(X))
        residual.through(range(len(X), len(X) + len(points)))
    return InducingPoints(points, indices, scale * np.array(residual.traces), len(X))


class Residual:
    """The variances of rows given points among them: a Cholesky factorisation of K by columns, stopped early.

    :param X: rows, shape (n, d).
    :param most: points for which there is memory.
    :param counted: how many rows, the first ones, the trace is over; default all.
    """

    def __init__(self, kernel: Kernel, X: np.ndarray, most: int, owner: str, counted: int | None = None) -> None:
        self.kernel, self.X, self.counted = kernel, X, counted
        self.variance = np.array(evaluate(variances, kernel, X, np))
        if not np.isfinite(self.variance).all():
            raise ValueError(f"{owner}: the kernel is not finite at row {int(np.argmin(np.isfinite(self.variance)))}.")
        self.least = JITTER[0] * self.variance.max()
        self.columns, self.traces = np.empty((most, len(X))), list[float]()

    def add(self, j: int) -> None:
        """Condition on row j; nothing changes if its variance is zero to rounding."""
        k, left = len(self.traces), self.variance[j]
        column = self.columns[k]
        if left > self.least:
            covariance = evaluate(covariances, (self.kernel, self.X[j : j + 1]), self.X, np)[:, 0]
            column[:] = (covariance - self.columns[:k, j] @ self.columns[:k]) / np.sqrt(left)
            self.variance = np.maximum(self.variance - column**2, 0)
        else:
            column[:] = 0
        self.variance[j] = 0
        self.traces.append(float(self.variance[: self.counted].sum()))

    def greedily(self, num_points: int, threshold: float) -> list[int]:
        """Condition on the row of the largest variance, at least once, until nothing is left to explain."""
        chosen = [int(np.argmax(self.variance))]
        self.add(chosen[0])
        while len(chosen) < num_points and self.traces[-1] > threshold and self.variance.max() > self.least:
            chosen.append(int(np.argmax(self.variance)))
            self.add(chosen[-1])
        return chosen

    def through(self, rows: Any) -> None:
        """Condition on given rows."""
        for j in rows:
            self.add(j)
