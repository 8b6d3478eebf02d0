"""Posteriors of positive hyperparameters, with their priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.distribution import ExpandedDistribution, Independent, MaskedDistribution
from scipy.stats import gaussian_kde

from ._axes import NEUTRAL, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Entries a parameter may have to be shown without being named.
MOST_ENTRIES = 20
#: Entries that the legend names.
NAMED_ENTRIES = 6
#: Points of a density curve.
POINTS = 200


def plot_hyperparameters(
    samples: Mapping[str, Any], priors: Mapping[str, Any] | None = None, *, names: Any = None, ax: Any = None
) -> Any:
    """Posterior densities of positive parameters over their logarithms, a panel each, with the prior densities.

    Densities are of ln θ, on a logarithmic axis of θ, so that areas are probabilities: kernel estimates of the draws,
    and ``p(θ)·θ`` of the prior. Each entry of a vector, such as a lengthscale for each input, is a line in one panel. A
    posterior that looks like its prior has learned nothing from the data.

    :param samples: draws by site name with the draws along the first axis, as ``mcmc.get_samples()``.
    :param priors: NumPyro distributions by site name, for some or all of them. A prior over vectors whose entries are
        independent is drawn entry by entry.
    :param names: sites to show. Default all whose draws are positive and have at most twenty entries.
    :param ax: as many axes as panels, or one for one; default those of a new figure.
    :return: the axes as they came; else one, or of several parameters an array of them.
    :raises ValueError: for sites that are missing, not finite or not positive, or no such site at all.

    .. doctest::

        >>> import numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> samples = {"noise_scale": np.random.default_rng(0).gamma(50.0, 0.01, 200)}
        >>> priors = {"noise_scale": dist.HalfNormal(1.0)}
        >>> ax = sgp.plots.plot_hyperparameters(samples, priors, ax=Figure().subplots())
        >>> ax.get_xlabel(), ax.get_xscale(), ax.get_legend_handles_labels()[1]
        ('noise_scale', 'log', ['prior', 'posterior'])
    """
    chosen = _chosen(samples, names)
    result, given = panels(ax, len(chosen), "plot_hyperparameters")
    named: set[str] = set()
    for panel, (name, draws) in zip(given, chosen.items(), strict=True):
        _draw(panel, name, np.log(draws), (priors or {}).get(name))
        handles, labels = panel.get_legend_handles_labels()
        new = {label: handle for handle, label in zip(handles, labels, strict=True) if label not in named}
        if new:  # what a panel before has named is named once
            panel.legend(new.values(), new.keys(), frameon=False, fontsize="small", handlelength=1.2)
            named.update(new)
    return result


def _chosen(samples: Mapping[str, Any], names: Any) -> dict[str, np.ndarray]:
    """Draws of the sites to show, (draws, …)."""
    arrays = {name: np.asarray(value) for name, value in samples.items()}
    if names is None:
        found = {name: value for name, value in arrays.items() if _positive(value) and _entries(value) <= MOST_ENTRIES}
        if not found:
            raise ValueError(
                f"plot_hyperparameters: no site in {sorted(arrays)} has positive draws and at most {MOST_ENTRIES} "
                "entries. Choose some with `names`."
            )
        return found
    names = [names] if isinstance(names, str) else list(names)
    missing = [name for name in names if name not in arrays]
    if missing or not names:
        raise ValueError(f"plot_hyperparameters: `names` must be among {sorted(arrays)}; got {names}.")
    wrong = [name for name in names if not _positive(arrays[name])]
    if wrong:
        raise ValueError(
            f"plot_hyperparameters: draws of {wrong} must be positive and finite, the draws along the first axis, for "
            "a logarithmic axis. Leave these sites out of `names`."
        )
    return {name: arrays[name] for name in names}


def _entries(draws: np.ndarray) -> int:
    return draws[0].size


def _positive(draws: np.ndarray) -> bool:
    numbers = draws.dtype.kind in "iuf" and draws.ndim > 0 and draws.size > 0
    return bool(numbers and np.isfinite(draws).all() and (draws > 0).all())


def _draw(ax: Axes, name: str, log_draws: np.ndarray, prior: Any) -> None:
    columns = log_draws.reshape(len(log_draws), -1).astype(np.float64)
    low, high = _span(columns, prior is not None)
    if prior is not None:
        x = np.exp(np.linspace(low, high, POINTS))
        for density in _prior_densities(prior, x):
            ax.plot(x, density, "--", color=NEUTRAL, lw=1.2, label=None if ax.lines else "prior")
    count = columns.shape[1]
    few = count <= NAMED_ENTRIES
    for k, values in enumerate(columns.T):
        index = ", ".join(map(str, np.unravel_index(k, log_draws.shape[1:])))
        label = f"[{index}]" if few and count > 1 else "posterior" if k == 0 else None
        color, width = (f"C{k}", 1.5) if few else ("C0", 0.7)
        margin = 0.25 * np.ptp(values)
        if margin > 1e-7:
            z = np.linspace(values.min() - margin, values.max() + margin, POINTS)
            x, density = np.exp(z), gaussian_kde(values)(z)
            ax.plot(x, density, color=color, lw=width, label=label)
            ax.fill_between(x, 0, density, color=color, alpha=0.2 if few else 0.05, lw=0)
        else:  # all draws are the same: a point
            ax.axvline(np.exp(values[0]), color=color, lw=width, label=label)
    _logarithmic_axis(ax, np.exp(low), np.exp(high))
    ax.set_ylim(0, 1.1 * ax.get_ylim()[1])  # room for the legend
    ax.set_yticks([])
    ax.set(xlabel=name, ylabel="density of the log")


def _span(columns: np.ndarray, wide: bool) -> tuple[float, float]:
    """Logarithms between which all draws are, with margins: beside a prior up to a factor of ten on each side."""
    low, high = columns.min(), columns.max()
    width = max(high - low, 0.02)
    margin = min(3 * width, np.log(10)) if wide else 0.25 * width
    return low - margin, high + margin


def _prior_densities(prior: Any, x: np.ndarray) -> np.ndarray:
    """Densities of the logarithm at x, (k, points), one for each different prior of an entry."""
    while isinstance(prior, (Independent, ExpandedDistribution, MaskedDistribution)):
        prior = prior.base_dist
    if prior.event_shape:
        raise ValueError(
            f"plot_hyperparameters: the prior {type(prior).__name__} has dependent entries. Pass the distribution of "
            "one entry."
        )
    points = jnp.broadcast_to(
        jnp.asarray(x, jnp.result_type(float)).reshape(-1, *[1] * len(prior.batch_shape)), (len(x), *prior.batch_shape)
    )
    # NumPyro's densities go on beyond the support.
    density = np.where(prior.support(points), np.exp(jax.vmap(prior.log_prob)(points)), 0.0)
    return np.unique(density.reshape(len(x), -1).T * x, axis=0)


def _logarithmic_axis(ax: Axes, low: float, high: float) -> None:
    """A logarithmic axis whose labels do not overlap, though it may span less than a decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    ax.set_xscale("log")
    ax.set_xlim(low, high)
    span = high / low
    subs = (1.0, 2.0, 5.0) if span < 20 else (1.0, 3.0) if span < 300 else (1.0,)
    locator = MaxNLocator(4) if span < 4 else LogLocator(subs=subs, numticks=5)
    ticks = np.array([tick for tick in locator.tick_values(low, high) if low <= tick <= high])
    ax.set_xticks(ticks, [f"{tick:.4g}".replace("e-0", "e-").replace("e+0", "e") for tick in ticks])
    ax.minorticks_off()
