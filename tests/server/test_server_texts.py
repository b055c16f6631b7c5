"""The words on the pages: one catalogue a language, all with the same keys; none in a template or a script."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest
from starlette.requests import Request

import hetdp.server
from hetdp.server import texts

SERVER = Path(hetdp.server.__file__).parent
LANGUAGES = texts.languages()
ENGLISH = LANGUAGES["en"].catalogue
# Keys that are put together where they are used, by how they begin.
MADE = (
    "error.",
    "rule.",
    "event.",
    "phase.",
    "limit.",
    "meaning.",
    "explore.",
    "invite.",
    "status.",
    "about.each-",
    "about.deleted-",
    "import.same-",
    "result.of-",
)
OTHERS = sorted(set(LANGUAGES) - {"en"})


def places(text):
    """The facts that a text has places for."""
    return sorted(name for _, name, _, _ in Formatter().parse(text) if name is not None)


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_has_the_same_keys(language):
    assert set(LANGUAGES[language].catalogue) == set(ENGLISH)


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_has_the_same_places_in_every_language(language):
    other = LANGUAGES[language].catalogue
    assert {key: places(other[key]) for key in other} == {key: places(ENGLISH[key]) for key in ENGLISH}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_empty_or_left_in_english(language):
    catalogue = LANGUAGES[language].catalogue
    assert [key for key, text in catalogue.items() if not text.strip()] == []
    same = {key for key in catalogue if catalogue[key] == ENGLISH[key] and len(ENGLISH[key].split()) > 3}
    assert language == "en" or same == set()


def sources(*patterns):
    return {
        path.name: path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(SERVER.glob(pattern))
    }


def test_every_key_is_used():
    text = "\n".join(sources("*.py", "templates/*.html", "static/*.js").values())
    quoted = set(re.findall(r"""["'`]([\w.'-]+)["'`]""", text))
    stems = {key.removesuffix(".one").removesuffix(".other"): key for key in ENGLISH}
    made = (*MADE, "format.", "language.", "script.new.", "script.answer.")
    assert [key for stem, key in stems.items() if stem not in quoted and not key.startswith(made)] == []


def test_every_key_that_is_named_exists():
    text = "\n".join(sources("pages.py", "templates/*.html").values())
    named = set(re.findall(r"""\bt\(["']([\w.-]+)["']""", text))
    counted = set(re.findall(r"""\bt\.count\(["']([\w.-]+)["']""", text))
    script = "\n".join(sources("static/*.js").values())
    named |= set(re.findall(r"""\bword\(["']([\w.-]+)["']""", script))
    counted |= set(re.findall(r"""\bcounted\(["']([\w.-]+)["']""", script))
    assert named | counted
    named = {key for key in named if not key.endswith(("-", "."))}  # the end of such a key is put to it
    missing = named - set(ENGLISH) | {key for key in counted if not {f"{key}.one", f"{key}.other"} <= set(ENGLISH)}
    assert missing == set()


def test_every_event_and_every_refusal_has_its_words():
    """What the log and an error say by a code is in the catalogues; what is wrong with a file the API alone can say."""
    text = "\n".join(sources("*.py").values())
    events = {f"event.{event.replace(' ', '-')}" for event in re.findall(r"""\.note\(\s*["]([^"]+)["]""", text)}
    codes = {f"error.{code}" for code in re.findall(r"""RefusedError\(\s*\d+,\s*"([\w-]+)""", text)} - {"error.rows"}
    codes -= {"error.host", "error.origin"}  # for the log alone: the answer is the same for both
    assert "event.restored-from-a-backup" in events
    assert "error.importing" in codes
    assert (events | codes) - set(ENGLISH) == set()


def test_a_script_is_given_the_words_that_it_uses():
    """A page gives its scripts the words under their own name; what all scripts share has that of the API."""
    for name, script in sources("static/*.js").items():
        own = {f"script.{name.removesuffix('.js')}.", "script.api."}
        for key in re.findall(r"""["'`](script\.[\w-]+\.)""", script):
            assert key in own, f"{name} uses {key}"


# ---------------------------------------------------------------------------------------------------------
# No words outside of the catalogues

NO_WORDS = {"hetdp", "ε", "×", "·", "–", "±", "%", "→"}


def words_in_template(html):
    """The words of a template that are shown to people and are in no catalogue."""
    html = re.sub(r"\{#.*?#\}|<script[^>]*>.*?</script>|\{% block page %\}\w*", " ", html, flags=re.DOTALL)
    html = re.sub(r"\{%.*?%\}", " ", html, flags=re.DOTALL)
    html = re.sub(r"\{\{.*?\}\}", " ", html, flags=re.DOTALL)
    shown = re.findall(r"""\b(?:aria-label|placeholder|title|alt|aria-valuetext)=["']([^"']*)["']""", html)
    shown += [re.sub(r"<[^>]*>", " ", html)]
    return [word for text in shown for word in re.findall(r"[^\W\d_]{2,}", text) if word not in NO_WORDS]


def words_in_script(script):
    """The texts of a script that look like a sentence."""
    script = re.sub(r"(?m)^\s*//.*$|\s// .*$", "", script)
    found = re.findall(r'"([^"\n]*)"|`([^`]*)`', script)
    said = [re.sub(r"\$\{[^}]*\}", "", one or other) for one, other in found]
    return [text for text in said if re.search(r"\b[A-Z][a-z]+ [a-z]+|[a-z]{2,} [a-z]{2,}[.…:]", text)]


@pytest.mark.parametrize("name", sorted(path.name for path in SERVER.glob("templates/*.html")))
def test_a_template_has_no_words_of_its_own(name):
    assert words_in_template((SERVER / "templates" / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", sorted(path.name for path in SERVER.glob("static/*.js")))
def test_a_script_has_no_words_of_its_own(name):
    assert words_in_script((SERVER / "static" / name).read_text(encoding="utf-8")) == []


def test_control_words_in_a_template_or_a_script_are_found():
    assert words_in_template('<p title="Nothing here">{{ t("x") }} Some words</p>') == [
        "Nothing",
        "here",
        "Some",
        "words",
    ]
    assert words_in_script('say("The answer was deleted.");') == ["The answer was deleted."]
    assert words_in_script("say(`You have ${n} links.`);") == ["You have  links."]


# ---------------------------------------------------------------------------------------------------------
# Numbers, dates, and which language is taken


def test_numbers_and_dates_are_written_as_the_language_does():
    english, german = LANGUAGES["en"], LANGUAGES["de"]
    assert (english.whole(12345), german.whole(12345)) == ("12,345", "12.345")
    assert (english.plain(7.5), german.plain(7.5)) == ("7.5", "7,5")
    assert (english.spent(0.123411), german.spent(0.123411)) == ("0.1235", "0,1235")
    assert (english.left(0.123999), english.left(0), english.left("inf")) == ("0.1239", "0", "∞")
    assert (english.spent(2e-9), german.spent(2e-9), english.left(2e-9)) == ("0.000001", "0,000001", "0")
    assert "15 Jan 2027, 08:00 UTC" in english.when(1_800_000_000)
    assert "15. Januar 2027, 08:00 Uhr UTC" in german.when(1_800_000_000)


def test_a_fact_is_escaped_and_one_is_not_many():
    german = LANGUAGES["de"]
    assert "<b>" not in german("answer.by", institute="<b>us</b>")
    assert german.count("studies.people", 1) == "1 Person"
    assert german.count("studies.people", 2000) == "2.000 Personen"


def asked(cookie="", accept=""):
    headers = [(b"cookie", cookie.encode()), (b"accept-language", accept.encode())]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(
    ("cookie", "study", "accept", "expected"),
    [
        ("", None, "", "en"),
        ("", None, "fr, de-AT;q=0.8, en;q=0.5", "de"),
        ("", "de", "en", "de"),
        ("hetdp_language=en", "de", "de", "en"),
        ("hetdp_language=../../x", None, "de", "de"),
        ("", "xx", "xx", "en"),
    ],
)
def test_the_language_is_the_readers_choice_or_the_studys_or_the_browsers(cookie, study, accept, expected):
    assert texts.chosen(asked(cookie, accept), study).language == expected


def test_an_error_without_its_facts_is_as_the_api_says_it():
    german = LANGUAGES["de"]
    assert german.said("error.too-few", "Too few.", n=3, fewest=5).startswith("Zu wenige Personen, die zählen: 3.")
    assert german.said("error.too-few", "Too few.") == "Too few."
    assert german.said("error.unknown-code", "As it is.") == "As it is."


@pytest.mark.parametrize("name", ["ε = 1.2.3", "ε = ٣", "ε = 5 to <b>x", "ε = ", "ε = 1 to ", "Standard"])
def test_a_name_that_a_curator_gave_stays_as_it_is(name):
    """Names that looked like levels of the server's own broke the results page for good."""
    assert [LANGUAGES[language].level(name) for language in ("en", "de")] == [name] * 2


def test_control_a_level_that_nobody_named_is_written_in_the_language_of_the_page():
    assert LANGUAGES["de"].level("ε = 0.12341 to 3") == "ε = 0,1235 bis 3"
