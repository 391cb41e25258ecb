"""The public candidate that covers released keywords best."""

from __future__ import annotations

from service.engines.covering import best_covering

TEXTS = (
    "Reset the router and wait.",
    "Restart the printer, then install its driver again.",
    "Restart the printer.",
    "Call the help desk about the router's password.",
)


def chosen(keywords, ordered=False, texts=TEXTS):
    return best_covering(texts, keywords, ordered)


def test_the_text_with_most_keywords_wins():
    assert chosen(["printer", "driver", "router"]) == TEXTS[1]


def test_words_are_read_as_keywords_are():
    assert chosen(["router", "password"]) == TEXTS[3]  # not "router's", which no keyword is spelt like
    assert chosen(["PRINTER"]) is None  # no spelling of a keyword: nothing covers it


def test_the_first_of_ranked_keywords_weighs_more_than_the_two_behind_it():
    keywords = ["wait", "driver", "install"]
    assert chosen(keywords, ordered=False) == TEXTS[1]
    assert chosen(keywords, ordered=True) == TEXTS[0]


def test_of_equals_the_text_with_fewer_other_words_wins_then_the_first():
    assert chosen(["restart", "printer"]) == TEXTS[2]
    assert chosen(["wait"], texts=("Wait for Ada.", "Wait for Bob.", "Please wait for Ada and Bob.")) == "Wait for Ada."


def test_a_keyword_given_twice_counts_once_at_its_first_place():
    assert chosen(["wait", "driver", "wait"], ordered=True) == TEXTS[0]
    assert chosen(["wait", "wait", "printer", "driver"]) == TEXTS[1]
    assert chosen(["wait", "wait", "wait", "restart", "printer"]) == TEXTS[2]


def test_keywords_that_no_text_covers_choose_none():
    assert chosen(["blue", "kettle"], ordered=True) is None
    assert chosen(["blue", "kettle"], texts=()) is None
