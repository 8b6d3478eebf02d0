"""Sparse Gaussian-process priors for NumPyro: compress rows once, then sample at a cost independent of their number."""

from . import direct, likelihoods, models, plots, stochastic
from ._internal.blas import one_blas_thread
from ._internal.pytree import pytree_dataclass, static
from .bases.additive import additive_basis
from .bases.basis import Basis
from .bases.categorical import CategoricalBasis
from .bases.centred import CentredBasis
from .bases.columns import InputColumns, SelectedColumns
from .bases.constant import ConstantBasis
from .bases.feature_kernel import FeatureKernel
from .bases.fourier import FourierBasis
from .bases.functionals import DerivativeBasis, IntegralBasis
from .bases.grid_eigen import GridEigenBasis
from .bases.interpolation import InterpolationBasis
from .bases.laplace import LaplaceBasis
from .bases.linear import LinearBasis
from .bases.nystrom import NystromBasis
from .bases.periodic import PeriodicBasis
from .bases.polynomial import PolynomialBasis
from .bases.rotated import RotatedBasis
from .bases.stack import NamedStack, StackedBasis, stack
from .bases.table import TableBasis
from .bases.tensor import TensorBasis, tensor
from .bases.user import CallableBasis
from .diagnostics.classification_calibration import calibrate_classification, predictive_entropy
from .diagnostics.count_calibration import calibrate_counts
from .diagnostics.input_relevance import input_relevance
from .diagnostics.likelihood_calibration import likelihood_sbc
from .diagnostics.marginal_likelihood import MarginalLikelihood, log_marginal_likelihood
from .diagnostics.regression_calibration import calibrate_regression
from .diagnostics.relevance_summary import relevance_summary
from .diagnostics.report import Report, report
from .diagnostics.simulation_based_calibration import posterior_sbc, rank_uniformity, simulation_based_calibration
from .evidence import evidence_cost, log_evidence
from .evidence.inducing import inducing_evidence, inducing_upper_bound
from .evidence.inducing_blocks import cluster_rows
from .evidence.weight_posterior import weight_posterior
from .expansion.compressed_likelihood import CompressedLikelihood
from .grids.cross_validation import grid_cross_validation
from .grids.grid import Grid
from .grids.scattered import RowsSolution, solve_rows
from .grids.solution import GridEvidence, GridSolution, grid_evidence, solve_grid
from .grids.solver import GridSolver
from .inference.augmented_gibbs import AugmentedGibbs
from .inference.augmented_rows import AugmentedRows, augmented_rows
from .inference.compress_likelihood import compress_likelihood
from .inference.continuation import continue_with
from .inference.evidence_fit import EvidenceFit, fit_evidence
from .inference.gibbs import StatisticsGibbs
from .inference.gibbs_rows import GibbsRows
from .inference.inducing_fit import InducingFit, fit_inducing
from .inference.inducing_points import InducingPoints, select_inducing_points
from .inference.latent_rows import LatentRows, latent_rows
from .kernels import (
    ArcCosine,
    ArcSine,
    Categorical,
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OfColumns,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Spectral,
    SquaredExponential,
    Sum,
)
from .kernels.derivative import DerivativeKernel
from .placement.adaptive_features import AdaptedFeatures, adapt_features
from .placement.place import place
from .placement.placed import Placed, PlacementReport
from .posteriors.augmentation import Augmentation
from .posteriors.averaging import AveragedPrediction, average_predictions
from .posteriors.gradient import GradientPrediction, predict_gradient
from .posteriors.grid_prediction import GridPrediction, predict_grid
from .posteriors.held_out import leave_future_out, leave_groups_out
from .posteriors.importance import ImportanceWeights
from .posteriors.loading import load_posterior
from .posteriors.one_line import importance_weights, kernel_draws, kernel_error, leave_one_out, predict, to_arviz
from .posteriors.outcome_prediction import OutcomePrediction
from .posteriors.posterior import Posterior, posterior
from .posteriors.prediction import Prediction
from .posteriors.to_arviz import EXTRA_FIELDS
from .posteriors.variance_shares import variance_shares
from .priors import BlockPrior, DensePrior, DiagonalPrior, HouseholderPrior, KroneckerPrior, WeightPrior
from .relevance.classification import RelevanceClassifier, fit_relevance_classifier
from .relevance.fit import RelevanceVectors, fit_relevance_vectors
from .sites.compressed_normal import CompressedNormal
from .sites.discrete_relaxation import DiscreteRelaxation
from .sites.exact_gp import ExactGP
from .sites.explicit_likelihood import ExplicitLikelihood, ExplicitRows, explicit_model, explicit_rows
from .sites.grid_gp import GridGP
from .sites.grouped_gp import GroupedGP
from .sites.inducing_gp import InducingGP
from .sites.latent import LatentGP, latent
from .sites.observe import observe, observe_exact, observe_grid, observe_groups, observe_inducing, observe_weights
from .sites.sparse_gp import SparseGP
from .sites.whitening import whitened_weights
from .statistics.checkpoint import CheckpointError
from .statistics.from_data import ChunkError, sufficient_statistics
from .statistics.grouped import GroupedStatistics, grouped_statistics, output_statistics
from .statistics.groups import stack_statistics
from .statistics.kept_rows import ChunkedRows, Rows, SpreadRows, rows
from .statistics.statistics import SufficientStatistics
from .tables.chunks import TableChunks, table_chunks
from .tables.recipe import Recipe, recipe

__version__ = "0.1.0"

__all__ = [
    "EXTRA_FIELDS",
    "AdaptedFeatures",
    "ArcCosine",
    "ArcSine",
    "Augmentation",
    "AugmentedGibbs",
    "AugmentedRows",
    "AveragedPrediction",
    "Basis",
    "BlockPrior",
    "CallableBasis",
    "Categorical",
    "CategoricalBasis",
    "CentredBasis",
    "CheckpointError",
    "ChunkError",
    "ChunkedRows",
    "CompressedLikelihood",
    "CompressedNormal",
    "Constant",
    "ConstantBasis",
    "DensePrior",
    "DerivativeBasis",
    "DerivativeKernel",
    "DiagonalPrior",
    "DiscreteRelaxation",
    "EvidenceFit",
    "ExactGP",
    "ExplicitLikelihood",
    "ExplicitRows",
    "FeatureKernel",
    "FourierBasis",
    "GibbsRows",
    "GradientPrediction",
    "Grid",
    "GridEigenBasis",
    "GridEvidence",
    "GridGP",
    "GridPrediction",
    "GridSolution",
    "GridSolver",
    "GroupedGP",
    "GroupedStatistics",
    "HouseholderPrior",
    "ImportanceWeights",
    "InducingFit",
    "InducingGP",
    "InducingPoints",
    "InputColumns",
    "IntegralBasis",
    "InterpolationBasis",
    "Kernel",
    "KroneckerPrior",
    "LaplaceBasis",
    "LatentGP",
    "LatentRows",
    "Linear",
    "LinearBasis",
    "MarginalLikelihood",
    "Matern12",
    "Matern32",
    "Matern52",
    "NamedStack",
    "NystromBasis",
    "OfColumns",
    "OutcomePrediction",
    "Periodic",
    "PeriodicBasis",
    "Placed",
    "PlacementReport",
    "Polynomial",
    "PolynomialBasis",
    "Posterior",
    "Prediction",
    "Product",
    "RationalQuadratic",
    "Recipe",
    "RelevanceClassifier",
    "RelevanceVectors",
    "Report",
    "RotatedBasis",
    "Rows",
    "RowsSolution",
    "SelectedColumns",
    "SparseGP",
    "Spectral",
    "SpreadRows",
    "SquaredExponential",
    "StackedBasis",
    "StatisticsGibbs",
    "SufficientStatistics",
    "Sum",
    "TableBasis",
    "TableChunks",
    "TensorBasis",
    "WeightPrior",
    "adapt_features",
    "additive_basis",
    "augmented_rows",
    "average_predictions",
    "calibrate_classification",
    "calibrate_counts",
    "calibrate_regression",
    "cluster_rows",
    "compress_likelihood",
    "continue_with",
    "direct",
    "evidence_cost",
    "explicit_model",
    "explicit_rows",
    "fit_evidence",
    "fit_inducing",
    "fit_relevance_classifier",
    "fit_relevance_vectors",
    "grid_cross_validation",
    "grid_evidence",
    "grouped_statistics",
    "importance_weights",
    "inducing_evidence",
    "inducing_upper_bound",
    "input_relevance",
    "kernel_draws",
    "kernel_error",
    "latent",
    "latent_rows",
    "leave_future_out",
    "leave_groups_out",
    "leave_one_out",
    "likelihood_sbc",
    "likelihoods",
    "load_posterior",
    "log_evidence",
    "log_marginal_likelihood",
    "models",
    "observe",
    "observe_exact",
    "observe_grid",
    "observe_groups",
    "observe_inducing",
    "observe_weights",
    "one_blas_thread",
    "output_statistics",
    "place",
    "plots",
    "posterior",
    "posterior_sbc",
    "predict",
    "predict_gradient",
    "predict_grid",
    "predictive_entropy",
    "pytree_dataclass",
    "rank_uniformity",
    "recipe",
    "relevance_summary",
    "report",
    "rows",
    "select_inducing_points",
    "simulation_based_calibration",
    "solve_grid",
    "solve_rows",
    "stack",
    "stack_statistics",
    "static",
    "stochastic",
    "sufficient_statistics",
    "table_chunks",
    "tensor",
    "to_arviz",
    "variance_shares",
    "weight_posterior",
    "whitened_weights",
]
