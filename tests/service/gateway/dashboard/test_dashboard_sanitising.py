"""The page on which an admin sees how a sentence is sanitised."""

import html
import math
import re
from pathlib import Path

import pytest

from service.engines.embedding.embedder import Embedder
from service.operations.services import Services
from tests.service.conftest import serving
from tests.service.gateway.dashboard.dashboard_browser import HTMX, Browser, signed_in

pytestmark = pytest.mark.model

PUBLIC = [f"{question} {number}?" for number in range(60) for question in ("Who pays for repair", "Is a <cat> allowed")]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    folder = tmp_path_factory.mktemp("sanitising")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))
        (folder / "public.txt").write_text("\n".join(PUBLIC))
        texts = {"sanitizer_words": 300, "public_texts": folder / "public.txt"}
        return serving(folder, embedder=Embedder(), **texts)


def facts(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))


def moved(browser: Browser, text: str, epsilon: str, mechanism: str) -> str:
    """The part of the page that htmx gets when something is changed."""
    browser.services.sanitizers.prepare()
    data = {"text": text, "epsilon": epsilon, "mechanism": mechanism, "keep": ["stopwords", "x"]}
    page = browser.post("/sanitising", data, headers=HTMX).text
    assert not re.search("<html|<b>|<cat>", page)
    return page


def test_before_the_words_are_there(browser: Browser) -> None:
    assert "still being embedded" in browser.get("/sanitising").text
    browser.services.sanitizers.prepare()
    page = browser.get("/sanitising").text
    assert "My landlord in Boston" in page
    assert facts(page)["ε of a word, audited"] == "8"


def test_moving_epsilon(browser: Browser) -> None:
    """At ε = 16 the sentence's only word, a medoid, stays; at 0.5 it is as likely as others."""
    browser.services.sanitizers.prepare()
    word = browser.services.sanitizers.open("medoid_rr", 0.5, ["stopwords"]).served.channel.outputs[0]
    stays = {}
    for epsilon, taken in (("0.5", "0.5"), ("16", "16"), ("", "8")):
        page = moved(browser, f"The {word} {word.title()}, <b>!", epsilon, "nearest_rr")
        kept = re.search(rf'<th scope="row">{word.title()}</th><td class="number">([\d.]+) %', page)
        stays[epsilon] = float(kept[1])
        assert facts(page)["ε of a word, audited"] == taken
        assert facts(page)["Words replaced"] == "7 of 8 tokens"
    assert stays["0.5"] < 1 < 99 < stays["16"]


def test_an_epsilon_that_is_not_so_written_is_refused(browser: Browser) -> None:
    browser.services.sanitizers.prepare()
    for epsilon, way in (
        ("0,5", "write 0.5"),
        ("1_0", "write 10"),
        ("nan", "such as"),
        ("99", "from 0.5 to 16"),
        ("-1", "from 0.5 to 16"),
    ):
        page = moved(browser, "a lamp", epsilon, "nearest_rr")
        assert "Nothing was sanitised" in page
        assert way in page


def test_a_sentence_that_is_too_long_is_refused_whole(browser: Browser) -> None:
    page = moved(browser, "a lamp " * 144, "8", "nearest_rr")
    assert "Nothing was sanitised: the sentence has 1007 characters, and at most 1000 are shown here" in page


def test_whole_texts(browser: Browser) -> None:
    """At ε = 16 any public text can come out, nearly always the nearest; at 0.5 few, and an attacker can only guess."""
    found = {}
    for epsilon in ("0.5", "16"):
        page = moved(browser, PUBLIC[7], epsilon, "whole_rr")
        rows = re.findall(r'<th scope="row">(.*?)</th><td class="number">([\d.]+) %', page)
        assert {html.unescape(text) for text, _ in rows} <= set(PUBLIC)
        told = facts(page)
        assert "ε of a word, audited" not in told
        assert told["ε of the whole sentence, audited"] == epsilon
        assert told["It becomes the nearest text"] == f"{rows[0][1]} %"
        found[epsilon] = rows, float(told["An attacker guesses the nearest text"].split()[0])
    few, guess = found["0.5"]
    assert 2 <= len(few) < 20
    assert 100 / len(few) < guess < 100 * math.exp(0.5) / len(few)
    every, guess = found["16"]
    assert len(every) == 100
    assert "the first 100 of them" in page
    assert html.unescape(every[0][0]) == PUBLIC[7]
    assert guess == float(every[0][1]) > 99.9


def test_a_service_with_public_texts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "public.txt").write_text("\n".join(PUBLIC[:9]))
    browser = signed_in(serving(tmp_path, embedder=Embedder(), public_texts=tmp_path / "public.txt"))
    browser.services.sanitizers.prepare()
    page = browser.get("/sanitising").text
    assert re.findall(r'<option value="(\w+)"', page) == ["whole_rr"]
    assert "It becomes the nearest text" in facts(page)


def test_nothing_is_stored_and_nothing_quoted(browser: Browser, capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    browser.services.sanitizers.prepare()
    page = browser.post("/sanitising", {"text": "zebrafish", "epsilon": "4"}).text
    assert "zebrafish" in page
    assert browser.services.records.texts.cost("").texts == 0
    assert browser.services.records.texts.cost(browser.key.id).texts == 0
    assert "zebrafish" not in "".join(capfd.readouterr())


def test_the_page_is_in_the_menu_where_there_are_sanitisers(browser: Browser, tmp_path: Path) -> None:
    assert 'href="/admin/sanitising"' in browser.get("/").text
    other = signed_in(serving(tmp_path))
    assert 'href="/admin/sanitising"' not in other.get("/").text
    assert "DPICL_SANITIZER_WORDS" in other.get("/sanitising").text
