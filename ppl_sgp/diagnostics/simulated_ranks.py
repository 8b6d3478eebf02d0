"""Ranks of true values among the draws of chains that saw data simulated from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpyro import handlers
from numpyro.infer.hmc import hmc
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from tqdm.auto import tqdm

from .._internal import checks
from ..inference.gibbs_rows import GibbsRows
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics

#: Simulations are run in so many parts, between which the progress bar moves: one compiled program for all.
PARTS = 20


def simulated_ranks(
    model: Callable[..., Any],
    kernel: Callable[[], MCMCKernel] | None,
    statistics: SufficientStatistics | Rows | ChunkedRows | GibbsRows,
    key: jax.Array,
    truths: dict[str, Any],
    projections: Any,
    site: str,
    settings: tuple[int, int, int],
    progress: bool | None,
) -> xr.Dataset:
    """Ranks and divergences, of a chain for each simulation: see :func:`~ppl_sgp.simulation_based_calibration`.

    :param truths: by latent site, with the simulations along the first axis.
    :param projections: what the site observes of each simulation's data, shape (simulations, event) or (simulations,
        q, event): what rows compress to, or the outputs of rows.
    :param site: name of the observed site.
    :param settings: steps of warm-up, draws kept, and steps for each.
    """
    count = len(projections)
    part = -(-count // PARTS)
    starts = range(0, count, part)
    keys = jax.random.split(key, count)
    truths, projections = jax.tree.map(jnp.asarray, (truths, projections))
    chains = _chains(model, kernel, site, settings)
    done: list[tuple[dict[str, Any], Any]] = []
    try:
        with tqdm(total=count, disable=None if progress is None else not progress, unit="simulation") as bar:
            for start in starts:
                # The last part is filled up with the first simulations, so that one program does for all.
                arguments = _rows((keys, truths, projections), np.arange(start, start + part) % count)
                below = chains(statistics, *arguments)
                done.append(_rows(jax.tree.map(np.asarray, below), np.arange(min(part, count - start))))
                bar.update(len(done[-1][1]))
    except KeyboardInterrupt:
        if not done:
            raise
        checks.warn(f"Interrupted: ranks of {sum(len(each[1]) for each in done)} of {count} simulations.")
    return _dataset(done, settings[1])


def ranks_of_each(
    model: Callable[..., Any],
    site: str,
    key: jax.Array,
    truths: dict[str, Any],
    simulated: Callable[[int], SufficientStatistics],
    settings: tuple[int, int, int],
    progress: bool | None,
) -> xr.Dataset:
    """The same where each simulation has statistics of its own, of equal shapes.

    :param simulated: from the number of a simulation to its statistics.
    """
    count = len(next(iter(truths.values())))
    chains = _chains(model, None, site, settings)
    done: list[tuple[dict[str, Any], Any]] = []
    try:
        for i in tqdm(range(count), disable=None if progress is None else not progress, unit="simulation"):
            statistics, row = simulated(i), np.array([i])
            truth = jax.tree.map(jnp.asarray, _rows(truths, row))
            below = chains(
                statistics, jax.random.split(key, count)[row], truth, jnp.asarray(statistics.projection)[None]
            )
            done.append(jax.tree.map(np.asarray, below))
    except KeyboardInterrupt:
        if not done:
            raise
        checks.warn(f"Interrupted: ranks of {len(done)} of {count} simulations.")
    return _dataset(done, settings[1])


def _dataset(done: list[tuple[dict[str, Any], Any]], num_draws: int) -> xr.Dataset:
    """Ranks and divergences of parts of the simulations, one after the other."""
    below, diverging = jax.tree.map(lambda *parts: np.concatenate(parts), *done)
    data = {
        name: xr.DataArray(ranks, dims=["simulation", *(f"{name}_dim_{i}" for i in range(ranks.ndim - 1))])
        for name, ranks in below.items()
    }
    data["diverging"] = xr.DataArray(diverging, dims=["simulation"])
    return xr.Dataset(data, attrs={"num_draws": num_draws})


def _rows(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _chains(model, kernel, site, settings):
    """A program for ranks and divergences of one chain for each truth, one after the other.

    Compiled for each study: a model may read values of its module that have changed since the last one.
    """
    num_warmup, num_draws, thinning = settings

    def one(statistics, arguments):
        key, truth, projection = arguments
        if kernel is None:
            state, sample, values = _nuts(model, site, num_warmup, statistics, key, truth, projection)
        else:
            state, sample, values = _other(kernel(), num_warmup, statistics._with_outputs(projection), key)

        def step(state, _):
            state = sample(state)
            return state, getattr(state, "diverging", jnp.asarray(False))

        def thinned(state, _):
            state, diverging = jax.lax.scan(step, state, length=thinning)
            return state, (values(state), jnp.sum(diverging))

        state, _ = jax.lax.scan(step, state, length=num_warmup)
        _, (draws, diverging) = jax.lax.scan(thinned, state, length=num_draws)
        keys = dict(zip(truth, jax.random.split(jax.random.fold_in(key, 1), len(truth)), strict=True))
        return {name: _rank(keys[name], draws[name], value) for name, value in truth.items()}, jnp.sum(diverging)

    return jax.jit(lambda statistics, *arguments: jax.lax.map(functools.partial(one, statistics), arguments))


def _rank(key, draws, value):
    """How many draws are below the value, of those equal to it a random share."""
    ties = jnp.sum(draws == value[None], axis=0)
    return jnp.sum(draws < value[None], axis=0) + jax.random.randint(key, ties.shape, 0, ties + 1)


def _nuts(model, site, num_warmup, statistics, key, truth, projection):
    """The state of NUTS at the truth, its step, and the values of the sites at a state."""

    def given(statistics, projection):
        handlers.condition(model, {site: projection})(statistics)

    data = (statistics, projection)
    init, sample = hmc(potential_fn_gen=lambda *data: lambda z: potential_energy(given, data, {}, z), algo="NUTS")
    start = unconstrain_fn(handlers.seed(given, key), data, {}, truth)
    # NumPyro would shrink estimated variances towards 1e-3; with many rows that of log σ is 1/2n.
    state = init(start, num_warmup, model_args=data, rng_key=key, regularize_mass_matrix=False)

    def values(state):
        return constrain_fn(handlers.seed(given, key), data, {}, state.z)

    return state, lambda state: sample(state, data, {}), values


def _other(kernel, num_warmup, statistics, key):
    """The same of any kernel, on statistics or rows that have the outputs."""
    data = (statistics,)
    state = kernel.init(key, num_warmup, None, data, {})

    def values(state):
        return kernel.get_constrain_fn(data, {})(getattr(state, kernel.sample_field))

    return state, lambda state: kernel.sample(state, data, {}), values
