"""Posteriors of the function, a Gaussian process a draw: what predictions and leave-one-out densities are made from.

Whatever a draw is made of (weights of a frozen basis, the rows of an exact GP, inducing points that move with the
hyperparameters), a :class:`FunctionPosteriors` answers the same questions, and needs no new predictions.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from ..evidence import exact
from .joint import JointMoments
from .site_draws import SiteDraws

#: Moments of f at some rows, (b, q, rows) each.
Moments = tuple[np.ndarray, np.ndarray]


class FunctionDraws(Protocol):
    """A batch of b draws, each with a Gaussian posterior of the function, for q outputs.

    ``rows`` is what :meth:`FunctionPosteriors.at` and :meth:`FunctionPosteriors.at_training_rows` return.

    :ivar noise_scale: (b, q).
    """

    @property
    def noise_scale(self) -> np.ndarray: ...

    def take(self, indices: Any) -> Any:
        """Chosen draws."""

    def moments(self, rows: Any) -> Moments:
        """Means and variances of f at rows."""

    def joint(self, rows: Any) -> Iterator[JointMoments]:
        """Means and covariances of f at rows, a draw after the other."""

    def left_out(self, rows: Any) -> Moments:
        """Residuals of training rows and their predictive variances, noise included, given all other rows."""


class JointDraws(FunctionDraws, Protocol):
    """Draws that joint samples at new rows can be had of directly; those of weights are drawn by their prediction."""

    def sample(self, rng: np.random.Generator, rows: Any, noise: np.ndarray) -> np.ndarray:
        """One joint draw of each at rows, (b, q, rows), with noise of so many times the noise variance, (rows,)."""


@dataclasses.dataclass(frozen=True)
class FactoredDraws:
    """A batch of draws of a GP of rows: what all share, and what each is solved with, stacked."""

    shared: Any
    factors: Any

    @property
    def noise_scale(self) -> np.ndarray:
        """Standard deviations of the noise, (b, q)."""
        return np.asarray(self.factors.noise_scale)

    def take(self, indices: Any) -> Any:
        """Chosen draws."""
        return dataclasses.replace(self, factors=jax.tree.map(lambda leaf: leaf[indices], self.factors))


class FunctionPosteriors(abc.ABC):
    """Gaussian posteriors of one function, a draw each, all of the same probability.

    :ivar num_draws: how many.
    :ivar num_outputs: the number of outputs q.
    """

    num_draws: int
    num_outputs: int

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """The number of inputs d."""

    @property
    @abc.abstractmethod
    def numbers_per_row(self) -> int:
        """Numbers that each row takes in memory while its moments are computed, whatever the number of draws."""

    @property
    @abc.abstractmethod
    def draws_at_once(self) -> int:
        """How many draws fit in memory together."""

    @abc.abstractmethod
    def batches(self) -> Iterator[Any]:
        """All draws in order, as :class:`FunctionDraws` of as many at a time as fit in memory."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray) -> Any:
        """Chosen draws, all at once."""

    @abc.abstractmethod
    def at(self, X: np.ndarray) -> Any:
        """What draws need of rows to predict there, computed once for all of them.

        :param X: inputs, shape (k, d), float64.
        """

    @abc.abstractmethod
    def at_training_rows(
        self, numbers: np.ndarray, X: np.ndarray, y: np.ndarray, omega: np.ndarray, residual_variance: bool
    ) -> Any:
        """What draws need of training rows to leave each of them out.

        :param numbers: their positions among all rows, (k,); inputs (k, d), outputs (q, k) and row weights (k,).
        :param residual_variance: whether to add what a basis lacks of its kernel.
        """

    @property
    def precision(self) -> np.finfo:
        """The precision that they were computed in."""
        return np.finfo(np.float64)


class ComputedPosteriors(FunctionPosteriors):
    """Posteriors that draws of hyperparameters imply.

    Computed once and kept if they fit in half of the memory allowed; otherwise computed anew when asked for again.

    :param draws: what the observed site is at each draw.
    :param size: bytes of one draw.
    :param max_memory: bytes that all may take.
    """

    def __init__(self, draws: SiteDraws, size: int, max_memory: float) -> None:
        self._draws = draws
        self._kept: list[Any] | None = None
        self.num_draws, self.num_outputs = draws.num_draws, draws.data.num_outputs
        self._keep = size * self.num_draws <= max_memory / 2
        # Computing a draw takes about as much again, thrice. Batches of nearly equal size compile once.
        count = -(-self.num_draws // max(1, int(max_memory // (4 * size))))
        self._batch_size = -(-self.num_draws // count)

    @property
    def draws_at_once(self) -> int:
        """How many draws fit in memory together."""
        return self._batch_size

    @abc.abstractmethod
    def _evaluate(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Chosen draws, and what is to be looked at once all draws were computed."""

    def _looked_at(self, found: Sequence[Any]) -> None:
        """What :meth:`_evaluate` found in all batches."""

    def batches(self) -> Iterator[Any]:
        """All draws in order."""
        if self._kept is not None:
            yield from self._kept
            return
        kept, found = [], []
        for start in range(0, self.num_draws, self._batch_size):
            draws, seen = self._evaluate(np.arange(start, min(start + self._batch_size, self.num_draws)))
            found.append(seen)
            if self._keep:
                kept.append(draws)
            yield draws
        self._looked_at(found)
        self._kept = kept if self._keep else None

    def take(self, indices: np.ndarray) -> Any:
        """Chosen draws."""
        if self._kept is None:
            return self._evaluate(indices)[0]
        batch, within = np.divmod(indices, self._batch_size)
        chosen = [self._kept[b].take(slice(i, i + 1)) for b, i in zip(batch, within, strict=True)]
        return self._joined(chosen)

    def _joined(self, parts: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _padded(self, indices: np.ndarray) -> np.ndarray:
        """The last draw repeated, so that all batches have one shape."""
        size = max(len(indices), min(self._batch_size, self.num_draws))
        return np.concatenate([indices, np.repeat(indices[-1:], size - len(indices))])

    def __getstate__(self) -> dict:
        """Without the factors, which are computed anew."""
        return {**self.__dict__, "_kept": None}


@functools.partial(jax.jit, static_argnums=0)
def mapped(function: Callable[..., Any], shared: Any, draws: Any, rows: Any) -> Any:
    """A function of each draw, with what all share."""
    # Mapped, not vmapped: on a CPU batched factorisations and solves are much slower than one at a time.
    with full_precision():
        return jax.lax.map(lambda each: function(shared, each, rows), draws)


def covariance_root(covariance: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A root of a covariance with noise on its diagonal; of one that is singular to rounding by its eigenvectors."""
    total = covariance + np.diag(noise)
    try:
        return np.linalg.cholesky(total)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(total)
        return vectors * np.sqrt(values.clip(min=0))


class FactoredPosteriors(ComputedPosteriors):
    """Posteriors of GPs of rows, each draw solved with factors of its own; their first field is the kernel.

    :param draws: what the observed site is at each draw.
    :param max_memory: bytes that they may take.
    """

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        exact.require_precision("posterior", jnp.result_type(float))
        self.rows: Any = draws.data
        shapes = jax.eval_shape(self._factors, self.rows, draws.structure())
        super().__init__(draws, 8 * sum(int(np.prod(each.shape)) for each in jax.tree.leaves(shapes)), max_memory)

    @staticmethod
    @abc.abstractmethod
    def _factors(rows: Any, parameters: Any) -> Any:
        """What draws are solved with, of parameters stacked over draws."""

    @abc.abstractmethod
    def _draws_of(self, factors: Any) -> FactoredDraws:
        """The draws that these solve."""

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self.rows.input_dim

    def _evaluate(self, indices: np.ndarray) -> tuple[FactoredDraws, None]:
        parameters = self._draws.parameters(self._padded(indices))
        factors = jax.tree.map(lambda leaf: leaf[: len(indices)], self._factors(self.rows, parameters))
        arrays = [np.asarray(part) for part in factors[1:]]
        require_finite(arrays, np.asarray(factors.noise_scale), indices, arrays[-1].dtype)
        return self._draws_of(factors), None

    def _joined(self, parts: list[FactoredDraws]) -> FactoredDraws:
        return self._draws_of(super()._joined([part.factors for part in parts]))


def require_finite(parts: Sequence[np.ndarray], noise_scale: np.ndarray, indices: np.ndarray, dtype: np.dtype) -> None:
    """Refuse draws whose posterior is not finite, or has no noise; arrays have the draws along their first axis."""
    finite = np.array([np.isfinite(part).reshape(len(indices), -1).all(axis=1) for part in parts]).all(axis=0)
    if not finite.all():
        remedy = "" if dtype == np.float64 else " (then call numpyro.enable_x64() first)"
        raise ValueError(
            f"The posterior is not finite for {np.sum(~finite)} draws, the first of them draw "
            f"{indices[np.argmin(finite)]}: look for hyperparameters that are not finite, or beyond "
            f"{dtype}{remedy}."
        )
    if not (noise_scale > 0).all():
        raise ValueError(f"The noise scale is not positive at some draws: down to {noise_scale.min()}.")


def require_resolved(kept: np.ndarray, precision: Any) -> None:
    """Refuse leverages 1 − ``kept`` that are one, or of which rounding leaves no more."""
    if kept.min() < 1e3 * precision.eps:
        remedy = "Call numpyro.enable_x64() first." if precision.bits < 64 else "Use a larger noise or fewer features."
        raise ValueError(
            f"leave_one_out: a row has leverage 1 − {max(kept.min(), 0):.1e}, too close to one for "
            f"{precision.dtype}: the fit interpolates it. {remedy}"
        )
