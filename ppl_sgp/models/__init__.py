"""Ready NumPyro models: picklable callables of one argument, the statistics."""

from .fourier_gp import FourierGP as FourierGP
from .fourier_gp import fourier_gp as fourier_gp
