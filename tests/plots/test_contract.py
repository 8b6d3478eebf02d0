"""What every plot does: draws an image, on the given axes or on new ones, and shows nothing."""

import importlib.util
import pkgutil
import sys
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import ppl_sgp as sgp
from ppl_sgp import plots

pytestmark = pytest.mark.float64_only

RNG = np.random.default_rng(0)
KERNELS = xr.Dataset(
    {
        "covariance": (("draw", "lag"), np.exp(-np.outer([1, 2, 3], np.linspace(0, 1, 7)))),
        "spectrum": (("draw", "frequency"), np.exp(-np.outer([1, 2, 3], np.linspace(0, 3, 5)))),
    },
    {"lag": np.linspace(0, 1, 7), "frequency": np.linspace(0, 3, 5)},
)
SUMMARY = xr.Dataset(
    {"relevance": ("feature", [0.1, 0.9]), "determined": ("feature", [0.3, 0.8])}
    | {"effective_number": ("draw", [1.0, 1.2])},
    {"feature": ["a", "b"]},
)
LEVELS = SimpleNamespace(levels=np.tile([-1.0, 0.0, 1.0], (4, 1)), probabilities=RNG.dirichlet(np.ones(3), 4))
BINS = xr.Dataset(
    {
        "accuracy": ("bin", [np.nan, 0.5, 0.8]),
        "confidence": ("bin", [np.nan, 0.6, 0.9]),
        "count": ("bin", [0, 10, 40]),
        "ece": 0.1,
    }
)
COUNTS = xr.Dataset(
    {"observed": ("count", [9.0, 4.0]), "expected": ("count", [8.0, 5.0]), "expected_sd": ("count", [2.0, 1.5])},
    {"count": [0, 1]},
)
GRID = xr.DataArray(RNG.uniform(size=(4, 3)), {"day": np.arange(4.0), "station": ["A", "B", "C"]}, name="y")


def regression():
    X = np.linspace(0, 1, 20)[:, None]
    y = X[:, 0] + 0.1 * RNG.normal(size=20)
    draws = {"noise_scale": np.linspace(0.08, 0.12, 30)}
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
    return sgp.posterior(sgp.models.reweighted_basis(scale=1.0), draws, stats), X, y


def predictive(ax):
    posterior, X, y = regression()
    return plots.plot_predictive(posterior.predict(X), X, X=X, y=y, ax=ax)


CASES = {
    "plot_predictive": predictive,
    "plot_hyperparameters": lambda ax: plots.plot_hyperparameters({"a": RNG.gamma(5.0, size=50)}, ax=ax),
    "plot_kernel": lambda ax: plots.plot_kernel(KERNELS, ax=ax),
    "plot_spectrum": lambda ax: plots.plot_spectrum(KERNELS, ax=ax),
    "plot_feature_weights": lambda ax: plots.plot_feature_weights(RNG.normal(size=(30, 5)), ax=ax),
    "plot_relevance": lambda ax: plots.plot_relevance(SUMMARY, ax=ax),
    "plot_input_relevance": lambda ax: plots.plot_input_relevance(
        RNG.gamma(5.0, size=(30, 2)), RNG.normal(size=(9, 2)), ax=ax
    ),
    "plot_pareto_k": lambda ax: plots.plot_pareto_k([0.1, 0.9], ax=ax),
    "plot_loo_pit": lambda ax: plots.plot_loo_pit(*regression(), bins=5, ax=ax),
    "plot_evidence": lambda ax: plots.plot_evidence([10, 20], [-5.0, -4.0], ax=ax),
    "plot_grid": lambda ax: plots.plot_grid(GRID.where(GRID > 0.2), gaps=GRID < 0.2, ax=ax),
    "plot_level_probabilities": lambda ax: plots.plot_level_probabilities(LEVELS, [0, 2], ax=ax),
    "plot_reliability": lambda ax: plots.plot_reliability(BINS, ax=ax),
    "plot_rootogram": lambda ax: plots.plot_rootogram(COUNTS, ax=ax),
    "plot_pit": lambda ax: plots.plot_pit(RNG.uniform(size=50), ax=ax),
    "plot_ranks": lambda ax: plots.plot_ranks(RNG.integers(0, 10, 50), 9, ax=ax),
}


def test_every_plot_has_a_case():
    assert set(CASES) == set(plots.__all__)


@pytest.mark.parametrize("name", CASES)
def test_draws_on_the_given_axes_alone(name):
    figure, (other, ax) = plt.subplots(1, 2)
    assert CASES[name](ax) is ax
    assert plt.get_fignums() == [figure.number] and not other.has_data()
    assert (ax.get_xlabel() and ax.get_ylabel()) or name in {"plot_relevance", "plot_input_relevance"}


@pytest.mark.parametrize("name", CASES)
def test_makes_an_image_of_one_axes(name, image):
    other, current = plt.subplots()
    ax = CASES[name](None)
    assert isinstance(ax, plt.Axes) and ax.figure is not other and not current.has_data()
    colour_bars = int(name in {"plot_grid", "plot_level_probabilities"})
    assert len(ax.figure.axes) == 1 + colour_bars and ax.has_data()
    image(ax)


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "ppl_sgp\[plots\]"'):
        plots.plot_evidence([10, 20], [-5.0, -4.0])


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(plots.__path__)])
def test_importing_plots_does_not_import_matplotlib(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = importlib.util.find_spec(f"ppl_sgp.plots.{name}")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))  # a copy: the module itself is imported
