"""Simulation-based calibration of a model over compressed data: at a cost that does not depend on the number of rows.

If density, gradients and draws of a model are right, the rank of a true value among posterior draws is uniform, on
average over truths and data. Truths come from the prior (Talts et al. 2018, arXiv:1804.06788), or from the posterior of
the data at hand, each then seen together with those data (posterior SBC: Säilynoja et al. 2025, arXiv:2502.03279). Data
are never made: the observed site draws what n rows compress to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
import xarray as xr
from numpyro.infer import NUTS
from numpyro.infer.mcmc import MCMCKernel

from .._internal import checks
from .._internal.pytree import rebuild
from .._internal.random import host_generator, random_key
from ..evidence.inducing import IN_BLOCKS
from ..inference.augmented_gibbs import AugmentedGibbs
from ..inference.gibbs_rows import GibbsRows, simulated
from ..posteriors.posterior import Posterior, posterior
from ..posteriors.site_draws import InducingParameters
from ..sites.compressed_normal import CompressedNormal
from ..sites.row_models import of_rows
from ..sites.tracing import ObservedSite, draw_once, is_improper, observed_site, prior_draws
from ..statistics.compressed import Compressed
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics, with_compressed
from .simulated_ranks import simulated_ranks

#: Most bins of a test of uniformity, and least expected number of ranks in each.
MOST_BINS, LEAST_EXPECTED = 20, 5


def simulation_based_calibration(
    model: Callable[..., Any],
    statistics: SufficientStatistics | Rows | ChunkedRows | GibbsRows,
    key: jax.Array,
    num_simulations: int = 500,
    *,
    generator: Callable[..., Any] | None = None,
    site: str | None = None,
    kernel: Callable[[], MCMCKernel] | None = None,
    num_warmup: int = 500,
    num_draws: int = 99,
    thinning: int = 6,
    progress: bool | None = None,
) -> xr.Dataset:
    """Ranks of true values, drawn from the prior, among thinned draws of their posterior, by NUTS or another kernel.

    Chains of NUTS start at the truth, which is a draw of the posterior of its data. So this checks densities and draws,
    not whether chains find the posterior from afar: that is for R-hat. Draws equal to the truth, as of discrete
    weights, count as above or below it at random. Interrupted (Ctrl-C), it warns and returns what is done.
    O(simulations · steps · evidence): of statistics, whatever the number of rows.

    :param model: a NumPyro model of one argument, the statistics, all of whose priors are proper.
    :param statistics: the inputs and the basis of the study, or of an exact GP, inducing points, or a model that
        observes rows by a distribution of its own (``model(X, y)``), the rows; their outputs set default priors, and no
        more. Of rows for :class:`~ppl_sgp.AugmentedGibbs`, the default kernel then, outcomes are made, weights are
        ranked as well, and chains start where they like.
    :param key: a JAX random key.
    :param num_simulations: number of truths.
    :param generator: the model that truths and data are drawn from, if another: to see the check fail.
    :param site: name of the observed site, if there are several.
    :param kernel: a function that makes the sampler, such as ``model.gibbs``; it starts where it likes. Statistics that
        it is given have the simulated outputs, but for the scale of y, from which defaults are taken: that of the
        study. Default: NUTS.
    :param num_warmup: warm-up steps of each chain.
    :param num_draws: draws kept of each chain; ranks go from 0 to this.
    :param thinning: steps for each draw kept; ranks of dependent draws are not uniform.
    :param progress: show a progress bar. Default: only at a terminal.
    :return: integer ranks by latent site, with a first dimension ``simulation``, then those of the site; and
        ``diverging``, divergences of each chain of NUTS after warm-up. :func:`rank_uniformity` tests them.
    :raises ValueError: for a site that observes a bound, priors that are improper, discrete sites without a ``kernel``,
        and numbers that are not positive integers.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(40 * X[:, 0]))
        >>> model = sgp.models.reweighted_basis(noise_scale=0.3)
        >>> ranks = sgp.simulation_based_calibration(
        ...     model, stats, jax.random.key(0), 20, num_warmup=50, num_draws=9, thinning=2
        ... )
        >>> dict(ranks["scale"].sizes), int(ranks["scale"].max()) <= 9
        ({'simulation': 20, 'scale_dim_0': 2}, True)
    """
    owner = "simulation_based_calibration"
    settings = checked_settings(num_warmup, num_draws, thinning, owner)
    checks.whole_number("num_simulations", num_simulations, 1, owner)
    if isinstance(statistics, GibbsRows):
        require_proper(model, statistics.template)
        of_kernel = kernel or (lambda: AugmentedGibbs(NUTS(model)))
        key_truth, key_chains = jax.random.split(random_key(key, owner))
        truths, outcomes = simulated(generator or model, statistics, key_truth, num_simulations)
        return simulated_ranks(model, of_kernel, statistics, key_chains, truths, outcomes, "", settings, progress)
    model, generator = of_rows(model, statistics), None if generator is None else of_rows(generator, statistics)
    observed = observed_site(model, statistics, site)
    latent, name = observed.latent, observed.name
    _require_density(observed, owner)
    require_proper(model, statistics)
    _require_sampler(model, statistics, kernel)
    key_truth, key_chains = jax.random.split(random_key(key, owner))
    drawn = prior_draws(generator or model, statistics, key_truth, num_simulations, observed=True)
    truths = {site: drawn[site] for site in latent}
    return simulated_ranks(model, kernel, statistics, key_chains, truths, drawn[name], name, settings, progress)


def posterior_sbc(
    model: Callable[..., Any],
    statistics: SufficientStatistics | Rows | ChunkedRows,
    samples: dict[str, Any],
    key: jax.Array,
    *,
    site: str | None = None,
    kernel: Callable[[], MCMCKernel] | None = None,
    num_warmup: int = 500,
    num_draws: int = 99,
    thinning: int = 6,
    progress: bool | None = None,
) -> xr.Dataset:
    """The same where the posterior is: truths are posterior draws, each with new outputs at the same inputs.

    With the weights that go with it, each draw makes new data, and the posterior given these *and* the data at hand
    is ranked. The prior may be wide: what it says where the data say otherwise does not matter here.

    :param samples: posterior draws by site, nearly independent: one for each simulation, along the first axis. Thin
        ``mcmc.get_samples()``.
    :return: as :func:`simulation_based_calibration`, whose other parameters these are.
    """
    settings = checked_settings(num_warmup, num_draws, thinning, "posterior_sbc")
    _require_density(observed_site(model, statistics, site), "posterior_sbc")
    known = posterior(model, samples, statistics, site=site, max_memory=2e8)
    truths, name = known.latent, known.site
    _require_sampler(model, statistics, kernel)
    key_data, key_chains = jax.random.split(random_key(key, "posterior_sbc"))
    repeat = _statistics_again if isinstance(known.data, SufficientStatistics) else _rows_again
    both, joined = repeat(known, key_data)
    return simulated_ranks(model, kernel, both, key_chains, truths, joined, name, settings, progress)


def rank_uniformity(ranks: xr.Dataset) -> xr.Dataset:
    """p-values of the chi-square test that ranks are uniform, for each entry of each site.

    :param ranks: from :func:`simulation_based_calibration` or :func:`posterior_sbc`.
    :return: p-values by site, without the dimension ``simulation``. With many entries some are small by chance.
    :raises ValueError: for too few simulations.

    .. doctest::

        >>> import numpy as np, xarray as xr, ppl_sgp as sgp
        >>> ranks = xr.Dataset({"scale": ("simulation", np.arange(200) % 10)}, attrs={"num_draws": 9})
        >>> sgp.rank_uniformity(ranks)["scale"].item()
        1.0
    """
    values, count = ranks.attrs["num_draws"] + 1, ranks.sizes["simulation"]
    bins = max((b for b in range(1, MOST_BINS + 1) if values % b == 0 and b * LEAST_EXPECTED <= count), default=1)
    if bins == 1:
        raise ValueError(
            f"rank_uniformity: {count} simulations are too few for a test, or {values}, the number of possible ranks "
            f"(`num_draws` + 1), has no divisor up to {MOST_BINS}. Run {2 * LEAST_EXPECTED} or more, with 99 draws."
        )

    def p_value(column: np.ndarray) -> float:
        return float(scipy.stats.chisquare(np.bincount(column * bins // values, minlength=bins)).pvalue)

    of_sites = ranks.drop_vars("diverging", errors="ignore")
    return xr.apply_ufunc(p_value, of_sites, input_core_dims=[["simulation"]], vectorize=True)


def checked_settings(num_warmup: int, num_draws: int, thinning: int, owner: str) -> tuple[int, int, int]:
    """Steps of warm-up, draws and steps for each, as whole numbers."""
    for name, value in (("num_warmup", num_warmup), ("num_draws", num_draws), ("thinning", thinning)):
        checks.whole_number(name, value, 1, owner)
    return num_warmup, num_draws, thinning


def _require_density(observed: ObservedSite, owner: str) -> None:
    if not observed.is_density:
        raise ValueError(
            f"{owner}: {observed.name!r} observes a bound, which is no density of y: no data can be drawn from it, and "
            'its posterior is not calibrated by construction. Study the model with `method="fitc"` or "dtc".'
        )


def require_proper(model: Callable[..., Any], statistics: Any) -> None:
    """Refuse priors that cannot be drawn from."""
    for name, each in draw_once(model, statistics).items():
        if each["type"] == "sample" and not each["is_observed"] and is_improper(each["fn"]):
            raise ValueError(
                f"simulation_based_calibration: the prior of {name!r} is improper, so that no true value can be drawn "
                "from it. Give it a proper prior."
            )


def _require_sampler(model: Callable[..., Any], statistics: Any, kernel: Any) -> None:
    if kernel is not None:
        if not callable(kernel):
            raise ValueError(
                f"`kernel` must be a function of no arguments that makes a sampler, such as `model.gibbs`; got "
                f"{type(kernel).__name__}. Pass `lambda: Gibbs([...])`, so that each call has one of its own."
            )
        return
    for name, each in draw_once(model, statistics).items():
        if each["type"] == "sample" and not each["is_observed"] and each["fn"].support.is_discrete:
            raise ValueError(
                f"NUTS cannot sample {name!r}, which is discrete. Pass a kernel that can: `kernel=model.gibbs` of "
                "`sgp.models.discrete_weights`, or a function that makes your own."
            )


def _rows_again(posterior: Posterior, key: jax.Array) -> tuple[Rows, np.ndarray]:
    """Rows twice, and what a site observes of their outputs and of new ones at each draw, (draws, …, 2n)."""
    rows, structure = posterior.data, posterior.draws.structure()
    if not isinstance(rows, Rows):
        raise ValueError(
            "posterior_sbc sees the rows twice, which need their inputs as an array: `sgp.rows(X, y)`. "
            "Groups of rows it does not take."
        )
    method = structure.method if isinstance(structure, InducingParameters) else "exact"
    if method in IN_BLOCKS:
        raise ValueError(
            f'posterior_sbc sees the rows twice, and `blocks` of method "{method}" are labels of each row once. Use '
            '"fitc".'
        )
    # Rows of DTC have none of what the points lack, and so have their repetitions.
    prediction = posterior.predict(rows.X, row_weights=rows.row_weights, residual_variance=method != "dtc")
    repeated = prediction.sample_draws(key, np.arange(posterior.num_draws))
    X, y, weights = jax.tree.map(lambda part: np.concatenate([part, part]), (rows.X, rows.y, rows.row_weights))
    first = np.broadcast_to(rows.values, (len(repeated), *rows.values.shape))
    return Rows(X, y, weights), np.concatenate([first, np.moveaxis(repeated, 1, -1)], axis=-1)


def _statistics_again(posterior: Posterior, key: jax.Array) -> tuple[SufficientStatistics, np.ndarray]:
    """The same of statistics: those of the inputs twice, and what outputs and new ones compress to together."""
    statistics, projections, rng = posterior.statistics, [], host_generator(key, "posterior_sbc")
    for batch in posterior.functions.batches():
        key, key_batch = jax.random.split(key)
        weights = batch.weights(rng.standard_normal(batch.loc.shape))
        single = np.ndim(statistics.moments.sum_squares) == 0
        w, noise = (weights[:, 0], batch.noise_scale[:, 0]) if single else (weights, batch.noise_scale)
        repeated = CompressedNormal(statistics, jnp.asarray(w), jnp.asarray(noise)).sample(key_batch)
        projections.append(np.asarray(repeated))
    return _with_repetition(statistics, np.concatenate(projections))


def _with_repetition(statistics: SufficientStatistics, repeated: np.ndarray) -> tuple[SufficientStatistics, np.ndarray]:
    """Statistics of the inputs twice, and what the data and repetitions of them compress to together.

    With R for the inputs once it is √2·R for both, c = (c₁ + c₂)/√2, and rss = rss₁ + rss₂ + ‖c₁ − c₂‖²/2.
    """
    twice, once = statistics + statistics, statistics.compressed
    factor = {"factor": np.sqrt(2) * once.factor}  # that of the sums might have other signs
    defects = {name: getattr(once, name) for name in ("gram_defect", "output_defect")}
    doubled = {name: None if value is None else 2 * value for name, value in defects.items()}
    compressed = rebuild(Compressed, {**vars(twice.compressed), **factor, **doubled})
    both = with_compressed(twice.basis, twice.moments, compressed)
    first = np.asarray(statistics.projection)
    c = (first[..., :-1] + repeated[..., :-1]) / np.sqrt(2)
    apart = np.sum((first[..., :-1] - repeated[..., :-1]) ** 2, axis=-1) / 2
    joined = np.concatenate([c, (first[..., -1] + repeated[..., -1] + apart)[..., None]], axis=-1)
    return both, joined
