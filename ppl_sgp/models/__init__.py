"""Ready NumPyro models: picklable callables of one argument, the statistics."""

from .basis_gp import BasisGP as BasisGP
from .basis_gp import basis_gp as basis_gp
from .fourier_gp import FourierGP as FourierGP
from .fourier_gp import fourier_gp as fourier_gp
from .reweighted_basis import FreeSpectrumGP as FreeSpectrumGP
from .reweighted_basis import ReweightedBasis as ReweightedBasis
from .reweighted_basis import free_spectrum_gp as free_spectrum_gp
from .reweighted_basis import reweighted_basis as reweighted_basis
