"""One file for each statistic."""
