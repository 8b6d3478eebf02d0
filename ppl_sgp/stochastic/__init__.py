"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .neighbour_posterior import VariationalNeighbours
from .result import VariationalWeights
from .svgp import svgp
from .svgp_fit import SVGPFit, VariationalPoints
from .swsgp import SWSGPFit, swsgp

__all__ = [
    "Batch",
    "DivergenceError",
    "RowBatches",
    "SVGPFit",
    "SWSGPFit",
    "Training",
    "VariationalNeighbours",
    "VariationalPoints",
    "VariationalWeights",
    "row_batches",
    "svgp",
    "swsgp",
    "train",
]
