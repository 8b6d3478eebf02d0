"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .result import VariationalWeights
from .svgp import svgp
from .svgp_fit import SVGPFit, VariationalPoints

__all__ = [
    "Batch",
    "DivergenceError",
    "RowBatches",
    "SVGPFit",
    "Training",
    "VariationalPoints",
    "VariationalWeights",
    "row_batches",
    "svgp",
    "train",
]
