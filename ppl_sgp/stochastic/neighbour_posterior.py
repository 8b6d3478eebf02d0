"""The posterior of f that SWSGP gives: of a row through its own points, of several rows through the union of theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from ..likelihoods.likelihood import Likelihood
from ..posteriors.functions import FunctionPosteriors, Moments, covariance_root
from ..posteriors.joint import JointMoments
from .functions import VariationalFunctions
from .neighbour_terms import Values, conditional
from .neighbours import Neighbours, union
from .swsgp_step import of_each_row

#: Rows of which moments are computed together.
TOGETHER = 256
#: Points of joint draws, at most: matrices of 2 GB.
MOST_JOINT = 16_384


@pytree_dataclass
class VariationalNeighbours(VariationalFunctions):
    """Gaussian values ``q(u) = N(loc, S)`` of K functions at m inducing points, of which a row uses H.

    :ivar kernels: the kernel, its leaves with an axis of one draw.
    :ivar points: (m, d).
    :ivar loc: (m, K).
    :ivar root: standard deviations (m, K), or lower triangles by rows (m, K, m).
    :ivar level: what predictors have beside f, (K,).
    :ivar num_neighbours: H.
    :ivar nearest: how they are chosen.

    The others are of ``VariationalFunctions``.
    """

    objective = "the objective"

    kernels: Kernel
    points: Any
    loc: Any
    root: Any
    level: Any
    likelihood: Likelihood
    parameters: Any
    values: tuple[Any, ...]
    objective_trace: Any
    held_out_trace: Any
    num_neighbours: int = static()
    nearest: str = static()
    names: tuple[str, ...] = static()
    reason: str = static(default="")

    def functions(self) -> NeighbourPosteriors:
        """The posterior of f, one draw."""
        noise = self.noise_scale if self.is_gaussian else np.ones(1)
        return NeighbourPosteriors(self, noise)

    def facts(self) -> dict[str, Any]:
        """What it is a posterior of."""
        return {"num_points": len(self.points), "num_neighbours": self.num_neighbours, **super().facts()}


class RowsWithPoints(NamedTuple):
    """Inputs (k, d), and the numbers of each row's points (k, H)."""

    X: np.ndarray
    numbers: np.ndarray


@dataclasses.dataclass(frozen=True)
class NeighbourDraws:
    """So many times the same draw."""

    posterior: VariationalNeighbours
    noise_scale: np.ndarray

    def take(self, indices: Any) -> NeighbourDraws:
        """As many."""
        return NeighbourDraws(self.posterior, self.noise_scale[indices])

    def moments(self, rows: RowsWithPoints) -> Moments:
        """Means and variances of f, through the points of each row alone, (b, K, k): O(H³) a row."""
        fit = self.posterior
        K, total = len(fit.level), len(rows.X)
        found = np.empty((2, K, total))
        for start in range(0, total, TOGETHER):
            part = np.minimum(np.arange(start, start + TOGETHER), total - 1)
            size = TOGETHER * fit.num_neighbours
            numbers, places = union(rows.numbers[part], len(fit.points), size)
            with jax.enable_x64(True):
                mean, variance = _moments(self._kernel, *self._at(numbers), places, rows.X[part])
            count = min(TOGETHER, total - start)
            found[:, :, start : start + count] = np.asarray(mean)[:, :count], np.asarray(variance)[:, :count]
        mean, variance = found
        shape = (len(self.noise_scale), K, total)
        return (
            np.broadcast_to(mean + np.asarray(fit.level)[:, None], shape).copy(),
            np.broadcast_to(variance, shape).copy(),
        )

    def joint(self, rows: RowsWithPoints) -> Iterator[JointMoments]:
        """Means and covariances of f, through the union of the rows' points, of size u: O(u³ + u²k)."""
        mean, roots = self._jointly(rows)
        for _ in range(len(self.noise_scale)):
            yield JointMoments(mean, roots, np.zeros_like(mean))

    def sample(self, rng: np.random.Generator, rows: RowsWithPoints, noise: np.ndarray) -> np.ndarray:
        """Joint draws, (b, K, k), through the union."""
        mean, roots = self._jointly(rows)
        K, _, r = roots.shape
        z = rng.standard_normal((len(self.noise_scale), K, r))
        f = mean + np.einsum("qkr,bqr->bqk", roots, z)
        scales = self.noise_scale[..., None] * np.sqrt(noise)
        return f + scales * rng.standard_normal(f.shape)

    def _jointly(self, rows: RowsWithPoints) -> tuple[np.ndarray, np.ndarray]:
        fit = self.posterior
        distinct = np.unique(rows.numbers)
        if len(distinct) > MOST_JOINT:
            raise ValueError(
                f"Rows are joint through the {len(distinct):,} points that any of them uses, of which at most "
                f"{MOST_JOINT:,} have a covariance here. Predict at fewer, or closer, rows together; means, variances "
                "and densities of single rows need none."
            )
        # A few sizes only, so that few programs are compiled.
        size = min(len(fit.points), int(2 ** np.ceil(np.log2(len(distinct)))))
        numbers, _ = union(rows.numbers, len(fit.points), size)
        with jax.enable_x64(True):
            Z, there, values = self._at(numbers)
            mean, lacking, known = map(np.asarray, _jointly(self._kernel, Z, there, values, rows.X))
        roots = np.stack([covariance_root(lacking + each, np.zeros(len(each))) for each in known])
        return mean + np.asarray(fit.level)[:, None], roots

    @property
    def _kernel(self) -> Kernel:
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[0], self.posterior.kernels)

    def _at(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, Values]:
        fit, there = self.posterior, numbers < len(self.posterior.points)
        chosen = np.minimum(numbers, len(fit.points) - 1)
        arrays = (np.asarray(each)[chosen].astype(np.float64) for each in (fit.points, fit.loc, fit.root))
        Z, loc, root = arrays
        return Z, there, Values(loc, root)


@jax.jit
def _moments(kernel: Any, Z: Any, there: Any, values: Any, places: Any, X: Any) -> tuple[jax.Array, jax.Array]:
    with full_precision():
        terms = of_each_row(kernel, jnp.asarray(Z), there, jax.tree.map(jnp.asarray, values), places, X)
    return terms.mean, terms.variance


@functools.partial(jax.jit)
def _jointly(kernel: Any, Z: Any, there: Any, values: Any, X: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means (K, k), covariances (k, k) that the points lack, and those that they leave, (K, k, k)."""
    with full_precision():
        _, half, a = conditional(kernel, Z, there, X)
        if values.root.ndim == 2:
            known = jnp.einsum("rk,rb,rc->kbc", values.root**2, a, a)
        else:
            along = jnp.einsum("rkm,rb->kbm", values.root, a)
            known = along @ along.swapaxes(1, 2)
        return values.loc.T @ a, kernel(X) - half.T @ half, known


class NeighbourPosteriors(FunctionPosteriors):
    """One posterior of K functions through few of many points.

    :param posterior: the posterior.
    :param noise_scale: (1,).
    """

    num_draws = 1
    #: As of inducing points: joint draws take covariances between rows.
    method = "vfe"

    def __init__(self, posterior: VariationalNeighbours, noise_scale: np.ndarray) -> None:
        self._posterior, self.num_outputs = posterior, len(np.asarray(posterior.level))
        self._draws = NeighbourDraws(posterior, np.broadcast_to(noise_scale[:, None], (1, self.num_outputs)))

    @functools.cached_property
    def _neighbours(self) -> Neighbours:
        kernel = self._draws._kernel.terms[0]
        fit = self._posterior
        return Neighbours(kernel, np.asarray(fit.points), fit.num_neighbours, fit.nearest)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return np.shape(self._posterior.points)[1]

    @property
    def numbers_per_row(self) -> int:
        """Neighbours; what their blocks need does not grow with the rows."""
        return 2 * self._posterior.num_neighbours

    @property
    def draws_at_once(self) -> int:
        """Samples of one draw share their factors."""
        return 100

    def batches(self) -> Iterator[NeighbourDraws]:
        """The one."""
        yield self._draws

    def take(self, indices: np.ndarray) -> NeighbourDraws:
        """The one, as often as it is asked for."""
        return self._draws.take(indices)

    def at(self, X: np.ndarray) -> RowsWithPoints:
        """Rows with their points."""
        return RowsWithPoints(X, self._neighbours.of(X))

    def at_training_rows(self, *of_rows: Any) -> Any:
        """Of a variational posterior rows cannot be taken out."""
        raise ValueError("Rows cannot be left out of a variational posterior: hold some out, or cross-validate.")
