"""How good anything can be: certificates, exact optima, what a target error needs."""
