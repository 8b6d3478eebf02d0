"""Questions to the posterior of a model, without an object for it: each makes one and asks it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

from ..expansion.compressed_likelihood import CompressedLikelihood
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics
from .augmentation import Augmentation
from .importance import ImportanceWeights
from .posterior import posterior


def predict(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics | Rows | ChunkedRows,
    X_new: Any,
    *,
    row_weights: Any = None,
    site: str | None = None,
    augment: Augmentation | None = None,
    parts: int | str | Sequence[int | str] | None = None,
    residual_variance: bool = True,
    offset: Any = None,
    given: Any = None,
    max_memory: float = 2e9,
) -> Any:
    """Predict at new inputs, averaging over all draws (Evans 2022, eq 2.33).

    Each draw of the hyperparameters gives a Gaussian posterior of the weights; the predictive is
    their equal mixture, with ``mean = E[m_θ]`` and ``variance = E[v_θ] + Var[m_θ]``. Both moments
    cost O(m³) a draw (O(m) on rotated statistics) plus O(m²) a row, not their product, for more than m rows.
    Everything runs in float64 on the host once the draws are factorised. For several questions to the same draws
    make a :func:`~ppl_sgp.posterior` once.

    An exact GP takes O(n³) a draw and O(n²) a row and draw, with ``m_θ = k*ᵀ(K + σ²Ω⁻¹)⁻¹y`` (Rasmussen & Williams
    2006, eqs 2.25 and 2.26); its joint draws take O(n_new³) each.

    Inducing points (:func:`~ppl_sgp.observe_inducing`) take O(n m²) a draw, in memory that does not grow with n, and
    O(m²) a row and draw: by all methods ``f = vᵀw + e`` with whitened features ``v = L⁻¹k(Z, x)``, the Gaussian
    posterior of their weights, and ``Var e = k(x, x) − vᵀv`` (Titsias 2009; Snelson & Ghahramani 2006), which
    ``residual_variance=False`` leaves out. In joint draws e is independent between rows for FITC, and for the others
    where its covariance would exceed ``max_memory``. New rows of PITC are in none of its blocks, those
    of PIC in that of the nearest centroid, whose training rows they see as they are.

    A basis made of one kernel (:class:`~ppl_sgp.NystromBasis`, :class:`~ppl_sgp.GridEigenBasis`) lacks some of its
    variance away from its points; with the amplitude a, ``a²(k(x, x) − φ(x)ᵀφ(x))`` is added at new rows (Evans 2022,
    eq 2.36; the correction of FITC).

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics, or of an exact GP or inducing points the rows, that the model was
        fitted to.
    :param X_new: new inputs, shape (n_new, d).
    :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
    :param site: name of the observed site, if the model has several.
    :param augment: a feature more at each new row, for bases whose variance vanishes away from the data.
    :param parts: names or positions of some bases of a :func:`~ppl_sgp.stack`: the sum of their functions is predicted
        alone, without noise, given all of y. Draws of several predictions with the same key go together.
    :param residual_variance: add the variance that a basis of one kernel, or inducing points, lack of it; none of the
        other bases does.
    :param offset: of a likelihood, what the predictor of each new row has beside f, such as the log of an exposure,
        shape (n_new,).
    :param given: of a likelihood whose rows are more than an outcome, such as successes of known trials, what is known
        of the new ones, in the columns that y has.
    :param max_memory: bytes that intermediate results may take; draws are batched to fit.
    :return: :class:`~ppl_sgp.Prediction`; of a compressed likelihood, and of a model that observes rows by a
        distribution of its own (:func:`~ppl_sgp.posterior`), :class:`~ppl_sgp.OutcomePrediction`, of y.
    :raises ValueError: if the model, the draws and the inputs do not fit together.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 40)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]) + 0.01 * np.cos(77 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.01)}
        >>> prediction = sgp.predict(sgp.models.fourier_gp(), draws, stats, [[0.5]])
        >>> bool(abs(prediction.mean[0] - np.sin(3.0)) < 0.02), bool(prediction.variance[0] < 1e-3)
        (True, True)
    """
    of_model = posterior(model, samples, statistics, site=site, max_memory=max_memory)
    return of_model.predict(
        X_new,
        row_weights=row_weights,
        augment=augment,
        parts=parts,
        residual_variance=residual_variance,
        offset=offset,
        given=given,
    )


def leave_one_out(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics | Rows | ChunkedRows,
    X: Any = None,
    y: Any = None,
    *,
    row_weights: Any = None,
    rows: Any = None,
    site: str | None = None,
    residual_variance: bool = True,
    offset: Any = None,
    max_memory: float = 2e9,
) -> np.ndarray:
    """``log p(y_i | y_-i, θ_s)`` for every training row and draw: what importance-sampled LOO needs.

    With posterior mean ``f̂ᵢ`` and variance ``vᵢ`` of f at row i and leverage ``hᵢ = vᵢ/σᵢ²``, leaving
    the row out gives mean ``yᵢ − (yᵢ − f̂ᵢ)/(1 − hᵢ)`` and variance ``σᵢ²/(1 − hᵢ)`` (Rasmussen &
    Williams 2006, eqs 5.10-5.12, in weight space). O(m²) a row and draw. For a model with explicit
    weights the same call gives ``log p(y_i | w_s, θ_s)``.

    Of a compressed likelihood the row's quadratic term is taken out of the Gaussian posterior of f at the row, and
    ``log p(y_i | f)`` is averaged over what is left, by quadrature: the cavity of expectation propagation. The weights
    are then those of the other rows' expansion around the same centre.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics of exactly these rows; or, of an exact GP, the rows, which need not be said again.
    :param X: the training inputs, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q).
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
    :param rows: the rows wanted, a slice or indices: of many rows and draws, some at a time. Default: all.
    :param site: name of the observed site, if the model has several.
    :param residual_variance: as for :func:`~ppl_sgp.predict`, at the row that is left out.
    :param offset: of a compressed likelihood, the offsets of the training rows, shape (n,).
    :param max_memory: bytes that the result, and what it is computed from, may take each.
    :return: log densities in nats, shape (draws, n) or (draws, n, q).
    :raises ValueError: if the rows are not those of the statistics, if the result would exceed
        ``max_memory``, or if a leverage is too close to one for the precision in use.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(50 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 20), X, y)
        >>> draws = {"lengthscale": jnp.array([0.3]), "amplitude": jnp.ones(1), "noise_scale": jnp.full(1, 0.1)}
        >>> sgp.leave_one_out(sgp.models.fourier_gp(), draws, stats, X, y).shape
        (1, 40)
    """
    of_model = posterior(model, samples, statistics, site=site, max_memory=max_memory)
    options = {"row_weights": row_weights, "rows": rows, "residual_variance": residual_variance, "offset": offset}
    return of_model.leave_one_out(X, y, **options)


def importance_weights(
    model: Callable[..., Any],
    samples: Any,
    statistics: CompressedLikelihood,
    X: Any,
    y: Any = None,
    *,
    row_weights: Any = None,
    offset: Any = None,
    key: jax.Array | None = None,
    draws_each: int = 1,
    site: str | None = None,
    progress: bool | None = None,
    max_memory: float = 2e9,
) -> ImportanceWeights:
    """Correct a compressed model, and certify it: importance weights of its draws against the exact likelihood.

    Each draw θ gets weights w of the basis from their Gaussian posterior (and parameters of the likelihood given them),
    so that draws have the density ``p(θ) p(w | θ) exp Q(w)``, Q being the expansion. Their importance ratios with
    respect to the exact posterior are ``p(y | w)/exp Q(w)``, which depend on w alone: one pass over the rows for all
    draws, O(n·m) each. Ratios are Pareto-smoothed (Vehtari et al. 2024). Whether corrected draws are to be believed,
    ``reliable``, their tail index ``pareto_k`` and the share of effective draws say together.

    Where they are not: compress the likelihood again around the posterior that was found (``compress_likelihood``
    with its reference prior), or more than once; with few events or few rows sample the exact model,
    :func:`~ppl_sgp.explicit_model`.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: the ``MCMC`` after its run, or draws by site name.
    :param statistics: from :func:`~ppl_sgp.compress_likelihood`.
    :param X: the rows that were compressed, as ``compress_likelihood`` takes them: arrays, chunks, tables, Dask;
        likewise ``y``, ``row_weights`` and ``offset``.
    :param key: a JAX random key, for the weights of the basis.
    :param draws_each: how many weights of the basis each draw of hyperparameters gets.
    :param site: name of the observed site, if the model has several.
    :param progress: show a progress bar. Default: only at a terminal.
    :param max_memory: bytes that intermediate results may take.
    :return: ``pareto_k``, ``effective_draws``, ``log_weights``; the weighted ``posterior``; ``resample(key)``.
    :raises ValueError: for models that are not of compressed likelihoods, or rows that are not those that were
        compressed.

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-1, 1, 400)[:, None]
        >>> y = (np.sin(5 * X[:, 0]) + np.cos(40 * X[:, 0]) > 0).astype(float)
        >>> stats = sgp.compress_likelihood(sgp.LaplaceBasis.from_data(X, 8), X, y, sgp.likelihoods.Bernoulli())
        >>> def model(stats):
        ...     sgp.observe("y", stats, stats.basis.weight_prior(sgp.SquaredExponential(0.5)))
        >>> weights = sgp.importance_weights(model, {"unused": np.zeros(500)}, stats, X, y)
        >>> weights.reliable, weights.effective_draws > 300
        (True, True)
    """
    of_model = posterior(model, samples, statistics, site=site, max_memory=max_memory)
    return of_model.importance_weights(
        X, y, row_weights=row_weights, offset=offset, key=key, draws_each=draws_each, progress=progress
    )


def to_arviz(
    mcmc: Any,
    statistics: SufficientStatistics | Rows | ChunkedRows,
    X: Any = None,
    y: Any = None,
    X_new: Any = None,
    *,
    site: str | None = None,
    max_memory: float = 2e9,
    **options: Any,
) -> Any:
    """ArviZ's container for a run: ``InferenceData`` (ArviZ 0.23) or ``DataTree`` (1.x).

    Groups: ``posterior``, ``sample_stats`` and ``log_prior`` always. With ``X`` and ``y``: ``log_likelihood``, holding
    the *leave-one-out* densities ``log p(y_i | y_-i, θ)`` that ``az.loo`` should be given for a collapsed
    model (:func:`~ppl_sgp.leave_one_out`); ``posterior_predictive``, one joint draw of y a posterior
    draw; ``observed_data``, the real y; ``constant_data``, X. With ``X_new``: ``predictions`` and
    ``predictions_constant_data``. Leave-one-out densities do not sum to the likelihood of θ: the name of their
    dimension of rows, ``latent-obs_var``, makes ArviZ's power scaling refuse them. For that pass
    ``log_likelihood="evidence"``, after which the group holds ``log p(y | θ)`` at each draw.

    Dimensions of other groups are ``obs`` (``new_obs``), ``input`` and, with several
    outputs, ``output``; pass ``coords`` to label them. Column names of a data frame label ``input``. Sites over
    ``feature`` are named by the basis, if it names its features: a :class:`~ppl_sgp.CentredBasis` after its centres,
    whose positions are the coordinate ``centre``.

    :param mcmc: a NumPyro ``MCMC`` after ``run(key, statistics, extra_fields=sgp.EXTRA_FIELDS)``.
    :param statistics: the statistics the model was run on; or, of an exact GP, the rows, which are ``X`` and ``y``.
    :param X: the training inputs, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q).
    :param X_new: inputs to predict at, shape (n_new, d).
    :param site: name of the observed site, if the model has several; the name used in all groups.
    :param max_memory: bytes that one group may take; draws times rows beyond it are refused.
    :param options: those of :meth:`Posterior.to_arviz <ppl_sgp.Posterior.to_arviz>`: ``row_weights``, ``key``,
        ``coords``, ``dims``, and more.
    :raises ValueError: if only one of ``X`` and ``y`` is given, or a group would exceed ``max_memory``.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 10), X, y)
        >>> mcmc = MCMC(NUTS(sgp.models.fourier_gp()), num_warmup=20, num_samples=10, progress_bar=False)
        >>> mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
        >>> idata = sgp.to_arviz(mcmc, stats, X=X, y=y)
        >>> dict(idata["log_likelihood"]["y"].sizes)
        {'chain': 1, 'draw': 10, 'latent-obs_var': 30}
    """
    of_run = posterior(mcmc.sampler.model, mcmc, statistics, site=site, max_memory=max_memory)
    return of_run.to_arviz(X, y, X_new, **options)


def kernel_draws(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics | Rows | ChunkedRows,
    lags: Any,
    *,
    origin: Any = None,
    site: str | None = None,
) -> xr.Dataset:
    """Draws of ``k(x₀, x₀ + τ) = φ(x₀)ᵀS⁻¹φ(x₀ + τ)``, and of the spectrum of a Fourier basis.

    Figure 5.2c of Evans (2022). These are covariances of the finite basis, as the model uses them; O(m) or O(m²) a draw
    and lag.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics, or of an exact GP or inducing points the rows, that the model was
        fitted to.
    :param lags: τ, shape (t,) for one input, else (t, d).
    :param origin: x₀, shape (d,); default the middle of the training inputs. It does not matter for a
        :class:`~ppl_sgp.FourierBasis`, whose kernels are stationary.
    :param site: name of the observed site, if the model has several.
    :return: a dataset with ``covariance`` (draw, lag), in squared units of y, over the coordinate ``lag`` (one
        input) or ``displacement`` (lag, input); for a Fourier basis also ``spectrum`` (draw, frequency), the
        prior variance at each spectral point, over ``frequency`` or ``wave_vector`` (frequency, input), in
        cycles per unit of x. Its sum over frequencies is k(x₀, x₀). Outputs with a prior each are a second dimension,
        ``output``.
    :raises ValueError: if arguments do not fit, or the model keeps its weights (``observe_weights``).

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> kernels = sgp.kernel_draws(sgp.models.fourier_gp(), draws, stats, lags=np.linspace(0, 1, 5))
        >>> dict(kernels.sizes)
        {'draw': 2, 'lag': 5, 'frequency': 10}
    """
    return posterior(model, samples, statistics, site=site).kernel_draws(lags, origin=origin)


def kernel_error(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    *,
    kernel: Callable[..., Kernel] | None = None,
    site: str | None = None,
) -> xr.Dataset:
    """Compare the covariance ``K̃ = ΦS⁻¹Φᵀ`` that the model uses with the exact ``K`` of its kernel, at each draw.

    The basis was chosen before the hyperparameters were known; this says whether it covers the lengthscales that the
    posterior has found. The relative error ``‖K̃ - K‖/‖K‖`` in the Frobenius norm is the error of figures 4.2 and 5.1 of
    Evans (2022). Eigenfunctions (:class:`~ppl_sgp.LaplaceBasis`, :class:`~ppl_sgp.GridEigenBasis`) bring it to
    nothing with enough features. That of random Fourier features falls as one over the square root of their number,
    and predictions are good long before it is small: compare it between bases and draws, and look at the ratio of
    variances, which is well below one where the basis misses short lengthscales.

    O(k²(m + d)) a draw, besides the features of the k points.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param X: points to compare at, shape (k, d): some hundred of the training inputs.
    :param kernel: the exact kernel of one draw, a function of its latent sites by name (and of the number of an output,
        where these have a prior each). A :class:`~ppl_sgp.models.KernelModel` knows it, such as those made by
        :func:`~ppl_sgp.models.basis_gp` and :func:`~ppl_sgp.models.fourier_gp`.
    :param site: name of the observed site, if the model has several.
    :return: a dataset with ``relative_error`` (draw), and ``variance_ratio`` (draw), the mean prior variance over the
        points by that of the exact kernel; (draw, output) where outputs have a prior each.
    :raises ValueError: if arguments do not fit, or the model keeps its weights (``observe_weights``).

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 10), X, np.sin(40 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.02]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> print(sgp.kernel_error(sgp.models.basis_gp(), draws, stats, X).variance_ratio.values.round(1))
        [1.  0.3]
    """
    return posterior(model, samples, statistics, site=site).kernel_error(X, kernel=kernel)
