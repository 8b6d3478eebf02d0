"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .neighbour_posterior import VariationalNeighbours
from .quadruply import QuadruplyFit, quadruply
from .result import StochasticFit, VariationalWeights
from .svgp import svgp
from .svgp_fit import SVGPFit, VariationalPoints
from .swsgp import SWSGPFit, swsgp

__all__ = [
    "Batch",
    "DivergenceError",
    "QuadruplyFit",
    "RowBatches",
    "SVGPFit",
    "SWSGPFit",
    "StochasticFit",
    "Training",
    "VariationalNeighbours",
    "VariationalPoints",
    "VariationalWeights",
    "quadruply",
    "row_batches",
    "svgp",
    "swsgp",
    "train",
]
