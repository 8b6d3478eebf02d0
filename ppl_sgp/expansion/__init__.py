"""Log likelihoods expanded to second order in the weights: statistics for any likelihood."""
