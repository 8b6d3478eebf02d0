"""Stochastic variational inference: for rows, or functions, too many for one pass of O(n m²)."""

from .batches import Batch, RowBatches, row_batches
from .driver import DivergenceError, Training, train
from .result import VariationalWeights

__all__ = ["Batch", "DivergenceError", "RowBatches", "Training", "VariationalWeights", "row_batches", "train"]
