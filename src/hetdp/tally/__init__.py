"""The private half of the data: exact sums for each level of ε."""
