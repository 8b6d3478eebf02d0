"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .quadruply import QuadruplyFit, quadruply
from .relevance import QuadruplyRelevanceVectors, relevance_vectors
from .result import StochasticFit, VariationalWeights
from .starting import starting_gp

__all__ = [
    "Batch",
    "DivergenceError",
    "QuadruplyFit",
    "QuadruplyRelevanceVectors",
    "RowBatches",
    "StochasticFit",
    "Training",
    "VariationalWeights",
    "quadruply",
    "relevance_vectors",
    "row_batches",
    "starting_gp",
    "train",
]
