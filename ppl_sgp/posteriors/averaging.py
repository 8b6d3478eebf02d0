"""Predictions of several models, mixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from .._internal import checks
from .._internal.random import host_generator, random_key
from .prediction import Prediction, row_blocks


def average_predictions(predictions: Sequence[Prediction], weights: Any = None) -> AveragedPrediction:
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


class AveragedPrediction:
    """A mixture of predictions; made by :func:`average_predictions`. The variance of a new y adds the noise variance.

    :ivar weights: of each prediction, shape (k,).
    """

    def __init__(self, predictions: list[Prediction], weights: np.ndarray) -> None:
        self._predictions, self.weights = predictions, weights

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, and of y, shape (n_new,) or (n_new, q)."""
        return self._averaged([each.mean for each in self._predictions])

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f, within models and between them."""
        return self._averaged([each.variance + (each.mean - self.mean) ** 2 for each in self._predictions])

    @property
    def noise_variance(self) -> Any:
        """Mean of the noise variance (of a row of weight one)."""
        return self._averaged([each.noise_variance for each in self._predictions])

    @property
    def num_outputs(self) -> int:
        """The number of outputs q."""
        return self._predictions[0].num_outputs

    @property
    def component_weights(self) -> np.ndarray:
        """Weights of :meth:`components` in the mixture: of each model's draws its share, equally."""
        shares = zip(self.weights, self._predictions, strict=True)
        return np.concatenate([share * each.component_weights for share, each in shares])

    def components(self, noise: bool = True, arrays: int = 3) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """The Gaussians whose mixture the prediction is, those of one model after the other, in blocks of rows.

        :param noise: of a new y; if false, of f.
        :param arrays: how many arrays of a block's size its user holds, for the memory cap.
        :return: rows, and means and variances, shape (draws of all models, q, rows).
        """
        per_row = arrays * len(self.component_weights) * self.num_outputs
        size = min(each._block_size(per_row) for each in self._predictions)
        for rows in row_blocks(len(self.mean), size):
            parts = [each._components_of(rows, noise) for each in self._predictions]
            mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
            yield rows, mean, variance

    def observations(self, name: str, y_new: Any, owner: str) -> np.ndarray:
        """New observations in the shape of :attr:`mean` as (q, n_new), in float64; other shapes are refused."""
        return self._predictions[0].observations(name, y_new, owner)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return self._predictions[0]._shaped(values)

    def _averaged(self, values: list[Any]) -> Any:
        return np.tensordot(self.weights, np.stack(values), axes=1)

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density of each new observation, of the mixture, in nats.

        :param y_new: observations, shape of :attr:`mean`.
        """
        densities = np.stack([each.log_density(y_new) for each in self._predictions])
        return logsumexp(densities, axis=0, b=self.weights.reshape(-1, *[1] * (densities.ndim - 1)))

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool = True) -> np.ndarray:
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
