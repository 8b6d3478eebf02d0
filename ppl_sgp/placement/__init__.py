"""From rows to a basis that knows the kernel: hyperparameters from some rows, a basis, statistics and a model."""
