"""DIRECT: variational inference over weights on finite grids, with an exact ELBO (Evans 2022, chapter 7)."""

from .classifier import DiscreteClassifier, DiscreteClassPrediction
from .logistic import fit_logistic
from .network import fit_network
from .network_result import DiscreteNetwork, NetworkPrediction
from .placement import PlacedLevels, place_levels
from .problem import MixturePrior
from .quantize import QuantizedWeights
from .regression import fit
from .result import DiscreteFit, DiscretePrediction
from .stochastic import refine
from .svi import ExactELBO, guide_weights

__all__ = [
    "DiscreteClassPrediction",
    "DiscreteClassifier",
    "DiscreteFit",
    "DiscreteNetwork",
    "DiscretePrediction",
    "ExactELBO",
    "MixturePrior",
    "NetworkPrediction",
    "PlacedLevels",
    "QuantizedWeights",
    "fit",
    "fit_logistic",
    "fit_network",
    "guide_weights",
    "place_levels",
    "refine",
]
