"""Gradients of f at new rows: a mixture of Gaussians over draws, as f is, since derivatives are linear in f.

The rows of the mixture are pairs of a new row and an input, in that order. Of weights they are seen through derivatives
of the features; of a GP of rows through those of its kernel (Rasmussen & Williams 2006, section 9.4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..bases.functionals import DerivativeBasis, directional
from ..bases.residual import Residual
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..kernels.derivative import DerivativeKernel, require_differentiable, with_codes
from ..statistics.kept_rows import Rows
from .exact import ExactDraws
from .functions import FactoredPosteriors
from .inducing import InducingPosteriors, NewRows
from .mixture import row_blocks
from .observed_data import new_inputs, recipe_of
from .posterior import Posterior
from .predict import prediction_inputs
from .prediction import Prediction
from .rows_dataset import rows_dataset
from .weight_prediction import WeightPrediction
from .weights import WeightPosteriors


class GradientPrediction(Prediction):
    """The posterior of the gradient of f at new rows; made by :func:`~ppl_sgp.predict_gradient`. It has no noise.

    Arrays have an axis of the c inputs after that of the rows: ``mean``, ``variance`` and ``std`` are (n_new, c), or
    of q outputs (n_new, c, q); quantiles and draws have it as well.

    :ivar columns: which inputs there are derivatives in, shape (c,).
    :ivar names: their names.
    """

    has_noise = False
    columns: np.ndarray
    names: list[str]

    @property
    def noise_variance(self) -> Any:
        """Refused: slopes of f have no noise."""
        self._with_noise(True)

    def observations(self, name: str, y_new: Any, owner: str) -> np.ndarray:
        """Refused: what is observed of slopes is a row of :class:`~ppl_sgp.DerivativeBasis`."""
        self._with_noise(True)
        return y_new

    def shaped(self, values: np.ndarray) -> np.ndarray:
        """From (…, q, n·c) to (…, n, c) for one output, else (…, n, c, q)."""
        found = super().shaped(values)
        axis = found.ndim - (1 if self._one_output else 2)
        return found.reshape(*found.shape[:axis], -1, len(self.columns), *found.shape[axis + 1 :])

    def facts(self) -> dict[str, Any]:
        """The sizes of the prediction, and the inputs."""
        return {**super().facts(), "num_rows": self.num_rows // len(self.columns), "inputs": self.names}

    def covariance(self, *, noise: bool = False) -> np.ndarray:
        """Covariance between all slopes at all new rows, of the mixture over draws: shape (n, c, n, c), or (…, q).

        :param noise: refused, as slopes have none.
        """
        found = super().covariance(noise=noise)
        sizes = (self.num_rows // len(self.columns), len(self.columns))
        return found.reshape(*sizes, *sizes, *found.shape[2:])

    def row_covariances(self) -> np.ndarray:
        """Covariance of the gradient at each new row, of the mixture over draws: shape (n, c, c), or (n, c, c, q)."""
        c, blocks = len(self.columns), []
        for rows in row_blocks(self.num_rows, c):
            blocks.append(self._between(rows))
        return np.stack(blocks)

    def _between(self, rows: slice) -> np.ndarray:
        """The covariance of the pairs of one row."""
        given = self._at(rows)
        draws = [moments for batch in self._functions.batches() for moments in batch.joint(given)]
        means = np.stack([each.mean for each in draws])
        deviations = means - means.mean(axis=0)
        found = np.einsum("sqi,sqj->qij", deviations, deviations)
        for each in draws:
            found += each.root @ each.root.swapaxes(1, 2)
            np.einsum("qii->qi", found)[...] += each.own
        found /= len(draws)
        return found[0] if self._one_output else np.moveaxis(found, 0, -1)

    def to_xarray(
        self, probabilities: Any = (), *, noise: bool | None = None, coords: dict[str, Any] | None = None
    ) -> xr.Dataset:
        """Moments and quantiles as a dataset, over ``new_obs``, ``input`` and, of several outputs, ``output``.

        :param probabilities: of the quantiles that are wanted, if any, shape (p,).
        :param noise: refused, as slopes have none.
        :param coords: labels by dimension; default numbers, and names of the inputs.
        """
        found = {"mean": self.mean, "variance": self.variance, "std": self.std}
        quantiles = self.quantiles(probabilities, noise=noise) if len(probabilities) else None
        labels = {"input": self.names, **(coords or {})}
        return rows_dataset(found, quantiles, probabilities, labels, ("new_obs", "input", "output"))

    def _with_noise(self, noise: bool | None) -> bool:
        if noise:
            raise ValueError("predict_gradient: slopes of f have no noise; densities and scores of y are of `predict`.")
        return False


class WeightGradient(GradientPrediction, WeightPrediction):
    """Of weights of a basis: inputs have the number of the column as their last one."""

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        basis, X, columns = self._functions.basis, X_new[:, :-1], X_new[:, -1]
        basis.check_domain(X)
        Phi = directional(basis, X, columns[:, None] == np.arange(X.shape[1]))
        basis.require_finite(Phi, X, owner="predict_gradient")
        return Phi

    def _residual_of(self, rows: slice) -> Residual:
        """Nothing: what a frozen kernel's basis lacks is known of values alone."""
        found = self._functions.basis.residual(self._X_new[rows, :-1])
        unseen = ((found.group >= 0) & (found.root != 0)).any(axis=0)
        if unseen.any():
            row = (rows.start or 0) + int(np.argmax(unseen))
            raise ValueError(
                f"predict_gradient: row {row // len(self.columns)} has a level that the basis has not seen, of which "
                "it knows the spread of values alone. Leave such rows out."
            )
        return found.times(0.0)


class DifferentiatedRows:
    """Posteriors of a GP of rows, asked for values and derivatives alike, by codes in the last column of inputs."""

    def __init__(self, functions: FactoredPosteriors) -> None:
        self._functions = functions
        self.num_draws, self.num_outputs = functions.num_draws, functions.num_outputs

    @property
    def numbers_per_row(self) -> int:
        """Four times those of values: covariances and their derivatives."""
        return 4 * self._functions.numbers_per_row

    @property
    def draws_at_once(self) -> int:
        """How many draws fit in memory together."""
        return self._functions.draws_at_once

    def at(self, X: np.ndarray) -> Any:
        """What draws need of inputs with codes. Of FITC, what the points lack is white, and has no derivative."""
        if isinstance(self._functions, InducingPosteriors):
            return NewRows(X, residual=self._functions.method != "fitc")
        return X

    def batches(self) -> Iterator[Any]:
        """All draws in order."""
        return map(_differentiated, self._functions.batches())

    def take(self, indices: np.ndarray) -> Any:
        """Chosen draws, all at once."""
        return _differentiated(self._functions.take(indices))


def _differentiated(draws: Any) -> Any:
    """Draws whose kernels and rows know of derivatives."""
    if isinstance(draws, ExactDraws):
        rows, factors = draws.shared, draws.factors
        require_differentiable(factors.kernel, "predict_gradient")
        shared = Rows(with_codes(rows.X, 0), rows.y, rows.row_weights)
        return ExactDraws(shared, factors._replace(kernel=DerivativeKernel(factors.kernel)))
    parameters = draws.factors.parameters
    require_differentiable(parameters.kernel, "predict_gradient")
    Z = np.asarray(parameters.Z)
    at_points = np.concatenate([Z, np.zeros((*Z.shape[:-1], 1))], axis=-1)
    changed = parameters._replace(kernel=DerivativeKernel(parameters.kernel), Z=at_points)
    return dataclasses.replace(draws, factors=draws.factors._replace(parameters=changed))


def predict_gradient(posterior: Posterior, X_new: Any, *, columns: Any = None) -> GradientPrediction:
    """The gradient of f at new inputs, averaging over all draws as :func:`~ppl_sgp.predict` does.

    Derivatives of a Gaussian process are one jointly with it, so slopes have means, variances, quantiles and joint
    draws in closed form at each draw of the hyperparameters. Of a basis ``∂f/∂x_j = ∂φ(x)/∂x_jᵀ w``, in O(m²) a slope
    and draw; of an exact GP, or of inducing points, by derivatives of the kernel (Rasmussen & Williams 2006, section
    9.4), at some four times the cost of ``predict``. All derivatives are automatic, and of f as the model has it: what
    a basis of one frozen kernel lacks of it is left out, and of FITC what the points lack, which is white.

    Of a compressed likelihood with one predictor it is the gradient of the predictor: of log rates, or log odds.

    :param posterior: from :func:`~ppl_sgp.posterior`.
    :param X_new: new inputs, shape (n_new, d); or a table of new rows, if the basis has a recipe for it. Slopes are per
        unit of the columns that it makes.
    :param columns: positions or names of the c inputs wanted; default all.
    :return: :class:`~ppl_sgp.GradientPrediction`, with arrays (n_new, c), or of q outputs (n_new, c, q).
    :raises ValueError: for inputs that are codes of levels, kernels whose functions have no derivatives, method
        ``"pic"``, and models of which f has no Gaussian posterior.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.01 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 40), X, y)
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.01)}
        >>> slopes = sgp.predict_gradient(sgp.posterior(sgp.models.fourier_gp(), draws, stats), [[0.5]])
        >>> slopes.mean.shape, bool(abs(slopes.mean[0, 0] - 6 * np.cos(3.0)) < 3 * slopes.std[0, 0])
        ((1, 1), True)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"predict_gradient needs what `sgp.posterior` makes; got {type(posterior).__name__}.")
    functions, data = _functions_of(posterior), posterior.data
    X_new, _ = prediction_inputs(new_inputs(data, X_new), None, functions.input_dim, "predict_gradient")
    recipe = recipe_of(data)
    names = [f"input {j}" for j in range(X_new.shape[1])] if recipe is None else list(recipe.columns)
    chosen = _columns(columns, names)
    kind: type[GradientPrediction] = WeightGradient
    numbers, used = chosen, functions
    if isinstance(functions, WeightPosteriors):
        for column in chosen:
            DerivativeBasis(functions.basis, int(column))  # refuses codes
    else:
        kind, numbers, used = GradientPrediction, chosen + 1, DifferentiatedRows(functions)
    pairs = with_codes(np.repeat(X_new, len(chosen), axis=0), np.tile(numbers, len(X_new)))
    prediction = kind(used, pairs, np.ones(len(pairs)), np.ndim(data.output_scales) == 0, posterior.max_memory)
    prediction.columns, prediction.names = chosen, [names[column] for column in chosen]
    return prediction


def _functions_of(posterior: Posterior) -> Any:
    """Posteriors of f, which must be Gaussian and differentiable."""
    data = posterior.data
    of_predictors = isinstance(data, CompressedLikelihood) and data.num_weights == data.basis.num_features
    if (posterior.outcomes is not None and not of_predictors) or posterior.is_weighted:
        raise ValueError(
            "predict_gradient is of models with Gaussian noise, and of compressed likelihoods with one predictor and "
            "equal weights of draws (`weights.resample(key)` has those). Of sampled weights w the slopes are "
            "`sgp.DerivativeBasis(basis, column)(X_new) @ w`."
        )
    functions = posterior.functions
    if isinstance(functions, InducingPosteriors) and functions.method == "pic":
        raise ValueError(
            'predict_gradient: functions of method "pic" jump where blocks meet, so they have no gradient there. '
            'Observe the rows by another method, such as "vfe".'
        )
    return functions


def _columns(columns: int | str | Sequence[int | str] | None, names: list[str]) -> np.ndarray:
    if columns is None:
        return np.arange(len(names))
    given = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)  # type: ignore[arg-type]
    found = [names.index(column) if column in names else column for column in given]
    whole = all(isinstance(column, (int, np.integer)) and not isinstance(column, bool) for column in found)
    if not found or not whole or not np.isin(found, range(len(names))).all():
        raise ValueError(
            f"predict_gradient: `columns` must be positions of inputs, from 0 to {len(names) - 1}, or names, of "
            f"{names}; got {columns!r}."
        )
    return np.array(found, dtype=int)
