"""`make bench`: the training speed of this machine, as ratios to references measured alternately in one run."""
