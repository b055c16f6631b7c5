"""Fuzzing: one target a format, each with its oracle; a small corpus; a runner with a fixed seed and number of runs.

`targets` names them. `tests/test_fuzz.py` replays the corpus and runs each target for a fixed budget; by hand and for
longer: ``cd tests && python -m fuzz.run text -runs=100000``.
"""
