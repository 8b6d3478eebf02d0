"""The posterior of a model: its draws with all that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import jax
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.compiled import Compiled
from ..kernels import Kernel
from ..sites.row_models import of_rows
from ..sites.tracing import observed_site
from ..statistics.statistics import SufficientStatistics
from ..tables.recipe import rows_of_table
from .augmentation import Augmentation
from .functions import ComputedPosteriors
from .functions_of import functions_of
from .importance import ImportanceWeights, weighted_against
from .kernel_draws import kernel_draws_of
from .kernel_error import kernel_error_of
from .leave_one_out import left_out, loo_pit
from .log_prior import log_densities_at, log_evidence_at
from .lost_variance import warn_of_lost_variance
from .mixture import gaussian_log_density
from .observed_data import Data, new_inputs, recipe_of, training_rows
from .outcomes import Outcomes
from .outcomes_of import left_out_outcomes, outcome_pit, outcomes_of, predicted_outcomes
from .predict import predict_with
from .runs import Run, run_of
from .site_draws import MarginalParameters, ModelDraws, RowDraws, SiteDraws, SiteParameters, latent_draws
from .stored import write_posterior
from .to_arviz import container


class Posterior:
    """Draws of a model's hyperparameters, and the posteriors of f that they imply; made by :func:`posterior`.

    Programs are compiled, and posteriors are factorised, once, however much is asked of it. It pickles (if the model
    does, as all ready ones), and :meth:`save` writes it without pickle.

    :ivar data: the statistics or rows that the model observes.
    :ivar samples: draws by site name, the draws along the first axis.
    :ivar num_draws: how many draws there are, over all chains.
    :ivar importance: the importance weights that the draws were corrected by, if they were.
    """

    def __init__(
        self,
        run: Run,
        draws: SiteDraws,
        site: str,
        latent: tuple[str, ...],
        max_memory: float,
        weights: np.ndarray | None = None,
        importance: ImportanceWeights | None = None,
    ) -> None:
        self.run, self.draws, self.site, self.latent_names, self.max_memory = run, draws, site, latent, max_memory
        self._weights, self.importance = weights, importance

    @property
    def data(self) -> Data:
        """The statistics or rows that the model observes."""
        return self.draws.data

    @property
    def statistics(self) -> SufficientStatistics:
        """The statistics that the model observes; refused where it observes rows."""
        if not isinstance(self.data, SufficientStatistics):
            raise ValueError(
                "This asks the basis and the statistics of all rows together, and the model observes rows, whose GP "
                "has its kernel itself, or groups of rows. What it observes is the posterior's `data`."
            )
        return self.data

    @property
    def model(self) -> Any:
        """The model; refused where a posterior was loaded without it."""
        if self.run.model is None:
            raise ValueError("This asks the model, which files do not keep: `load_posterior(path, model)`.")
        return self.run.model

    @property
    def samples(self) -> dict[str, np.ndarray]:
        """Draws by site name, the draws along the first axis, those of one chain after the other."""
        return self.run.samples

    @property
    def num_draws(self) -> int:
        """How many draws there are, over all chains."""
        return self.draws.num_draws

    @property
    def weights(self) -> np.ndarray:
        """Probabilities of the draws, shape (draws,): equal, unless importance weights were given."""
        return np.full(self.num_draws, 1 / self.num_draws) if self._weights is None else self._weights

    @property
    def is_weighted(self) -> bool:
        """Whether draws have importance weights."""
        return self._weights is not None

    @property
    def latent(self) -> dict[str, np.ndarray]:
        """Draws of the latent sites alone, by name."""
        return {name: self.samples[name] for name in self.latent_names}

    def parameters(self) -> SiteParameters:
        """The parameters of the observed site at all draws, stacked along a first axis."""
        return self.draws.parameters(np.arange(self.num_draws))

    def marginal_parameters(self, owner: str) -> MarginalParameters:
        """The same of a site whose weights are marginalised, priors and noise scales; others are refused."""
        self.statistics  # noqa: B018 - refused for rows
        parameters = self.parameters()
        if not isinstance(parameters, MarginalParameters):
            raise ValueError(f"{owner}: the model keeps its weights, so it has draws of functions, not of kernels.")
        return parameters

    @cached_property
    def log_prior(self) -> dict[str, np.ndarray]:
        """Log density of each latent site under its prior, by name, shape (draws,), in nats.

        In the site's own units, given the sites that its prior depends on. Improper priors have none.
        """
        densities = Compiled(log_densities_at, self.model, self.latent_names)(self.run.data, self.latent)
        return {name: np.asarray(values, dtype=np.float64) for name, values in densities.items()}

    @cached_property
    def log_evidence(self) -> np.ndarray:
        """``log p(y | θ_s)`` at each draw, shape (draws,), in nats; given the weights, if the model keeps them.

        Of ``sgp.observe_inducing(method="vfe")`` the bound of Titsias.
        """
        positions = np.arange(self.num_draws)
        evidences = Compiled(log_evidence_at, self.model, self.site)(self.run.data, self.latent, positions)
        return np.asarray(evidences, dtype=np.float64)

    def take(self, indices: Any) -> Posterior:
        """The posterior of chosen draws, as if of one chain.

        :param indices: positions of draws, or a slice.
        """
        chosen = np.arange(self.num_draws)[indices]
        weights = None if self._weights is None else self._weights[chosen] / self._weights[chosen].sum()
        draws = self.draws.take(chosen)
        return Posterior(
            self.run.take(chosen), draws, self.site, self.latent_names, self.max_memory, weights, self.importance
        )

    def spaced(self, count: int) -> Posterior:
        """The posterior of about ``count`` draws, evenly spaced, where there are more."""
        return self.take(slice(None, None, max(1, self.num_draws // count)))

    @cached_property
    def functions(self) -> ComputedPosteriors:
        """The posteriors of f, one a draw."""
        return functions_of(self.draws.structure(), self.draws, self.max_memory)

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """The distributions that draws give y, where y is not f with Gaussian noise."""
        return outcomes_of(self.data, self)

    def __repr__(self) -> str:
        return f"Posterior(site={self.site!r}, num_draws={self.num_draws}, data={self.data!r})"

    def predict(
        self,
        X_new: Any,
        *,
        row_weights: Any = None,
        augment: Augmentation | None = None,
        parts: int | str | Sequence[int | str] | None = None,
        residual_variance: bool = True,
        offset: Any = None,
        given: Any = None,
    ) -> Any:
        """Predict at new inputs, averaging over all draws: see :func:`~ppl_sgp.predict`.

        Warns where the basis has less than half of the prior variance of the model's kernel, as near the walls of a box
        that is too narrow.

        :param X_new: new inputs, shape (n_new, d); or a table of new rows, if the basis has a recipe for it.
        :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
        :param augment: a feature more at each new row.
        :param parts: names or positions of bases in a stack whose functions are wanted.
        :param residual_variance: add the variance that a basis of a frozen kernel, or inducing points, lack of their
            kernel at new rows.
        :param offset: of a likelihood, what the predictor of each new row has beside f, shape (n_new,).
        :param given: of a likelihood whose rows are more than an outcome, what is known of the new ones in the columns
            that y has, such as trials, shape (n_new, columns); the column of the outcome is not read.
        :return: :class:`~ppl_sgp.Prediction`; of any likelihood but Gaussian noise
            :class:`~ppl_sgp.OutcomePrediction`.
        """
        X_new = new_inputs(self.data, X_new)
        if self.outcomes is not None:
            others = {"row_weights": row_weights, "augment": augment, "parts": parts}
            return predicted_outcomes(self, X_new, offset, given, others)
        if offset is not None or given is not None:
            raise ValueError("predict: `offset` and `given` are of likelihoods; a GP with Gaussian noise has neither.")
        prediction = predict_with(
            self.functions,
            self.data,
            X_new,
            row_weights,
            self.max_memory,
            augment=augment,
            parts=parts,
            residual_variance=residual_variance,
        )
        if augment is None and parts is None:
            warn_of_lost_variance(self, np.asarray(X_new, dtype=np.float64))
        return prediction

    def leave_one_out(
        self,
        X: Any = None,
        y: Any = None,
        *,
        row_weights: Any = None,
        rows: slice | Any = None,
        residual_variance: bool = True,
        offset: Any = None,
    ) -> np.ndarray:
        """``log p(y_i | y_-i, θ_s)`` for every training row and draw: see :func:`~ppl_sgp.leave_one_out`.

        :param X: the training inputs, all of them, shape (n, d). Statistics need them, and a posterior of rows has
            them; likewise ``y``, shape (n,) or (n, q), and ``row_weights``.
        :param rows: those wanted, a slice or indices; default all. Of many rows and draws, some at a time.
        :param residual_variance: as in :meth:`predict`, at the row that is left out.
        :param offset: of a likelihood, that of the training rows, shape (n,).
        :return: log densities in nats, shape (draws, rows) or (draws, rows, q).
        """
        X, y, row_weights = rows_of_table(recipe_of(self.data), X, y, row_weights)
        if self.outcomes is not None:
            prediction, y_rows = left_out_outcomes(self, X, y, row_weights, offset, rows, "leave_one_out")
            return prediction.by_draw(y_rows)
        training = training_rows(self.data, X, y, row_weights, "leave_one_out")
        functions = (gaussian_log_density,)
        (result,) = left_out(functions, self.functions, training, rows, residual_variance, self.max_memory)
        return result[:, 0] if np.ndim(training[1]) == 1 else np.moveaxis(result, 1, 2)

    def importance_weights(
        self,
        X: Any,
        y: Any = None,
        *,
        row_weights: Any = None,
        offset: Any = None,
        key: jax.Array | None = None,
        draws_each: int = 1,
        progress: bool | None = None,
    ) -> ImportanceWeights:
        """Importance weights of the draws against the exact likelihood: see :func:`~ppl_sgp.importance_weights`.

        :param X: the rows, as they were given to ``compress_likelihood``; likewise ``y``, ``row_weights``, ``offset``.
        :param key: a JAX random key, for the weights of the basis that each draw gets.
        :param draws_each: how many weights of the basis each draw of hyperparameters gets.
        :param progress: show a progress bar.
        """
        return weighted_against(self, X, y, row_weights, offset, key, draws_each, progress)

    def kernel_draws(self, lags: Any, *, origin: Any = None) -> xr.Dataset:
        """Draws of ``k(x₀, x₀ + τ)``: see :func:`~ppl_sgp.kernel_draws`.

        :param lags: τ, shape (t,) for one input, else (t, d).
        :param origin: x₀, shape (d,); default the middle of the training inputs.
        """
        return kernel_draws_of(self, lags, origin)

    def kernel_error(self, X: Any, *, kernel: Callable[..., Kernel] | None = None) -> xr.Dataset:
        """How far the covariance of the finite basis is from the exact one: see :func:`~ppl_sgp.kernel_error`.

        :param X: points to compare at, shape (k, d).
        :param kernel: the exact kernel of one draw; default that of the model.
        """
        return kernel_error_of(self, X, kernel)

    def loo_pit(
        self, X: Any = None, y: Any = None, *, row_weights: Any = None, offset: Any = None, key: Any = None
    ) -> np.ndarray:
        """Leave-one-out PIT values of each output, shape (q, n); see :func:`~ppl_sgp.plots.plot_loo_pit`."""
        X, y, row_weights = rows_of_table(recipe_of(self.data), X, y, row_weights)
        if self.outcomes is not None:
            return outcome_pit(self, X, y, row_weights, offset, jax.random.key(0) if key is None else key)
        return loo_pit(self.functions, training_rows(self.data, X, y, row_weights, "loo_pit"), self.max_memory)

    def to_arviz(
        self,
        X: Any = None,
        y: Any = None,
        X_new: Any = None,
        *,
        row_weights: Any = None,
        row_weights_new: Any = None,
        offset: Any = None,
        offset_new: Any = None,
        given_new: Any = None,
        predictive: bool = True,
        log_likelihood: Literal["leave_one_out", "evidence"] = "leave_one_out",
        key: jax.Array | None = None,
        coords: dict[str, Any] | None = None,
        dims: dict[str, list[str]] | None = None,
    ) -> Any:
        """ArviZ's container, ``InferenceData`` (0.23) or ``DataTree`` (1.x): see :func:`~ppl_sgp.to_arviz`.

        :param X: the training inputs, shape (n, d). Of a posterior of rows they are known.
        :param y: the training outputs, shape (n,) or (n, q).
        :param X_new: inputs to predict at, shape (n_new, d).
        :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
        :param row_weights_new: those of the new rows.
        :param offset: of a likelihood, the offsets of the training rows; ``offset_new`` and ``given_new`` are those of
            the new rows, as :meth:`predict` takes them.
        :param predictive: whether to draw from the posterior predictive at the training rows.
        :param log_likelihood: what the group of that name holds: ``"leave_one_out"`` densities of the rows, for
            ``az.loo`` and ``az.compare``; or the log ``"evidence"`` at each draw, which is the likelihood of the
            hyperparameters, for power scaling (``az.psens``).
        :param key: a JAX random key for predictive draws; default one that follows from the run's last state.
        :param coords: labels by dimension.
        :param dims: dimensions by variable, for the model's own sites; default what the model names itself, by plates
            and ``infer={"event_dims": [...]}``.
        """
        X, y, row_weights = rows_of_table(recipe_of(self.data), X, y, row_weights)
        X_new = new_inputs(self.data, X_new)
        return container(
            self,
            X,
            y,
            X_new,
            row_weights=row_weights,
            row_weights_new=row_weights_new,
            offset=offset,
            of_new={"offset": offset_new, "given": given_new},
            predictive=predictive,
            log_likelihood=log_likelihood,
            key=key,
            coords=coords,
            dims=dims,
        )

    def save(self, path: Any) -> None:
        """Write draws, statistics or rows and what the model made of them to one file, atomically, without pickle.

        The model itself is not written: whatever asks it anew (``log_prior``, ``kernel_error``) needs it again, by
        ``load_posterior(path, model)``.

        :param path: the file; an existing one is replaced only once the new one is complete.
        """
        write_posterior(self, path)


def posterior(
    model: Callable[..., Any],
    draws: Any,
    statistics: Any,
    *,
    site: str | None = None,
    max_memory: float = 2e9,
) -> Posterior:
    """The posterior of a model, from which predictions, leave-one-out densities and ArviZ's containers come.

    Of a model of :func:`~ppl_sgp.latent` the data are the rows: the model takes them as ``model(rows)``, or ``model(X,
    y)``, and observes ``rows.y`` by any distribution, of one value a row. At new rows it is run with y as ``None``, so
    all that a row has, exposures or indices of groups, comes in columns of X.

    :param model: the NumPyro model, of one argument.
    :param draws: a NumPyro ``MCMC`` after its run; or draws by site name with the draws along the first axis, as
        ``mcmc.get_samples()``; or what :func:`~ppl_sgp.fit_evidence` found, a single draw; ``{}`` of a model without
        latent sites, which has fixed hyperparameters.
    :param statistics: the argument of the model, usually the statistics, or of an exact GP or inducing points the
        rows; or several, in a tuple or a dictionary.
    :param site: name of the observed site; needed only if the model has several.
    :param max_memory: bytes that intermediate results may take.
    :raises ValueError: if the model has no such site, or draws of one of its latent sites are missing or misshaped.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.01 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 40), X, y)
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.01)}
        >>> posterior = sgp.posterior(sgp.models.fourier_gp(), draws, stats)
        >>> posterior.predict([[0.5]]).mean.shape, posterior.leave_one_out(X, y).shape
        ((1,), (2, 40))
    """
    max_memory = checks.memory_cap(max_memory, "posterior")
    model = of_rows(model, statistics)
    run = run_of(draws, model, statistics)
    observed = observed_site(model, statistics, site)
    latent = latent_draws(observed, run.samples)
    num_draws = run.num_chains * run.num_draws
    draws_of_site = (RowDraws if observed.by_row else ModelDraws)(model, statistics, observed, latent, num_draws)
    return Posterior(run, draws_of_site, observed.name, tuple(latent), max_memory)
