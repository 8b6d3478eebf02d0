"""Mixtures of Gaussians over new rows: what every prediction is, whatever its components come from."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.special import logsumexp

from .._internal import checks
from .._internal.shown import Shown
from .mixture_quantiles import gaussian_quantiles, tails
from .rows_dataset import rows_dataset

#: Arrays of the size of a block's moments (draws, rows) that quantiles need at once.
QUANTILE_ARRAYS = 8


class MixturePrediction(Shown, abc.ABC):
    """A posterior predictive whose rows are mixtures of Gaussians. With q outputs, arrays end in an axis q.

    Moments are computed when first asked for. The variance of a new y is ``variance + noise_variance``.

    :ivar num_outputs: the number of outputs q.
    :ivar component_weights: weights of the components of the mixture, shape (S,).
    """

    num_outputs: int
    component_weights: np.ndarray

    #: Whether y is f and noise; otherwise f alone is predicted.
    has_noise = True

    @property
    @abc.abstractmethod
    def noise_variance(self) -> Any:
        """Posterior mean of the noise variance (of a row of weight one)."""

    @property
    @abc.abstractmethod
    def num_rows(self) -> int:
        """The number of new rows."""

    @property
    @abc.abstractmethod
    def one_output(self) -> bool:
        """Whether y has one column, of which arrays have no axis."""

    @abc.abstractmethod
    def rows_at_once(self, arrays: int) -> int:
        """How many rows, with ``arrays`` arrays of a number for each component, keep within the memory cap."""

    @abc.abstractmethod
    def gaussians(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the components at some rows, (S, q, rows): of y, or of f without ``noise``."""

    @abc.abstractmethod
    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool | None = None) -> np.ndarray:
        """Draws at all new rows, shape (num_samples, n_new), or (num_samples, n_new, q)."""

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, and of y, shape (n_new,)."""
        return self.shaped(self.row_moments[0])

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f, shape (n_new,)."""
        return self.shaped(self.row_moments[1])

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of f, shape (n_new,). That of a new y is larger: see :meth:`interval`."""
        return np.sqrt(self.variance)

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at each new row, shape (q, n_new) each."""
        return self._row_moments_by_components()

    def _row_moments_by_components(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = np.empty((2, self.num_outputs, self.num_rows))
        for rows, means, variances in self.components(noise=False, arrays=4):
            mean[:, rows] = np.tensordot(self.component_weights, means, axes=1)
            means -= mean[:, rows]
            variances += means**2
            variance[:, rows] = np.tensordot(self.component_weights, variances, axes=1)
        return mean, variance

    def components(self, noise: bool | None = None, arrays: int = 3) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """The Gaussians of the mixture, in blocks of rows.

        :param noise: of a new y; if false, of f. Default: of y where there is noise.
        :param arrays: how many arrays of a block's size its user holds, for the memory cap.
        :return: rows, and means and variances, shape (S, q, rows), for the user to keep.
        """
        noise = self._with_noise(noise)
        for rows in row_blocks(self.num_rows, self.rows_at_once(arrays)):
            yield rows, *self.gaussians(rows, noise)

    def quantiles(self, probabilities: Any, *, noise: bool | None = None) -> np.ndarray:
        """Quantiles of the mixture over draws, at each new row.

        By bracketing of its distribution function, some ten evaluations of O(S) for each, to 1e-8 of the smallest
        standard deviation among the S components.

        :param probabilities: between 0 and 1, shape (p,).
        :param noise: of a new y; if false, of f. Default: of y where there is noise.
        :return: shape (p,) + that of :attr:`mean`.
        :raises ValueError: for other probabilities.
        """
        wanted = checks.probabilities("probabilities", np.atleast_1d(probabilities), "quantiles")
        found = np.empty((len(wanted), self.num_outputs, self.num_rows))
        for rows, mean, variance in self.components(noise, QUANTILE_ARRAYS):
            found[..., rows] = gaussian_quantiles(wanted, mean, np.sqrt(variance), self.component_weights)
        return self.shaped(found)

    def interval(self, probability: float = 0.9, *, noise: bool | None = None) -> np.ndarray:
        """Ends of the equal-tailed interval of the mixture over draws, at each new row: two :meth:`quantiles`.

        :param probability: of the interval.
        :param noise: of a new y; if false, of f. Default: of y where there is noise.
        :return: lower and upper ends, shape (2,) + that of :attr:`mean`.
        :raises ValueError: if ``probability`` is not between 0 and 1.
        """
        return self.quantiles(tails(probability, "interval"), noise=noise)

    def to_xarray(
        self, probabilities: Any = (), *, noise: bool | None = None, coords: dict[str, Any] | None = None
    ) -> xr.Dataset:
        """Moments and quantiles as a dataset, over ``new_obs`` and, of several outputs, ``output``.

        :param probabilities: of the quantiles that are wanted, if any, shape (p,).
        :param noise: whether quantiles are of a new y, as :meth:`quantiles` takes it.
        :param coords: labels by dimension, such as ``{"new_obs": dates}``; default numbers.
        :return: ``mean``, ``variance`` and ``std`` of f, ``noise_variance`` and, if wanted, ``quantiles``
            (probability, new_obs, …).
        """
        found = {"mean": self.mean, "variance": self.variance, "std": self.std}
        quantiles = self.quantiles(probabilities, noise=noise) if len(probabilities) else None
        result = rows_dataset(found, quantiles, probabilities, coords)
        if self.has_noise:
            result["noise_variance"] = (() if self.one_output else ("output",), self.noise_variance)
        return result

    def facts(self) -> dict[str, Any]:
        """The sizes of the prediction."""
        return {
            "num_rows": self.num_rows,
            "num_outputs": self.num_outputs,
            "num_components": len(self.component_weights),
        }

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density of each new observation, of the mixture.

        :param y_new: observations, shape of :attr:`mean`.
        :return: log densities in nats, shape of :attr:`mean`.
        :raises ValueError: if the shape differs, or values are not finite.
        """
        y_rows = self.observations("y_new", y_new, "log_density")
        result = np.empty((self.num_outputs, self.num_rows))
        for rows, mean, variance in self.components(noise=True, arrays=7):
            result[:, rows] = mixture_log_density(y_rows[:, rows], mean, variance, self.component_weights)
        return self.shaped(result)

    def observations(self, name: str, y_new: Any, owner: str) -> np.ndarray:
        """New observations in the shape of :attr:`mean` as (q, n_new), in float64; other values are refused."""
        shape = (self.num_rows,) if self.one_output else (self.num_rows, self.num_outputs)
        y_new = checks.observations(name, y_new, shape, owner)
        return y_new[None, :] if self.one_output else y_new.T

    def shaped(self, values: np.ndarray) -> np.ndarray:
        """From (…, q, n) to (…, n) for one output, else (…, n, q)."""
        return values[..., 0, :] if self.one_output else np.moveaxis(values, -2, -1)

    def _with_noise(self, noise: bool | None) -> bool:
        if noise and not self.has_noise:
            raise ValueError(
                "A prediction of `parts` has no noise: y is the sum of all parts and noise. Pass `noise=False`, or "
                "predict without `parts` for densities and scores of y."
            )
        return self.has_noise if noise is None else bool(noise)


def gaussian_log_density(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """``log N(residual; 0, variance)``, elementwise."""
    return -0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)


def mixture_log_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Log density of y, any shape, under a mixture of S Gaussians, with weights (S,): moments have an axis S first."""
    return logsumexp(gaussian_log_density(y - mean, variance), axis=0, b=weights.reshape(-1, *[1] * y.ndim))


def row_blocks(num_rows: int, size: int) -> Iterator[slice]:
    """Slices of rows, one after the other."""
    return (slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size))
