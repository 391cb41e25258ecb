"""Let Presidio replace what it finds by public values: ``pip install presidio-anonymizer``.

The operator ``dp_sanitize`` replaces each find by one draw from a public list, so its length does not show, and it
costs ε once for each mention. What the analyzer does not find stays as it is. See docs/sanitization.md.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import InvalidParamError, OperatorConfig, RecognizerResult
from presidio_anonymizer.operators import Operator, OperatorType

from sanitization.mechanisms import Served, serve
from sanitization.vocabulary import Vocabulary
from service.engines.embedding.words import EmbeddedOnDemand, cache_folder

_embed = EmbeddedOnDemand()


class DpSanitize(Operator):
    """An operator for :meth:`presidio_anonymizer.AnonymizerEngine.add_anonymizer`.

    Params:
        values: the public list that replacements come from, such as well-known cities; at least two.
        epsilon: audited, at most; 8 unless set.
        mechanism: ``medoid_rr`` unless set.
        remembered: a dictionary of the caller's: what is in it is not drawn again, and costs nothing more.
    """

    def operate(self, text: str, params: dict[str, Any] | None = None) -> str:
        """A value near the text, more likely than others."""
        given = params or {}
        remembered, key = given.get("remembered", {}), (given.get("entity_type"), text)
        if key not in remembered:
            remembered[key] = _served(given).replace([text], _embed)[0]
        return remembered[key]

    def validate(self, params: dict[str, Any] | None = None) -> None:
        """Open the channel.

        Raises:
            InvalidParamError: there is none like this.
        """
        try:
            _served(params or {})
        except (ValueError, LookupError, TypeError) as error:
            raise InvalidParamError(f"dp_sanitize: {error}") from error

    def operator_name(self) -> str:
        """The operator's name in Presidio's configuration."""
        return "dp_sanitize"

    def operator_type(self) -> OperatorType:
        """There is no way back."""
        return OperatorType.Anonymize


def _served(params: Mapping[str, Any]) -> Served:
    values: Sequence[str] = params.get("values", ())
    if isinstance(values, str):
        raise TypeError("values must be a list")
    return _opened(tuple(values), params.get("epsilon", 8.0), params.get("mechanism", "medoid_rr"))


@lru_cache(32)
def _opened(values: tuple[str, ...], epsilon: float, mechanism: str) -> Served:
    if len(set(values)) < 2:
        raise ValueError("values must list at least two public strings, all different")
    vocabulary = Vocabulary(values, _embed(values), np.ones(len(values)))
    return serve(mechanism, vocabulary, epsilon, cache_folder())


def replace_cities(text: str, start: int, end: int) -> str:
    """The text with the city found at these offsets replaced by one of three public ones."""
    engine = AnonymizerEngine()
    engine.add_anonymizer(DpSanitize)
    cities = OperatorConfig("dp_sanitize", {"values": ["Boston", "Paris", "Tokyo"], "epsilon": 2, "remembered": {}})
    return str(engine.anonymize(text, [RecognizerResult("CITY", start, end, 1.0)], {"CITY": cities}).text)


if __name__ == "__main__":
    print(replace_cities("I live in Lyon.", 10, 14))
