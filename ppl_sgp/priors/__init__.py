"""Gaussian priors over the weights of a basis, ``w ~ N(μ, S⁻¹)``, one structure of S a file."""

from .block import BlockPrior
from .dense import DensePrior
from .diagonal import DiagonalPrior
from .householder import HouseholderPrior
from .kronecker import KroneckerPrior
from .prior import WeightPrior

__all__ = ["BlockPrior", "DensePrior", "DiagonalPrior", "HouseholderPrior", "KroneckerPrior", "WeightPrior"]
