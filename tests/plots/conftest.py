"""No plot shows itself, and no figure outlives its test."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _figures(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("a plot has shown itself")

    monkeypatch.setattr(plt, "show", refused)
    monkeypatch.setattr(plt.Figure, "show", refused)
    yield
    plt.close("all")


@pytest.fixture
def image(tmp_path):
    """Save the figure of some axes as an image, in which something must be drawn."""

    def save(ax):
        path = tmp_path / "plot.png"
        ax.figure.savefig(path, dpi=40)
        pixels = plt.imread(path)
        assert 0.005 < (pixels != pixels[0, 0]).any(axis=-1).mean() < 0.9

    return save
