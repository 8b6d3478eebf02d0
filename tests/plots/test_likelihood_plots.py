"""Plots of predictions through a likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import ppl_sgp as sgp
from tests.posteriors.test_row_models import COUNTS, DRAWS, X, counts

pytestmark = pytest.mark.relaxed_promotion


@pytest.mark.slow
def test_bands_are_between_quantiles_of_y():
    posterior = sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS))
    grid = np.linspace(-1, 1, 5)[:, None]
    prediction = posterior.predict(grid)
    ax = sgp.plots.plot_predictive(prediction, grid, X=X, y=COUNTS, levels=[0.8], ax=Figure().subplots())
    low, high = prediction.quantiles([0.1, 0.9])
    vertices = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert vertices.min() == low.min() and vertices.max() == high.max()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), prediction.mean)
    with pytest.raises(ValueError, match="is of y, not of f"):
        sgp.plots.plot_predictive(prediction, grid, noise=False, ax=Figure().subplots())


def test_pit_values_have_a_histogram():
    posterior = sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS))
    ax = sgp.plots.plot_loo_pit(posterior, bins=10, ax=Figure().subplots())
    assert sum(bar.get_height() for bar in ax.patches[:10]) == len(COUNTS)
