"""What is decided from public facts alone: cells, the range of values, levels of ε, plans and their accuracy."""
