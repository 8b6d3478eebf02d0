"""DIRECT: variational inference over weights on finite grids, with an exact ELBO (Evans 2022, chapter 7)."""

from .fit import fit
from .problem import MixturePrior
from .quantize import QuantizedWeights
from .result import DiscreteFit, DiscretePrediction

__all__ = ["DiscreteFit", "DiscretePrediction", "MixturePrior", "QuantizedWeights", "fit"]
