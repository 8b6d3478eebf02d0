"""Exact Gaussian processes on product grids with gaps: Kronecker algebra, solvers, evidences."""
