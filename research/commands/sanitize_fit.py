"""``dpicl sanitize fit``: RANTEXT's constants for an embedder, beside those that its code has for another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

from sanitization import attacks
from sanitization.audit import audit
from sanitization.published import rantext_fit
from sanitization.published.rantext import PRINTED, Constants, RanText, rate
from sanitization.vocabulary import Vocabulary
from service.cli.output import Json, print_json, print_table, waiting
from service.cli.sanitize import Words

_NOMINAL = list(rantext_fit.TARGETS)


def fit(
    nominal: Annotated[list[float], typer.Option(min=0)] = _NOMINAL,
    word: Annotated[str, typer.Option("--token")] = rantext_fit.WORD,
    *,
    words: Words,
    json: Json = False,
) -> None:
    """Fit RANTEXT's constants to the words' vectors, by the paper's own rule.

    The list of one word is to have at most 5 % of all words with the probabilities of the paper's table XI. Printed
    are the constants, and what the mechanism is with them and with the paper's, as published: its true ε over known
    words, and attacks by enumeration over the 1,500 most frequent words.

    Args:
        nominal: ε of the paper's formulas.
        word: Word whose list is looked at.
    """
    with waiting("Drawing lists around every word"):
        vocabulary = words.vocabulary()
        found = rantext_fit.fit(vocabulary, word)
        rows = [
            _row(name, constants, vocabulary, word, epsilon)
            for epsilon in nominal
            for name, constants in (("as printed", PRINTED), ("fitted", found.constants))
        ]
    constants = {"as printed": PRINTED._asdict(), "fitted": found.constants._asdict()}
    if json:
        print_json({"words": len(vocabulary), "word": word, "constants": constants, "rows": rows})
        return
    print_table(
        "Z(ε) = a·ln(b·ε + c) + d, for ε from 2",
        ["constants", *Constants._fields],
        [(name, *(f"{value:.6g}" for value in values.values())) for name, values in constants.items()],
    )
    percent = ("list", "kept", "inversion", "bayes")
    print_table(
        f"As published, {len(vocabulary):,} words; in %, but ε and Z",
        ["ε", "constants", "Z", "median list", "kept", "near 10", "Bayes", "true ε"],
        [
            (
                f"{row['nominal']:g}",
                row["constants"],
                f"{row['rate']:.3f}",
                *(f"{100 * row[c]:.1f}" for c in percent),
                f"{row['true_epsilon']:.2f}",
            )
            for row in rows
        ],
        unbroken=["ε", "constants", "Z"],
    )


def _row(name: str, constants: Constants, vocabulary: Vocabulary, word: str, epsilon: float) -> dict[str, Any]:
    channel = RanText(vocabulary, epsilon, constants=constants)
    radii, chances = channel.radii
    middle = radii[np.searchsorted(np.cumsum(chances), 0.5)]
    near = vocabulary.distances(np.array([vocabulary.index[word]]))[0] < middle
    return {
        "nominal": epsilon,
        "constants": name,
        "rate": rate(epsilon, constants),
        "list": float(near.mean()),
        "true_epsilon": audit(channel).epsilon,
        **asdict(attacks.attack(channel, vocabulary)),
    }
