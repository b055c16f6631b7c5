"""What a newcomer types by mistake: no option is dropped without a word, and each message says what to write."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import hetdp

TABLE = "id,age,job,eps\n" + "".join(f"p{i},{20 + i % 60},{'ab'[i % 2]},{(0.5, 1, 2)[i % 3]}\n" for i in range(900))
MEAN = ("mean", "p.csv", "--value", "age", "--epsilon", "eps", "--missing", "none", "--bounds", 0, 100)
SHARE = ("proportion", "p.csv", "--value", "job", "--epsilon", "eps", "--missing", "none", "--equals", "a")
HISTOGRAM = ("histogram", "p.csv", "--value", "job", "--epsilon", "eps", "--categories", "a,b")
BOUNDS = ("bounds", "p.csv", "--value", "age", "--epsilon", "eps", "--outer", 0, 1000)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


DROPPED = {
    "a second value": ((*MEAN, "--value", "job"), "--value is given twice, and only one can count"),
    "a second method": ((*MEAN, "--method", "adpm", "--method", "uniform"), "--method is given twice"),
    "bounds of a share": ((*SHARE, "--bounds", 0, 1), "a proportion has no bounds; leave out --bounds"),
    "outer bounds of a share": ((*SHARE, "--outer", 0, 1), "a proportion has no bounds; leave out --outer"),
    "bounds of a planned share": (
        ("plan", "--tier", "a=1:99", "--statistic", "proportion", "--equals", "a", "--bounds", 0, 1),
        "a proportion does not take --bounds",
    ),
    "categories of a mean": ((*MEAN, "--categories", "a,b"), "need --private-group COL and --categories A,B,C, both"),
    "a group of no categories": ((*MEAN, "--private-group", "job"), "need --private-group COL and --categories A,B,C"),
    "bounds beside categories": ((*HISTOGRAM, "--bounds", 0, 9), "leave out the bounds: they go with bins alone"),
    "a public column alone": ((*MEAN, "--public-column", "job"), "--public-column goes with --by COL"),
    "people without a ledger": ((*MEAN, "--people", "source"), "only a release through a ledger takes --people"),
    "a drift of bounds": ((*BOUNDS, "--drift", 0.1), "leave out --drift"),
}


@pytest.mark.parametrize("case", DROPPED)
def test_an_option_without_effect_is_refused_before_anything_is_spent(case, table, hetdp_command):
    words, said = DROPPED[case]
    code, out, err = hetdp_command(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_switch_may_be_given_twice(table, hetdp_command):
    assert json.loads(hetdp_command(*MEAN, "--json", "--json")[1])["n"] == 900


@pytest.mark.parametrize(
    ("command", "hidden", "offered"),
    [
        ("mean", ["--simplex"], ["--bounds", "--outer", "--by"]),
        ("proportion", ["--simplex", "--bounds LO", "--outer LO"], ["--equals", "--by"]),
        ("histogram", ["--outer LO"], ["--simplex", "--bounds"]),
        ("bounds", ["--bounds LO", "--by", "--simplex", "--drift"], ["--outer"]),
    ],
)
def test_help_offers_no_option_that_the_command_refuses(command, hidden, offered, hetdp_command):
    said = hetdp_command(command, "--help")[1]
    assert [option for option in hidden if f"  {option}" in said] == []
    assert [option for option in offered if f"  {option}" not in said] == []


def test_a_ledger_charges_private_bounds_from_the_command_line(table, hetdp_command):
    """`hetdp mean --ledger --outer` sends people to this command, which asked for --outer although it was given."""
    assert hetdp_command("ledger", "init", "b.db")[0] == 0
    assert hetdp_command("ledger", "enroll", "b.db", "p.csv", "--person", "id", "--budget", "eps")[0] == 0
    words = ("--ledger", "b.db", "--person", "id", "--share", "0.5", "--release-id", "may", "--json")
    code, out, err = hetdp_command("bounds", "p.csv", "--value", "age", "--outer", 0, 1000, *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["ledger"]["release_id"] == "may"


def test_private_bounds_are_not_called_uncertain_and_say_how_they_are_used(table, hetdp_command):
    """The mark beside good bounds invited people to spend again; typed into --bounds they forget what they spent."""
    said = " ".join(hetdp_command(*BOUNDS)[1].split())
    assert "uncertain" not in said
    assert "Quantile in: the cells of the grid that hold the quantiles at 1/5 and 4/5" in said
    assert "do not type these into --bounds" in said
    assert "hetdp mean --outer" in said
    rows = json.loads(hetdp_command(*BOUNDS, "--json")[1])["results"]
    assert [row["uncertain"] for row in rows] == [False, False]


# ---------------------------------------------------------------------------------------------------------
# What a message says


def but(words, **given):
    """The words of a command with other values of some options."""
    found = list(words)
    for name, value in given.items():
        at = found.index(f"--{name}") + 1
        found[at : at + 1] = value if isinstance(value, list) else [value]
    return found


PLAN = ("plan", "--tier", "a=1:99")
SAID = {
    "bounds with a comma": ([*MEAN[:-3], "--bounds", "0,200000"], "got '0,200000'", "no separators of thousands"),
    "bounds with thousands": ([*MEAN[:-3], "--bounds", 0, "200,000"], "got '0 200,000'", "no separators of thousands"),
    "bounds in per cent": ([*MEAN[:-3], "--bounds", "0%", "100%"], "got '0% 100%'", "write plain numbers"),
    "bounds nobody knows": ([*MEAN[:-3], "--bounds", "private"], "got 'private'", "say --outer LO HI"),
    "a level in per cent": ((*MEAN, "--confidence", "95%"), "got '95%'", "as 0.95"),
    "within in per cent": (("median", *MEAN[1:], "--within", "95%"), "write one number, as 0.95 for 95%", "got '95%'"),
    "a share in per cent": ((*MEAN[:-3], "--outer", 0, 1000, "--share", "50%"), "write one number", "got '50%'"),
    "one map for all": ((*MEAN, "--map", "a=1,b=0"), "--map a=1 --map b=0", "repeat --map"),
    "a mistyped column": (
        (*MEAN, "--by", "job", "--public-column", "jbo"),
        "public_columns=['job'], --public-column job",
        "would be published",
    ),
    "all that is missing": (MEAN[:4], "a table needs --epsilon, --bounds, --missing", ""),
    "an error in per cent": ((*PLAN, "--bounds", 0, 1, "--target-error", "1%"), "in units of the values", "got '1%'"),
    "an error of a share": (
        (*PLAN, "--statistic", "proportion", "--equals", "a", "--target-error", 0.1),
        "a target is for a mean",
        "for a share say --bounds 0 1",
    ),
    "a decimal comma of ε": (but(MEAN, epsilon="comma"), "0,5 needs --decimal ','", "epsilon cannot be read in line 2"),
}


@pytest.mark.parametrize("case", SAID)
def test_a_message_names_what_was_typed_and_what_to_write(case, table, hetdp_command):
    words, *said = SAID[case]
    rows = TABLE.splitlines()
    (table / "p.csv").write_text("\n".join([f"{rows[0]},comma", *(f'{row},"0,5"' for row in rows[1:])]) + "\n")
    code, out, err = hetdp_command(*words)
    assert (code, out) == (2, "")
    assert [sentence for sentence in said if sentence not in err] == [], err


def test_a_file_with_semicolons_names_the_option(table, hetdp_command):
    (table / "p.csv").write_text(TABLE.replace(",", ";"))
    assert "--delimiter ';'" in hetdp_command(*MEAN)[2]


def test_if_everybody_was_dropped_the_message_says_why(table, hetdp_command):
    """With "drop" it is public who has a value, so this tells nothing; every other choice says nothing of cells."""
    code, _, err = hetdp_command(*but(MEAN, value="job", missing="drop"))
    assert (code, err) == (
        2,
        "hetdp: nobody is left: missing='drop' left out everybody, because no cell could be read\n",
    )


def test_a_check_names_why_cells_cannot_be_read(table, hetdp_command):
    said = " ".join(hetdp_command("check", "p.csv", "--value", "job", "--epsilon", "eps", "--bounds", 0, 9)[1].split())
    assert "--decimal and --thousands; %, currency signs and dates cannot be read" in said


def test_a_picture_is_there_although_nobody_reads_what_is_printed(table, hetdp_command, monkeypatch):
    """As in `hetdp mean … --plot p.png | head -0`: the picture was drawn after the report, and so never."""

    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("hetdp.cli.data.deliver", closed)
    assert hetdp_command(*MEAN, "--plot", "p.png")[0] == 1
    assert (table / "p.png").read_bytes()[:4] == b"\x89PNG"


# ---------------------------------------------------------------------------------------------------------
# In Python


@pytest.fixture
def ledger(table):
    with hetdp.Ledger.create(table / "b.db") as made:
        made.enroll("p.csv", person="id", budget="eps")
        yield made


HOW = {"value": "age", "bounds": (0, 100), "missing": "none", "person": "id", "release_id": "may", "share": 0.1}
IN_PYTHON = {
    "a delimiter": (
        {"delimiter": ";"},
        TypeError,
        r"Ledger.mean has no option 'delimiter'; say form=.*Form\(delimiter=",
    ),
    "an epsilon": ({"epsilon": "eps"}, TypeError, "a ledger knows everybody's ε: say spend=, share= or share_left="),
    "a misspelt option": ({"valeu": "x"}, TypeError, "Ledger.mean has no option 'valeu'; did you mean 'value'"),
    "a form that is a dict": ({"form": {"delimiter": ";"}}, hetdp.InputError, "form is a hetdp.sources.Form"),
}


@pytest.mark.parametrize("case", IN_PYTHON)
def test_a_ledger_answers_in_the_name_of_the_method_that_was_called(case, ledger):
    more, error, said = IN_PYTHON[case]
    with pytest.raises(error, match=said):
        ledger.mean("p.csv", **HOW, **more)


PEOPLE = pd.DataFrame({"age": [20.0, 40.0] * 50, "eps": [0.5] * 100})
AGE = {"value": "age", "bounds": (0, 100), "missing": "none"}
LEVELS = {0.1: 200, 1: 300}
MEAN_OF_AGE = hetdp.ask.mean(bounds=(0, 100))
FIRST_TRIES = {
    "both bounds and a statistic": (
        lambda: hetdp.plan(LEVELS, bounds=(0, 100), statistic=MEAN_OF_AGE),
        "a plan takes bounds or a statistic, not both",
    ),
    "the same in a comparison": (
        lambda: hetdp.compare(LEVELS, bounds=(0, 100), statistic=MEAN_OF_AGE),
        "a comparison takes bounds or a statistic, not both",
    ),
    "neither": (lambda: hetdp.plan(LEVELS), "a plan needs the public bounds"),
    "missing values in a plan": (
        lambda: hetdp.plan(LEVELS, bounds=(0, 1), missing="estimate"),
        r"it is part of the question: statistic=hetdp\.ask\.mean\(bounds=…, missing=…\)",
    ),
    "a column of epsilon itself": (
        lambda: hetdp.mean(PEOPLE, epsilon=PEOPLE.eps, **AGE),
        "epsilon=… is the name of its column, or one number for everybody .you passed a Series.",
    ),
    "tiers as epsilon": (
        lambda: hetdp.mean(PEOPLE, epsilon={"strict": 0.1}, **AGE),
        r"you passed a dict.*say what they mean: tiers=\{name: ε\}",
    ),
    "one epsilon as a text": (
        lambda: hetdp.mean(PEOPLE, epsilon="0.5", **AGE),
        "for one ε for everybody pass a number",
    ),
    "the same in memory": (lambda: hetdp.mean([1.0, 2.0], epsilon="0.5", bounds=(0, 9)), "pass a number, not a text"),
    "a total of rows": (
        lambda: hetdp.mean(PEOPLE, epsilon="eps", person="id", rows="sum", **AGE),
        "for a total of each person's rows add them up first, or release a sum through a ledger",
    ),
    "edges as bins": (lambda: hetdp.ask.histogram(bounds=(0, 2), bins=[0, 1, 2]), "of your own use edges="),
    "a mean without bounds": (
        lambda: hetdp.mean(PEOPLE, value="age", epsilon="eps", missing="none"),
        r"needs bounds=\(lo, hi\).*bounds='private' finds them .* outer=",
    ),
    "a sum without bounds": (
        lambda: hetdp.sum(PEOPLE, value="age", epsilon="eps", missing="none"),
        "needs bounds=.*bounds='private' finds them .* outer=",
    ),
    "a question that was not asked": (
        lambda: hetdp.ask(PEOPLE, {"income": MEAN_OF_AGE.of("age").saying(missing="none")}, epsilon="eps")["incme"],
        "there is no question 'incme'; the questions are 'income'",
    ),
    "a word as an epsilon to explain": (lambda: hetdp.explain("high"), "inf or public .got 'high'., as 0.5"),
}


@pytest.mark.parametrize("case", FIRST_TRIES)
def test_what_a_newcomer_tries_first_is_answered_with_the_way(case):
    call, said = FIRST_TRIES[case]
    with pytest.raises((hetdp.InputError, TypeError, KeyError), match=said) as refused:
        call()
    assert "tiers=" not in str(refused.value) or case == "tiers as epsilon" or "column" in case


def test_a_ledger_says_what_it_needs_and_that_it_takes_one_question(ledger):
    how = {name: x for name, x in HOW.items() if name != "release_id"}
    with pytest.raises(TypeError, match=r"Ledger\.mean needs release_id=…: a name that you choose"):
        ledger.mean("p.csv", **how)
    asked = {"person": "id", "release_id": "may", "share": 0.1}
    with pytest.raises(hetdp.InputError, match="one question a release; ask each by itself"):
        ledger.ask("p.csv", {"age": MEAN_OF_AGE}, **asked)
    with pytest.raises(hetdp.InputError, match=r"hetdp\.ask\.mean\(bounds=…\) \(got str\)"):
        ledger.ask("p.csv", "mean", **asked)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mean", "p.csv", "--seed", "1"), "a release takes no seed: whoever knows it could take the noise away"),
        (("explain", "high"), "epsilon must be a decimal number, inf or public (got 'high'), as 0.5"),
    ],
)
def test_the_command_line_says_what_python_says(words, said, hetdp_command):
    code, _, error = hetdp_command(*words)
    assert code == 2
    assert said in error
    assert "--tier" not in error


def test_a_result_that_was_stored_says_so_in_its_repr(ledger):
    first, again = ledger.mean("p.csv", **HOW), ledger.mean("p.csv", **HOW)
    assert (", stored)" in repr(first), ", stored)" in repr(again)) == (False, True)
    asked = hetdp.ask.mode(value="job", categories=["a", "b"])
    modes = [ledger.ask("p.csv", asked, person="id", share=0.1, release_id="mode") for _ in range(2)]
    assert [", stored)" in repr(mode) for mode in modes] == [False, True]


def test_a_plan_says_how_it_takes_people():
    frame = pd.DataFrame({"age": [1.0, 2.0], "eps": [0.5, 1.0]})
    tally = hetdp.read(frame, value="age", epsilon="eps", bounds=(0, 9), missing="none")
    said = r'counts \{ε: people\}, as df\["eps"\].value_counts\(\).to_dict\(\)'
    for call in (lambda: hetdp.plan(frame, bounds=(0, 1)), lambda: hetdp.plan(tally, bounds=(0, 1))):
        with pytest.raises(hetdp.InputError, match=said):
            call()
    with pytest.raises(TypeError, match=said):
        hetdp.plan(frame, epsilon="eps", bounds=(0, 1))
    counts = frame["eps"].value_counts().to_dict()
    assert hetdp.plan(counts, bounds=(0, 1)).n == hetdp.plan(tally.levels, bounds=(0, 1)).n == 2
