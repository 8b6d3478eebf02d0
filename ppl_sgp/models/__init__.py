"""Ready NumPyro models: picklable callables of one argument, the statistics, or rows that are kept."""

from ._additive import AdditiveGP as AdditiveGP
from ._additive import additive as additive
from ._basis_gp import BasisGP as BasisGP
from ._basis_gp import basis_gp as basis_gp
from ._coregionalised import CoregionalisedGP as CoregionalisedGP
from ._coregionalised import coregionalised as coregionalised
from ._discrete_weights import DiscreteWeights as DiscreteWeights
from ._discrete_weights import discrete_weights as discrete_weights
from ._exact_gp import ExactGPModel as ExactGPModel
from ._exact_gp import exact_gp as exact_gp
from ._fourier_gp import FourierGP as FourierGP
from ._fourier_gp import fourier_gp as fourier_gp
from ._inducing_gp import InducingGPModel as InducingGPModel
from ._inducing_gp import inducing_gp as inducing_gp
from ._relevance_vector_classifier import RelevanceVectorClassifier as RelevanceVectorClassifier
from ._relevance_vector_classifier import relevance_vector_classifier as relevance_vector_classifier
from ._relevance_vector_machine import RelevanceVectorMachine as RelevanceVectorMachine
from ._relevance_vector_machine import relevance_vector_machine as relevance_vector_machine
from ._reweighted_basis import FreeSpectrumGP as FreeSpectrumGP
from ._reweighted_basis import ReweightedBasis as ReweightedBasis
from ._reweighted_basis import free_spectrum_gp as free_spectrum_gp
from ._reweighted_basis import reweighted_basis as reweighted_basis
from .kernel_model import KernelModel as KernelModel
from .part_priors import part_prior as part_prior
from .shrinkage import GammaPrecision as GammaPrecision
from .shrinkage import Horseshoe as Horseshoe
