"""One-line helpers for NumPyro models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro

from ..grids.grid import Grid
from ..grids.solver import GridSolver
from ..kernels import Kernel
from ..priors import WeightPrior
from ..statistics.grouped import GroupedStatistics
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics
from .compressed_normal import CompressedNormal
from .exact_gp import ExactGP
from .grid_gp import GridGP
from .grouped_gp import GroupedGP
from .inducing_gp import InducingGP
from .observed_distribution import ObservedDistribution, not_enumerated
from .sparse_gp import SparseGP


def observe(name: str, statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any = None) -> jax.Array:
    """Observe the data, with the weights marginalised: ``sample(name, SparseGP(...), obs=statistics.projection)``.

    Each site marginalises weights of its own: two sites with the same prior are two *independent* functions. Data of
    one function with noise of several kinds (two instruments) go into one site: with ``row_weights`` for known ratios
    of noise, else by :func:`observe_groups`.

    Call it outside any data plate. Discrete sites that NumPyro sums over (with funsor) may make a batch of parameters;
    several outputs are then observed inside a plate of their number. For the prior predictive use
    ``Predictive(numpyro.handlers.uncondition(model), num_samples=...)(key, statistics)``.

    :param name: name of the site.
    :param statistics: from :func:`~ppl_sgp.sufficient_statistics` or :func:`~ppl_sgp.compress_likelihood`.
    :param prior: prior of the weights, usually ``statistics.basis.weight_prior(kernel)``.
    :param noise_scale: standard deviation of the noise. Left out for compressed likelihoods.
    :return: the compressed data.
    :raises ValueError: for arguments that do not fit, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(stats):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))
        ...     prior = stats.basis.weight_prior(sgp.SquaredExponential(lengthscale))
        ...     sgp.observe("y", stats, prior, noise_scale=0.1)
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> density, _ = numpyro.infer.util.log_density(model, (stats,), {}, {"lengthscale": 0.3})
        >>> density.shape
        ()
    """
    return _observe(name, SparseGP(statistics, prior, noise_scale))


def observe_weights(name: str, statistics: SufficientStatistics, weights: Any, noise_scale: Any = None) -> jax.Array:
    """Observe the data given explicit weights, which may have any prior. O(m·rank), independent of n.

    :param name: name of the site.
    :param statistics: from :func:`~ppl_sgp.sufficient_statistics` or :func:`~ppl_sgp.compress_likelihood`.
    :param weights: w, shape (m,); with q outputs (q, m); with K latents a row (K·m,), the first latent's first.
    :param noise_scale: standard deviation of the noise. Left out for compressed likelihoods.
    :return: the compressed data.
    :raises ValueError: for arguments that do not fit, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def horseshoe(stats):
        ...     scales = numpyro.sample("scales", dist.HalfCauchy(1.0).expand([stats.num_features]).to_event(1))
        ...     w = numpyro.sample("w", dist.Normal(0.0, scales).to_event(1))
        ...     sgp.observe_weights("y", stats, w, noise_scale=0.1)
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     horseshoe(stats)
    """
    return _observe(name, CompressedNormal(statistics, weights, noise_scale))


def observe_groups(
    name: str, statistics: GroupedStatistics, prior: WeightPrior, noise_scale: Any, mixing: Any = None
) -> jax.Array:
    """Observe groups of rows that share functions, with the weights marginalised and a noise scale a group.

    By default all groups see one function, as several instruments do: O(m³ + G m²). With ``mixing`` L (G, p) they see
    correlated ones, ``cov(f_k(x), f_l(x')) = (LLᵀ)ₖₗ k(x, x')``: the intrinsic model of coregionalisation (Bonilla,
    Chai & Williams 2008), whose groups are the outputs. It costs O(m³ + p³) where all outputs are known in the same
    rows, else O((p m)³). Fix the amplitude of the kernel or the scale of L; the data know their product only.

    Predictions have an output a group: the same f with other noise, or other functions. Call it outside any data plate.

    :param name: name of the site.
    :param statistics: from :func:`~ppl_sgp.grouped_statistics` or :func:`~ppl_sgp.output_statistics`.
    :param prior: prior of the weights of each latent function.
    :param noise_scale: standard deviations of the noise, shape (G,), in the order of ``statistics.names``.
    :param mixing: L, shape (G, p), such as ``scales[:, None] * dist.LKJCholesky(G)`` draws. A covariance of low rank
        plus diagonal is ``jnp.linalg.cholesky(W @ W.T + jnp.diag(d))``.
    :return: the compressed data.
    :raises ValueError: for arguments that do not fit, float32, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(stats):
        ...     noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
        ...     sgp.observe_groups("y", stats, stats.basis.weight_prior(sgp.Matern32(0.3)), noise_scale)
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.grouped_statistics(basis, X, np.cos(6 * X[:, 0]), np.repeat(["old", "new"], 15))
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     values = {"noise_scale": np.array([0.1, 0.2])}
        ...     numpyro.infer.util.log_density(model, (stats,), {}, values)[0].shape
        ()
    """
    return _observe(name, GroupedGP(statistics, prior, noise_scale, mixing))


def observe_exact(name: str, rows: Rows, kernel: Kernel, noise_scale: Any) -> jax.Array:
    """Observe rows by an exact GP: ``sample(name, ExactGP(rows, kernel, noise_scale), obs=rows.values)``.

    For up to a few thousand rows: a value with its gradient is O(n³). Several outputs are independent functions with
    the same kernel. Call it outside any data plate.

    :param name: name of the site.
    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: any kernel.
    :param noise_scale: standard deviation of the noise of a row of weight one; of q outputs, shape () or (q,).
    :return: the outputs.
    :raises ValueError: as :class:`~ppl_sgp.ExactGP`, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(rows):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))
        ...     sgp.observe_exact("y", rows, sgp.Matern52(lengthscale), noise_scale=0.1)
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> rows = sgp.rows(X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> with jax.enable_x64(True):
        ...     density, _ = numpyro.infer.util.log_density(model, (rows,), {}, {"lengthscale": np.float64(0.3)})
        >>> density.shape
        ()
    """
    return _observe(name, ExactGP(rows, kernel, noise_scale))


def observe_grid(
    name: str,
    grid: Grid,
    kernels: Sequence[Kernel],
    noise_scale: Any,
    *,
    feature_scale: Any = None,
    solver: GridSolver | None = None,
) -> jax.Array:
    """Observe a grid with gaps by an exact GP: ``sample(name, GridGP(grid, kernels, noise_scale), obs=grid.values)``.

    The covariance of two cells is the product of the kernels of the axes. Call it outside any data plate.

    :param name: name of the site.
    :param grid: from :class:`~ppl_sgp.Grid`.
    :param kernels: a kernel for each axis; one amplitude is enough.
    :param noise_scale: standard deviation of the noise of a cell of weight one.
    :param feature_scale: prior standard deviations of the fixed effects, if the grid has features.
    :param solver: how gaps are dealt with: :class:`~ppl_sgp.GridSolver`.
    :return: the observed cells.
    :raises ValueError: as :class:`~ppl_sgp.GridGP`, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(grid):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        ...     kernels = [sgp.Matern52(lengthscale), sgp.SquaredExponential(1.0)]
        ...     sgp.observe_grid("y", grid, kernels, noise_scale=0.1)
        >>> grid = sgp.Grid([np.arange(4), np.arange(3)], np.arange(12.0).reshape(4, 3) % 5)
        >>> with jax.enable_x64(True):
        ...     density, _ = numpyro.infer.util.log_density(model, (grid,), {}, {"lengthscale": np.float64(0.3)})
        >>> density.shape
        ()
    """
    return _observe(name, GridGP(grid, kernels, noise_scale, feature_scale=feature_scale, solver=solver))


def observe_inducing(
    name: str,
    rows: Rows | ChunkedRows,
    kernel: Kernel,
    Z: Any,
    noise_scale: Any,
    method: str = "fitc",
    *,
    blocks: Any = None,
) -> jax.Array:
    """Observe rows through inducing points, hyperparameters free: O(n m²) a gradient, memory that does not grow with n.

    All methods but ``"vfe"`` are models: their posteriors are exact for :class:`~ppl_sgp.InducingGP`.
    ``"vfe"`` observes DTC and adds the trace term of Titsias's bound as a factor, ``{name}_trace``. The posterior is
    then a *surrogate*: ∝ p(θ) p(y | θ) exp(−KL), where KL is what the points lose at θ. It is biased towards θ that the
    points carry well, such as long lengthscales and much noise; ``inducing_upper_bound − inducing_evidence`` bounds
    the KL. What is drawn without data is DTC.

    Hold the points fixed while sampling; choose them at an optimum, by :func:`~ppl_sgp.fit_inducing`. Call it outside
    any data plate.

    :param name: name of the site.
    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: the covariance of f, of mean zero.
    :param Z: inducing points, shape (m, d).
    :param noise_scale: standard deviation of the noise: a number, or one an output, shape (q,).
    :param method: ``"fitc"``, ``"dtc"``, ``"pitc"``, ``"pic"`` or ``"vfe"``.
    :param blocks: of PITC and PIC: see :class:`~ppl_sgp.InducingGP`.
    :return: the outputs, ``rows.values``.
    :raises ValueError: for arguments that do not fit, float32, or inside a data plate.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> Z = np.linspace(0, 1, 6)[:, None]
        >>> def model(rows):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))
        ...     sgp.observe_inducing("y", rows, sgp.SquaredExponential(lengthscale), Z, noise_scale=0.1, method="vfe")
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> rows = sgp.rows(X, np.cos(6 * X[:, 0]))
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     numpyro.infer.util.log_density(model, (rows,), {}, {"lengthscale": 0.3})[0].shape
        ()
    """
    site = InducingGP(rows, kernel, Z, noise_scale, "dtc" if method == "vfe" else method, blocks=blocks)
    if method != "vfe":
        return _observe(name, site)
    _require_one_each(name, site)
    site, values, trace_term = site.bound()
    numpyro.factor(f"{name}_trace", jnp.sum(trace_term))
    return numpyro.sample(name, site, obs=values)


def _observe(name: str, site: ObservedDistribution) -> jax.Array:
    _require_one_each(name, site)
    return numpyro.sample(name, site, obs=site.observed)


def _require_one_each(name: str, site: ObservedDistribution) -> None:
    """Refuse a batch of parameters that would count the data again."""
    outputs, batch = jnp.shape(site.observed)[:-1], not_enumerated(site.batch_shape)
    extra = len(batch) - len(outputs)
    if batch[extra:] != outputs or any(size != 1 for size in batch[:extra]):
        raise ValueError(
            f"observe: the parameters of {name!r} make a batch of shape {site.batch_shape}, but the data are one "
            f"observation for each output, shape {outputs}: they would be counted again for each member. Noise known "
            "to differ between rows goes into their `row_weights`; a batch of parameters through `jax.vmap`, or the "
            f"`log_prob` of a {type(site).__name__}. Beside discrete sites that NumPyro sums over, several outputs "
            "need a plate, `numpyro.plate('output', q)`."
        )
