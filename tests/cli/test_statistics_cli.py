"""The commands of the statistics: what they print, what they refuse, in one line each."""

from __future__ import annotations

import io
import json

import pytest

import hetdp

TABLE = "id,age,job,eps\n" + "".join(
    f"p{i},{20 + i % 60},{('nurse', 'cook', 'pilot')[i % 3]},{(0.5, 1, 'inf')[i % 3]}\n" for i in range(900)
)
COMMANDS = {
    "mean": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100"],
    "sum": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100"],
    "proportion": ["--value", "job", "--missing", "midpoint", "--equals", "cook"],
    "count": ["--value", "job", "--missing", "midpoint", "--equals", "cook"],
    "histogram": ["--value", "job", "--categories", "nurse,cook"],
    "quantile": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100", "--q", "0.25,0.5"],
    "median": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100", "--within", "0.9"],
    "mode": ["--value", "age", "--edges", "0,30,60,100"],
    "variance": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100"],
    "std": ["--value", "age", "--missing", "midpoint", "--bounds", "0", "100"],
    "bounds": ["--value", "age", "--missing", "midpoint", "--outer", "0", "1e6"],
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_every_statistic_has_a_command(hetdp_command):
    out = hetdp_command("--help")[1]
    assert all(f"  {name}" in out for name in COMMANDS)
    forms = {"means", "mean_answered", "mean_by_group"}
    assert set(hetdp.statistics.STATISTICS) - forms <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_a_report_json_and_html(hetdp_command, table, tmp_path, name):
    words = [name, table, *COMMANDS[name], "--epsilon", "eps"]
    code, out, err = hetdp_command(*words)
    assert (code, err) == (0, "")
    assert "People      900" in out
    code, out, err = hetdp_command(*words, "--json")
    facts = json.loads(out)
    assert (code, err, facts["n"]) == (0, "", 900)
    assert "estimate" in facts or facts["results"]
    assert hetdp_command(*words, "-o", tmp_path / "report.html")[0] == 0
    assert "<table" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["histogram", "quantile", "variance", "mean"])
def test_a_command_draws_a_picture(hetdp_command, table, tmp_path, name):
    code = hetdp_command(name, table, *COMMANDS[name], "--epsilon", "eps", "--plot", tmp_path / "p.png")[0]
    assert (code, (tmp_path / "p.png").read_bytes()[:4]) == (0, b"\x89PNG")


def test_a_mode_has_no_picture_and_says_so_before_anything_is_released(hetdp_command, table, tmp_path):
    words = ("mode", table, *COMMANDS["mode"], "--epsilon", "eps")
    code, out, err = hetdp_command(*words, "--plot", tmp_path / "p.png")
    assert (code, out, "ask for a histogram" in err) == (2, "", True)
    assert not (tmp_path / "p.png").exists()
    with pytest.raises(hetdp.InputError, match="nothing to draw"):
        hetdp.mode(["a"] * 400, epsilon=1, categories=["a", "b"]).plot(tmp_path / "p.png")


@pytest.mark.parametrize("name", ["histogram", "median", "std", "count"])
def test_groups_of_a_public_column_have_an_answer_each(hetdp_command, table, name):
    words = [name, table, *COMMANDS[name], "--epsilon", "eps", "--by", "eps", "--public-column", "eps", "--json"]
    assert set(json.loads(hetdp_command(*words)[1])["groups"]) == {"0.5", "1", "inf"}


def test_a_tally_of_a_histogram_is_released_as_one_and_as_nothing_else(hetdp_command, table, tmp_path):
    words = ["tally", table, "--statistic", "histogram", *COMMANDS["histogram"], "--epsilon", "eps"]
    assert hetdp_command(*words, "-o", tmp_path / "a.tally")[0] == 0
    facts = json.loads(hetdp_command("histogram", tmp_path / "a.tally", "--json")[1])
    assert [row["name"] for row in facts["results"]] == ["nurse", "cook", "other"]
    code, _, err = hetdp_command("mean", tmp_path / "a.tally")
    assert (code, err) == (2, "hetdp: this is a tally for a histogram; use hetdp histogram\n")


def test_shares_on_the_simplex_are_not_below_0_and_add_up_to_1(hetdp_command, table):
    words = [
        "histogram",
        table,
        "--value",
        "job",
        "--categories",
        "nurse,cook,pilot,vet,poet",
        "--epsilon",
        "eps",
    ]
    shares = [row["estimate"] for row in json.loads(hetdp_command(*words, "--simplex", "--json")[1])["results"]]
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1, abs=1e-12)


def test_several_questions_share_everybodys_epsilon(hetdp_command, table, tmp_path):
    (tmp_path / "q.toml").write_text(
        '[age]\nstatistic = "mean"\nbounds = [0, 100]\nmissing = "none"\nshare = 2\n'
        '[job]\nstatistic = "histogram"\ncategories = ["nurse", "cook"]\n'
        '[old]\nstatistic = "quantile"\nvalue = "age"\nbounds = [0, 100]\nmissing = "estimate"\nq = 0.9\n',
        encoding="utf-8",
    )
    code, out, err = hetdp_command("ask", table, tmp_path / "q.toml", "--epsilon", "eps", "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["shares"] == {"age": 0.5, "job": 0.25, "old": 0.25}
    for row in facts["spent_together"]:
        assert row["epsilon"] == "inf" or row["spent"] <= row["epsilon"]
    assert "Question    old" in hetdp_command("ask", table, tmp_path / "q.toml", "--epsilon", "eps")[1]


WRONG = {
    "no categories": (["histogram", "--value", "job"], "needs categories"),
    "both": (
        ["histogram", "--value", "age", "--categories", "a", "--edges", "0,1"],
        "needs categories",
    ),
    "no bounds": (["median", "--value", "age", "--missing", "midpoint"], "a table needs --bounds"),
    "no value": (["histogram", "--categories", "a"], "a table needs --value"),
    "bins that are none": (
        ["mode", "--value", "age", "--bins", "ten", "--bounds", "0", "1"],
        "a whole number",
    ),
    "edges that fall": (["mode", "--value", "age", "--edges", "3,2"], "must rise"),
    "a quantile above 1": (
        ["quantile", "--value", "age", "--missing", "midpoint", "--bounds", "0", "1", "--q", "1.5"],
        "between 0 and 1",
    ),
    "a category twice": (["mode", "--value", "job", "--categories", "a,a"], "listed twice"),
    "a method of means": (
        ["histogram", "--value", "job", "--categories", "a", "--method", "ldpe"],
        "is for means",
    ),
    "a variance": (
        ["histogram", "--value", "job", "--categories", "a", "--variance", "1"],
        "is for means",
    ),
    "a column that is missing": (
        ["mode", "--value", "work", "--categories", "a"],
        "has no column 'work'",
    ),
    "ε as the value": (
        ["mode", "--value", "eps", "--categories", "1"],
        "cannot be the same column",
    ),
}


@pytest.mark.parametrize(("words", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(hetdp_command, table, words, says):
    code, out, err = hetdp_command(words[0], table, *words[1:], "--epsilon", "eps")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_plan_and_a_comparison_know_the_statistics(hetdp_command):
    tiers = ["--tier", "strict=0.05:5400", "--tier", "open=2:4600"]
    words = [*tiers, "--statistic", "histogram", "--categories", "a,b,c"]
    assert "3 categories and 'other'" in hetdp_command("plan", *words)[1]
    found = json.loads(hetdp_command("compare", *words, "--json")[1])
    assert {entry["method"] for entry in found["methods"]} >= {
        "adpm",
        "uniform",
        "proportional",
        "threshold",
        "splitting",
    }
    assert found["certificate"] is None
    assert "no certificate for this statistic" in hetdp_command("plan", *words)[1].replace("\n            ", " ")


def test_a_mean_finds_its_own_bounds_and_says_what_it_is_the_mean_of(hetdp_command, table):
    words = ["mean", table, "--value", "age", "--missing", "midpoint", "--epsilon", "eps", "--outer", "0", "1e6"]
    code, out, err = hetdp_command(*words)
    assert (code, err) == (0, "")
    assert out.startswith("Of          the mean of values clipped to [")
    facts = json.loads(hetdp_command(*words, "--share", "0.25", "--json")[1])
    assert (facts["bounds_found_with_share"], facts["share_of_epsilon"]) == ([0.25], 0.75)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("mean", ["--outer", "0", "9", "--bounds", "0", "9"], "leave out --bounds"),
        ("bounds", ["--outer", "0", "9", "--bounds", "0", "9"], "leave out --bounds"),
        ("mean", ["--outer", "0", "9", "--by", "job"], "leave out --by"),
        ("histogram", ["--outer", "0", "9", "--bins", "3"], "the bins of a histogram are public"),
        ("mean", ["--bounds", "0", "9", "--share", "0.1"], "only a release through a ledger takes --share"),
        ("bounds", [], "a table needs --outer"),
    ],
)
def test_options_of_private_bounds_that_do_not_fit_are_refused(hetdp_command, table, name, words, said):
    missing = () if name == "histogram" else ("--missing", "midpoint")
    code, _, err = hetdp_command(name, table, "--value", "age", *missing, "--epsilon", "eps", *words)
    assert code == 2
    assert said in err


def test_standard_input_cannot_be_read_twice(hetdp_command, table, monkeypatch):
    for name, code in (("mean", 2), ("bounds", 0)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
        found = hetdp_command(
            name, "-", "--value", "age", "--missing", "midpoint", "--epsilon", "eps", "--outer", "0", "1e6"
        )
        assert found[0] == code
        assert ("standard input can be read once" in found[2]) == (code == 2)


def test_a_variance_is_learned_from_a_table_as_in_python(hetdp_command, tmp_path):
    """The command was offered by --help and refused for every table."""
    path = tmp_path / "people.csv"
    path.write_text("income,eps\n" + "".join(f"{40 + i % 3},{(0.05, 1)[i % 2]}\n" for i in range(4000)))
    options = ["--value", "income", "--epsilon", "eps", "--bounds", "0", "100", "--missing", "none", "--json"]
    learned, plain = (
        json.loads(hetdp_command("mean", path, *options, *more)[1]) for more in (["--variance", "learn"], [])
    )
    assert learned["learning"]["spent"][1] > 0
    assert plain["learning"] is None
    narrow, wide = (found["interval"]["guaranteed"] for found in (learned, plain))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


@pytest.mark.parametrize("command", ["median", "quantile", "std"])
def test_private_bounds_are_taken_by_every_command_whose_function_takes_them(command, hetdp_command, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("income,eps\n" + "".join(f"{40_000 + 10 * i},{(0.5, 1)[i % 2]}\n" for i in range(4000)))
    options = ["--value", "income", "--epsilon", "eps", "--outer", "0", "1e7", "--missing", "none", "--json"]
    code, out, _ = hetdp_command(command, path, *options, *(["--q", "0.5"] if command == "quantile" else []))
    assert code == 0
    assert len(json.loads(out)["bounds_found_with_share"]) == 1
