"""The page "How near to the best possible" says what its command prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-near.md").read_text(encoding="utf-8")


def command():
    spec = importlib.util.spec_from_file_location("nearness", ROOT / "bench" / "nearness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_rows_of_the_page_for_few_people_are_what_the_command_prints():
    near = command()
    for n in (10, 100):
        for name, levels in near.populations(n).items():
            assert near.row(name, levels) in PAGE


def rows():
    """The numbers of people and the last ratio of each row of the first table."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 7 and cells[1].replace(",", "").isdigit():
            yield int(cells[1].replace(",", "")), float(cells[5])


def test_the_best_method_is_within_a_tenth_of_the_best_possible_from_a_hundred_people_on():
    found = list(rows())
    assert sorted({n for n, _ in found}) == list(command().SIZES)
    assert len(found) == 16
    assert all(ratio <= (1.25 if n == 10 else 1.10) for n, ratio in found)


def test_the_populations_of_the_scan_are_read_back_as_they_were_written():
    near = command()
    assert near.exactly("4 at 0.5 + 1 at 2") == near.exactly("4 at 0.500 + 1 at 2.00")
    assert near.exactly("500 at 0.1 + 500 at 1") == "too many people"
