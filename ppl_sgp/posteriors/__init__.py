"""What follows from draws: posteriors of the weights, predictions, leave-one-out, containers of ArviZ."""
