"""Predictions of several models, mixed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator, random_key
from .mixture import MixturePrediction


def average_predictions(predictions: Sequence[MixturePrediction], weights: Any = None) -> AveragedPrediction:
    """The mixture of the predictions of several models at the same inputs.

    Stacking weights come from ``az.compare`` of the containers of :func:`~ppl_sgp.to_arviz` (Yao et al. 2018, Using
    stacking to average Bayesian predictive distributions), those of model averaging from
    :func:`~ppl_sgp.log_marginal_likelihood`.

    :param predictions: from :func:`~ppl_sgp.predict`, at the same inputs.
    :param weights: of each, shape (k,), not negative, with sum one. Default: equal.
    :return: mean, variance, ``log_density`` and ``sample`` as of a single prediction; scored and plotted as one, too.
    :raises ValueError: for no predictions, predictions of different shapes, or weights that are not probabilities.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = X[:, 0] + 0.1 * np.cos(77 * X[:, 0])
        >>> def of(basis):
        ...     stats = sgp.sufficient_statistics(basis, X, y)
        ...     model = sgp.models.reweighted_basis(scale=np.ones(basis.num_features))
        ...     return sgp.predict(model, {"noise_scale": np.array([0.1])}, stats, X[:4])
        >>> line, parabola = of(sgp.LinearBasis(1)), of(sgp.PolynomialBasis(1, 2))
        >>> mixed = sgp.average_predictions([line, parabola], [0.7, 0.3])
        >>> bool(np.allclose(mixed.mean, 0.7 * line.mean + 0.3 * parabola.mean))
        True
    """
    predictions = list(predictions)
    if not predictions:
        raise ValueError("average_predictions: `predictions` is empty; pass those of one model or more.")
    count = len(predictions)
    shares = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.shape != (count,) or not np.all(shares >= 0) or not np.isclose(shares.sum(), 1.0, atol=1e-6):
        raise ValueError(
            f"average_predictions: `weights` must be {count} probabilities with sum one; got {np.asarray(weights)}."
        )
    shapes = [each.mean.shape for each in predictions]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"average_predictions: predictions must be at the same inputs; their means have shapes {shapes}."
        )
    return AveragedPrediction(predictions, shares / shares.sum())


class AveragedPrediction(MixturePrediction):
    """A mixture of predictions; made by :func:`average_predictions`. The variance of a new y adds the noise variance.

    :ivar weights: of each prediction, shape (k,).
    """

    def __init__(self, predictions: list[MixturePrediction], weights: np.ndarray) -> None:
        self._predictions, self.weights = predictions, weights
        self.num_outputs = predictions[0].num_outputs
        shares = zip(weights, predictions, strict=True)
        self.component_weights = np.concatenate([share * each.component_weights for share, each in shares])

    @property
    def has_noise(self) -> bool:  # type: ignore[override]
        """Whether y is f and noise."""
        return all(each.has_noise for each in self._predictions)

    @property
    def noise_variance(self) -> Any:
        """Mean of the noise variance (of a row of weight one)."""
        return np.tensordot(self.weights, np.stack([each.noise_variance for each in self._predictions]), axes=1)

    @property
    def num_rows(self) -> int:
        """The number of new rows."""
        return self._predictions[0].num_rows

    @property
    def one_output(self) -> bool:
        """Whether y has one column."""
        return self._predictions[0].one_output

    def rows_at_once(self, arrays: int) -> int:
        """How many rows keep within the smallest memory cap, with the components of all models."""
        # Each leaves room for its own components: a share of those of all.
        more = [len(self.component_weights) / len(each.component_weights) for each in self._predictions]
        sizes = zip(self._predictions, more, strict=True)
        return min(each.rows_at_once(int(np.ceil(arrays * factor))) for each, factor in sizes)

    def gaussians(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the components at some rows, those of one model after the other."""
        parts = [each.gaussians(rows, noise) for each in self._predictions]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = [each.row_moments for each in self._predictions]
        means, variances = (np.stack(part) for part in zip(*pairs, strict=True))
        mean = np.tensordot(self.weights, means, axes=1)
        return mean, np.tensordot(self.weights, variances + (means - mean) ** 2, axes=1)

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool | None = None) -> np.ndarray:
        """Joint draws at all new inputs, each of one model, drawn with its weight.

        :param key: a JAX random key.
        :param num_samples: how many.
        :param noise: add observation noise, for draws of y; without it, draws of f.
        :return: shape (num_samples, n_new), or (num_samples, n_new, q).
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_choice, *keys = jax.random.split(random_key(key, "sample"), len(self._predictions) + 1)
        rng = host_generator(key_choice, "sample")
        chosen = rng.choice(len(self._predictions), num_samples, p=self.weights)
        result = np.empty((num_samples, *self.mean.shape))
        for index, (each, key_model) in enumerate(zip(self._predictions, keys, strict=True)):
            if count := int(np.sum(chosen == index)):
                result[chosen == index] = each.sample(key_model, count, noise)
        return result
