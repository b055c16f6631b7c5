"""One ledger has one head, through whatever link it is opened."""

from __future__ import annotations

import pytest

import hetdp
from hetdp.ledger import Ledger
from ledgers import PEOPLE, made
from ledgers import mean as ledger_mean


@pytest.mark.parametrize("through", ["link to the file", "link to its folder", "link to a link"])
def test_row_110_a_ledger_opened_through_a_link_has_the_same_head(through, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    with made(str(real / "b.db")) as ledger:
        ledger_mean(ledger, "first")
    if through == "link to its folder":
        (tmp_path / "link").symlink_to(real)
        link = tmp_path / "link" / "b.db"
    else:
        link = tmp_path / "b.db"
        link.symlink_to(real / "b.db")
        if through == "link to a link":
            (tmp_path / "second.db").symlink_to(link)
            link = tmp_path / "second.db"
    old = (real / "b.db").read_bytes()
    with Ledger(link) as ledger:
        ledger_mean(ledger, "second")
    assert {path.resolve() for path in tmp_path.rglob("*.head")} == {(real / "b.db.head").resolve()}
    (real / "b.db").write_bytes(old)
    for name in (real / "b.db", link):
        with pytest.raises(hetdp.HetdpError, match="old copy"):
            Ledger(name).close()


def test_row_110_control_a_head_file_that_was_named_is_that_file(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "b.db")
    with Ledger.create(tmp_path / "b.db", head_file=tmp_path / "elsewhere") as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, 1))
    with Ledger(tmp_path / "link.db", head_file=tmp_path / "elsewhere") as ledger:
        ledger_mean(ledger)
    assert {path.name for path in tmp_path.iterdir() if "head" in path.name or path.name == "elsewhere"} == {
        "elsewhere"
    }
