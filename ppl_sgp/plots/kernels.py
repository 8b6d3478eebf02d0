"""The posterior over kernels: covariances and spectra, draw by draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._axes import INTERVAL, QUANTILES, axes, finite, variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Draws shown as lines of their own, at most.
SHOWN_DRAWS = 30
#: Spectra are shown down to this share of the largest median.
FLOOR = 1e-6


def plot_kernel(kernels: Any, *, ax: Axes | None = None) -> Axes:
    """Draws of ``k(x₀, x₀ + τ)``: up to thirty of them thin, their pointwise median, and the central 90%.

    :param kernels: from :func:`~ppl_sgp.kernel_draws`, along one input: the others must not change.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes: lags in units of x, covariances in squared units of y.
    :raises ValueError: for another dataset, lags along several inputs, or values that are not finite.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(basis, X, y)
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> kernels = sgp.kernel_draws(sgp.models.fourier_gp(), draws, stats, lags=np.linspace(0, 1, 5))
        >>> ax = sgp.plots.plot_kernel(kernels, ax=Figure().subplots())
        >>> ax.get_legend_handles_labels()[1]
        ['central 90%', 'draws', 'median']
    """
    (covariance,) = variables(kernels, ("covariance",), "plot_kernel", "sgp.kernel_draws")
    covariance = finite("covariance", covariance, "plot_kernel")
    lags, along = _lags(kernels)
    ax = axes(ax)
    _draw_functions(ax, lags, covariance)
    ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    ax.set(xlabel=f"lag τ{along} [units of x]", ylabel="covariance k(x₀, x₀ + τ) [units of y, squared]")
    ax.legend(frameon=False)
    return ax


def plot_spectrum(kernels: Any, *, input: int | None = None, ax: Axes | None = None) -> Axes:
    """Prior variances at the spectral points of a Fourier basis: the spectrum as the finite basis has it.

    They add up to the variance of f. Where points are dense each has less, so they follow the spectral density over the
    density of points. Of one input draws are lines, as in :func:`plot_kernel`; of several, whose points differ in other
    coordinates too, medians are dots with bars for the central 90%. The axis ends at a millionth of the largest median.

    :param kernels: from :func:`~ppl_sgp.kernel_draws` for a :class:`~ppl_sgp.FourierBasis`.
    :param input: of several inputs, the one whose frequencies to show, from zero.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes: frequencies in cycles per unit of x, variances in squared units of y.
    :raises ValueError: for a dataset without spectrum, several inputs with none chosen, or values that are not finite
        and positive.

    .. doctest::

        >>> import numpy as np, xarray as xr, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> spectrum = np.exp(-np.outer([1.0, 2.0], np.arange(5)))
        >>> kernels = xr.Dataset({"spectrum": (("draw", "frequency"), spectrum)}, {"frequency": np.arange(5)})
        >>> ax = sgp.plots.plot_spectrum(kernels, ax=Figure().subplots())
        >>> ax.get_xlabel(), ax.get_yscale()
        ('frequency [cycles per unit of x]', 'log')
    """
    source = "sgp.kernel_draws for a FourierBasis"
    (spectrum,) = variables(kernels, ("spectrum",), "plot_spectrum", source)
    spectrum = finite("spectrum", spectrum, "plot_spectrum")
    if not (spectrum > 0).any():
        raise ValueError("plot_spectrum: `spectrum` is zero everywhere; look at the draws of the amplitude.")
    several = "wave_vector" in kernels.coords
    frequencies = np.abs(_frequencies(kernels, input) if several else kernels["frequency"].values)
    low, median, high = np.quantile(spectrum, QUANTILES, axis=0)
    bottom = max(FLOOR * (median.max() or high.max()), 0.5 * spectrum[spectrum > 0].min())
    ax = axes(ax)
    if several:
        ax.vlines(frequencies, low, high, color="C0", alpha=0.4, lw=1, label=f"central {INTERVAL:.0%}")
        ax.plot(frequencies, median, ".", color="C0", ms=5, label="median")
    else:
        _draw_functions(ax, frequencies, spectrum, marker=".")
    ax.set_yscale("log")
    ax.set_ylim(bottom, 2 * spectrum.max())
    last = frequencies[high > bottom].max()
    ax.set_xlim(-0.04 * last, 1.04 * last)
    along = f" of input {input}" if several else ""
    ax.set(xlabel=f"frequency{along} [cycles per unit of x]", ylabel="prior variance [units of y, squared]")
    ax.legend(frameon=False)
    return ax


def _draw_functions(ax: Axes, x: np.ndarray, draws: np.ndarray, marker: str = "") -> None:
    """Functions (draws, points) thin, with their median and central 90%, in ascending order of x."""
    order = np.argsort(x, kind="stable")
    x, draws = x[order], draws[:, order]
    low, median, high = np.quantile(draws, QUANTILES, axis=0)
    ax.fill_between(x, low, high, color="C0", alpha=0.25, lw=0, label=f"central {INTERVAL:.0%}")
    shown = np.linspace(0, len(draws) - 1, min(len(draws), SHOWN_DRAWS)).round().astype(int)
    lines = ax.plot(x, draws[shown].T, color="C0", alpha=0.35, lw=0.6)
    lines[0].set_label("draws")
    ax.plot(x, median, color="C0", lw=2, marker=marker, label="median")


def _lags(kernels: Any) -> tuple[np.ndarray, str]:
    """The lags, shape (t,), and along which input they are, in words."""
    if "displacement" not in kernels.coords:
        return kernels["lag"].values, ""
    displacement = kernels["displacement"].values
    moving = np.flatnonzero(np.ptp(displacement, axis=0) > 0)
    if len(moving) != 1:
        raise ValueError(
            f"plot_kernel: lags must go along one input; here {len(moving)} of {displacement.shape[1]} inputs change. "
            "Call `sgp.kernel_draws` with lags that are zero in all columns but one."
        )
    return displacement[:, moving[0]], f" along input {moving[0]}"


def _frequencies(kernels: Any, input: int | None) -> np.ndarray:
    """Of several inputs, the frequencies along the chosen one, shape (points,)."""
    wave_vector = kernels["wave_vector"].values
    if input not in range(wave_vector.shape[1]):
        raise ValueError(
            f"plot_spectrum: there are {wave_vector.shape[1]} inputs, and `input` is {input!r}. Choose the one whose "
            f"frequencies to show with `input=`, from 0 to {wave_vector.shape[1] - 1}."
        )
    return wave_vector[:, input]
