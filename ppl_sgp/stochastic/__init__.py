"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from ._quadruply import QuadruplyFit, quadruply
from ._svgp import svgp
from ._swsgp import SWSGPFit, swsgp
from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .neighbour_posterior import VariationalNeighbours
from .process import VariationalProcess
from .relevance import QuadruplyRelevanceVectors, relevance_vectors
from .result import StochasticFit, VariationalWeights
from .starting import starting_gp
from .svgp_fit import SVGPFit, VariationalPoints

__all__ = [
    "Batch",
    "DivergenceError",
    "QuadruplyFit",
    "QuadruplyRelevanceVectors",
    "RowBatches",
    "SVGPFit",
    "SWSGPFit",
    "StochasticFit",
    "Training",
    "VariationalNeighbours",
    "VariationalPoints",
    "VariationalProcess",
    "VariationalWeights",
    "quadruply",
    "relevance_vectors",
    "row_batches",
    "starting_gp",
    "svgp",
    "swsgp",
    "train",
]
