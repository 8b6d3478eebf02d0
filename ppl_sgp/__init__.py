"""Sparse Gaussian-process priors for NumPyro: compress rows once, then sample at a cost independent of their number."""

from . import direct, models, plots
from .augment import Augmentation
from .averaging import AveragedPrediction, average_predictions
from .bases.basis import Basis
from .bases.centred import CentredBasis
from .bases.columns import SelectedColumns
from .bases.fourier import FourierBasis
from .bases.grid_eigen import GridEigenBasis
from .bases.interpolation import InterpolationBasis
from .bases.laplace import LaplaceBasis
from .bases.linear import LinearBasis
from .bases.nystrom import NystromBasis
from .bases.periodic import PeriodicBasis
from .bases.polynomial import PolynomialBasis
from .bases.rotated import RotatedBasis
from .bases.stack import StackedBasis, stack
from .bases.user import CallableBasis
from .continuation import continue_with
from .diagnostics.classification_calibration import calibrate_classification, predictive_entropy
from .diagnostics.kernel_draws import kernel_draws
from .diagnostics.kernel_error import kernel_error
from .diagnostics.leave_one_out import leave_one_out
from .diagnostics.marginal_likelihood import MarginalLikelihood, log_marginal_likelihood
from .diagnostics.regression_calibration import calibrate_regression
from .diagnostics.relevance_summary import relevance_summary
from .diagnostics.report import Report, report
from .diagnostics.simulation_based_calibration import posterior_sbc, rank_uniformity, simulation_based_calibration
from .diagnostics.to_arviz import EXTRA_FIELDS, to_arviz
from .distributions.compressed_normal import CompressedNormal
from .distributions.discrete_relaxation import DiscreteRelaxation
from .distributions.sparse_gp import SparseGP
from .distributions.weight_posterior import weight_posterior
from .evidence import evidence_cost, log_evidence
from .fit import EvidenceFit, fit_evidence
from .gibbs import StatisticsGibbs
from .kernels import (
    ArcCosine,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SquaredExponential,
)
from .latent import LatentGP, latent
from .predict import predict
from .prediction import Prediction
from .primitives import observe, observe_weights
from .priors import BlockPrior, DensePrior, DiagonalPrior, HouseholderPrior, KroneckerPrior, WeightPrior
from .relevance.classification import RelevanceClassifier, fit_relevance_classifier
from .relevance.fit import RelevanceVectors, fit_relevance_vectors
from .statistics.from_data import ChunkError, sufficient_statistics
from .statistics.sources import TableChunks, table_chunks
from .statistics.statistics import SufficientStatistics
from .whitening import whitened_weights

__all__ = [
    "EXTRA_FIELDS",
    "ArcCosine",
    "Augmentation",
    "AveragedPrediction",
    "Basis",
    "BlockPrior",
    "CallableBasis",
    "CentredBasis",
    "ChunkError",
    "CompressedNormal",
    "DensePrior",
    "DiagonalPrior",
    "DiscreteRelaxation",
    "EvidenceFit",
    "FourierBasis",
    "GridEigenBasis",
    "HouseholderPrior",
    "InterpolationBasis",
    "Kernel",
    "KroneckerPrior",
    "LaplaceBasis",
    "LatentGP",
    "Linear",
    "LinearBasis",
    "MarginalLikelihood",
    "Matern12",
    "Matern32",
    "Matern52",
    "NystromBasis",
    "Periodic",
    "PeriodicBasis",
    "Polynomial",
    "PolynomialBasis",
    "Prediction",
    "RationalQuadratic",
    "RelevanceClassifier",
    "RelevanceVectors",
    "Report",
    "RotatedBasis",
    "SelectedColumns",
    "SparseGP",
    "SquaredExponential",
    "StackedBasis",
    "StatisticsGibbs",
    "SufficientStatistics",
    "TableChunks",
    "WeightPrior",
    "average_predictions",
    "calibrate_classification",
    "calibrate_regression",
    "continue_with",
    "direct",
    "evidence_cost",
    "fit_evidence",
    "fit_relevance_classifier",
    "fit_relevance_vectors",
    "kernel_draws",
    "kernel_error",
    "latent",
    "leave_one_out",
    "log_evidence",
    "log_marginal_likelihood",
    "models",
    "observe",
    "observe_weights",
    "plots",
    "posterior_sbc",
    "predict",
    "predictive_entropy",
    "rank_uniformity",
    "relevance_summary",
    "report",
    "simulation_based_calibration",
    "stack",
    "sufficient_statistics",
    "table_chunks",
    "to_arviz",
    "weight_posterior",
    "whitened_weights",
]
