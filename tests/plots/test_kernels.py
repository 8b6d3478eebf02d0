"""Draws of kernels and spectra: what is drawn are their quantiles, over the right axis."""

import numpy as np
import pytest
import xarray as xr

from ppl_sgp.plots import plot_kernel, plot_spectrum

pytestmark = pytest.mark.float64_only

LAGS = np.array([0.4, 0.0, 0.1])
FREQUENCIES = np.array([3.0, 0.5, -1.0])


def kernels(rng, draws=101):
    decay = rng.uniform(1, 3, draws)[:, None]
    data = {"covariance": (("draw", "lag"), np.exp(-decay * LAGS))}
    data["spectrum"] = (("draw", "frequency"), np.exp(-decay * np.abs(FREQUENCIES)))
    return xr.Dataset(data, {"lag": LAGS, "frequency": FREQUENCIES})


def line(ax, label):
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return found.get_xdata(), found.get_ydata()


@pytest.mark.parametrize("plot, name", [(plot_kernel, "covariance"), (plot_spectrum, "spectrum")])
def test_draws_median_and_central_interval(rng, plot, name):
    dataset = kernels(rng)
    values = dataset[name].values
    where = LAGS if name == "covariance" else np.abs(FREQUENCIES)
    order = np.argsort(where)
    ax = plot(dataset)
    x, median = line(ax, "median")
    np.testing.assert_array_equal(x, where[order])
    np.testing.assert_allclose(median, np.median(values, axis=0)[order])
    (fill,) = [each for each in ax.collections if each.get_label() == "central 90%"]
    vertices = fill.get_paths()[0].vertices
    for position, column in zip(where, values.T, strict=True):
        ends = vertices[vertices[:, 0] == position, 1]
        np.testing.assert_allclose([ends.min(), ends.max()], np.quantile(column, [0.05, 0.95]))
    thin = np.array([each.get_ydata() for each in ax.lines if each.get_linewidth() < 0.7])
    assert thin.shape == (30, 3)  # at most thirty of 101, from first to last
    np.testing.assert_array_equal(thin[[0, -1]], values[[0, -1]][:, order])


def test_units_and_scales(rng):
    ax = plot_kernel(kernels(rng))
    assert ax.get_xlabel() == "lag τ [units of x]" and "[units of y, squared]" in ax.get_ylabel()
    ax = plot_spectrum(kernels(rng))
    assert ax.get_xlabel() == "frequency [cycles per unit of x]" and ax.get_yscale() == "log"
    assert "[units of y, squared]" in ax.get_ylabel()


def test_spectrum_shows_six_decades(rng):
    dataset = kernels(rng)
    dataset["spectrum"] = (("draw", "frequency"), np.tile([1e-30, 1.0, 1e-3], (101, 1)))
    low, high = plot_spectrum(dataset).get_ylim()
    np.testing.assert_allclose([low, high], [1e-6, 2.0])
    dataset["spectrum"] = (("draw", "frequency"), np.tile([0.0, 1.0, 1e-3], (101, 1)))
    np.testing.assert_allclose(plot_spectrum(dataset).get_ylim(), [0.5e-3, 2.0])


def several_inputs(rng, displacement):
    data = {"covariance": (("draw", "lag"), rng.uniform(size=(50, 3)))}
    data["spectrum"] = (("draw", "frequency"), rng.uniform(0.1, 1, size=(50, 2)))
    coords = {
        "displacement": (("lag", "input"), displacement),
        "wave_vector": (("frequency", "input"), [[1.0, -4.0], [2.0, 3.0]]),
    }
    return xr.Dataset(data, coords)


def test_several_inputs(rng, image):
    displacement = np.zeros((3, 2))
    displacement[:, 1] = LAGS
    dataset = several_inputs(rng, displacement)
    ax = plot_kernel(dataset)
    assert ax.get_xlabel() == "lag τ along input 1 [units of x]"
    np.testing.assert_array_equal(line(ax, "median")[0], np.sort(LAGS))
    ax = plot_spectrum(dataset, input=1)
    x, median = line(ax, "median")
    np.testing.assert_array_equal(x, [4.0, 3.0])
    np.testing.assert_allclose(median, np.median(dataset.spectrum, axis=0))
    ends = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(ends.T, np.quantile(dataset.spectrum, [0.05, 0.95], axis=0))
    assert ax.get_xlabel() == "frequency of input 1 [cycles per unit of x]"
    image(ax)


def test_refusals(rng):
    with pytest.raises(ValueError, match="2 of 2 inputs change.*zero in all columns but one"):
        plot_kernel(several_inputs(rng, rng.uniform(size=(3, 2))))
    with pytest.raises(ValueError, match="2 inputs, and `input` is None.*from 0 to 1"):
        plot_spectrum(several_inputs(rng, rng.uniform(size=(3, 2))))
    with pytest.raises(ValueError, match=r"without \['spectrum'\]"):
        plot_spectrum(kernels(rng).drop_vars("spectrum"))
    with pytest.raises(ValueError, match=r"sgp.kernel_draws returns it; got ndarray"):
        plot_kernel(LAGS)
    broken = kernels(rng)
    broken["covariance"][0, 0] = np.nan
    with pytest.raises(ValueError, match="1 of 303 that are not finite"):
        plot_kernel(broken)
    with pytest.raises(ValueError, match="zero everywhere"):
        plot_spectrum(0 * kernels(rng))
