"""Sparse Gaussian-process priors for NumPyro: compress rows once, then sample at a cost independent of their number."""

from . import models
from .bases.basis import Basis
from .bases.fourier import FourierBasis
from .bases.rotated import RotatedBasis
from .diagnostics.leave_one_out import leave_one_out
from .diagnostics.to_arviz import EXTRA_FIELDS, to_arviz
from .distributions.compressed_normal import CompressedNormal
from .distributions.sparse_gp import SparseGP
from .distributions.weight_posterior import weight_posterior
from .evidence import log_evidence
from .fit import EvidenceFit, fit_evidence
from .kernels import (
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from .predict import Prediction, predict
from .primitives import observe, observe_weights
from .priors import DiagonalPrior
from .statistics.from_data import ChunkError, sufficient_statistics
from .statistics.statistics import SufficientStatistics

__all__ = [
    "EXTRA_FIELDS",
    "Basis",
    "ChunkError",
    "CompressedNormal",
    "DiagonalPrior",
    "EvidenceFit",
    "FourierBasis",
    "Kernel",
    "Matern12",
    "Matern32",
    "Matern52",
    "Prediction",
    "RationalQuadratic",
    "RotatedBasis",
    "SparseGP",
    "SquaredExponential",
    "SufficientStatistics",
    "fit_evidence",
    "leave_one_out",
    "log_evidence",
    "models",
    "observe",
    "observe_weights",
    "predict",
    "sufficient_statistics",
    "to_arviz",
    "weight_posterior",
]
