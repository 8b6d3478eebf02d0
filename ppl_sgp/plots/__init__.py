"""Plots of matplotlib: an ``ax`` in, an ``ax`` out. None of them shows itself.

They need the extra ``plots``: ``pip install "ppl_sgp[plots]"``.
"""

from .calibration import plot_pit, plot_ranks, plot_reliability
from .counts import plot_rootogram
from .evidence import plot_evidence
from .grids import plot_grid
from .hyperparameters import plot_hyperparameters
from .kernels import plot_kernel, plot_spectrum
from .leave_one_out import plot_loo_pit, plot_pareto_k
from .levels import plot_level_probabilities
from .predictive import plot_predictive
from .relevance import plot_input_relevance, plot_relevance
from .weights import plot_feature_weights

__all__ = [
    "plot_evidence",
    "plot_feature_weights",
    "plot_grid",
    "plot_hyperparameters",
    "plot_input_relevance",
    "plot_kernel",
    "plot_level_probabilities",
    "plot_loo_pit",
    "plot_pareto_k",
    "plot_pit",
    "plot_predictive",
    "plot_ranks",
    "plot_relevance",
    "plot_reliability",
    "plot_rootogram",
    "plot_spectrum",
]
