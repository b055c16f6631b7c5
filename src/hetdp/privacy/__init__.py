"""What protects people: the exact check, the noise, the release. A mistake here harms somebody."""
