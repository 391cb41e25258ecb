"""How much an exemplar and a unit may be: public bounds on what one unit can add to the time that its queries take."""

MAX_EXEMPLARS_PER_UNIT = 1000

MAX_EXEMPLAR_BYTES = 16 * 1024
"""An exemplar's fields as :func:`exemplar_store.exemplar.content` packs them: a JSON list in UTF-8."""

MAX_UNIT_BYTES = 256 * 1024
"""The sum of a unit's distinct exemplars, measured the same way."""
