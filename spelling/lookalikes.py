"""One table of what reads alike, and what each use takes for equal.

A keyboard, a word processor, a PDF file and a language model write the same word in different characters: ``O'Brien``
and ``O’Brien``, ``Follow-up`` with a hyphen that breaks no line, a name in letters of another alphabet. People see one
text. Each use below is a :class:`Reading`, which folds a text to one spelling, to be compared and never shown (but for
:data:`KEYWORD`, whose words are released). Folding a folded text changes nothing.

All of them fold:

- characters that are not shown: zero-width spaces and joiners, soft hyphens, marks of direction, variation selectors,
  controls;
- what Unicode calls compatible (NFKC): the ways to encode an accent, full and half width, ligatures, presentation
  forms, superscripts, Kangxi radicals; and the other radicals of CJK, by Unicode's ``EquivalentUnifiedIdeograph.txt``;
- punctuation: dashes are hyphens; apostrophes, primes, accents that stand alone and single quotes are one, and a double
  quote is two of them; dots in the middle, slashes, colons, stars, tildes, bars and arrows. ``7½`` is ``7 1/2``, and
  ``10²`` is ``10^2`` rather than ``102``.

What no use folds: letters and digits that only resemble each other (``l`` and ``1``), numbers with and without leading
zeros, words spelt out or shortened.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from unicodedata import decimal, normalize

import regex

_PUNCTUATION = {
    # Apostrophes and single quotes; modifier letters and primes that are typed for them; Armenian, Hebrew, N'Ko.
    "'": "`´‘’‚‛′‵ʹʻʼʽʾʿˈˊˋ΄᾽᾿῾՚՝׳ߴߵꞌ❛❜＇｀\u0374\u1fef\u1ffd",
    "''": '"“”„‟″‶«»ʺˮ˝״〝〞〟❝❞＂',
    "-": "−⁃˗➖",
    "~": "∼˜⁓〜〰",
    "/": "⁄∕╱⧸",
    "\\": "∖╲⧵⧹",
    "·": "•‧∙⋅・･ᐧ⸱",
    ".": "․٫",
    ":": "ː∶꞉։׃",
    "*": "∗⁎٭✱",
    "|": "∣❘│ǀ",
    "<": "‹❮",
    ">": "›❯",
    "%": "٪",
    "...": "…⋯",
    "!": "❗❕ǃ",
    "?": "❓❔",
    "+": "➕",
    "#": "♯",
    ",": "٬",
    "✓": "✔",
    "✗": "✘",
    "°": "º˚",
    "N°": "№",
    "->": "→⟶➔➜",  # what word processors make of the former
    "<-": "←⟵",
    "=>": "⇒",
    " ": "\u2800",  # a cell of Braille without dots
    "": "\u0640",  # the stroke that stretches an Arabic word
}
_RADICALS = (
    "⺁厂⺂乛⺃乚⺄乙⺅亻⺆冂⺇𠘨⺈刀⺉刂⺊卜⺋㔾⺌小⺍小⺎兀⺏尣⺐尢⺑𡯂⺒巳⺓幺⺔彑⺕𫜹⺖忄⺗心⺘扌⺙攵⺛旡⺜日⺝月⺞歺⺟母⺠民⺡氵⺢氺⺣灬⺤爫⺥爫⺦丬⺧牛⺨犭⺩王⺪𤴔⺫目⺬示⺭礻⺮𥫗⺯糹⺰纟⺱罓⺲罒⺳㓁⺴冗⺵𦉫⺶羊⺷𦍌⺸𦍋"
    "⺹耂⺺肀⺻聿⺼肉⺽𦥑⺾艹⺿艹⻀艹⻁虎⻂衤⻃覀⻄西⻅见⻆角⻇𧢲⻈讠⻉贝⻊𧾷⻋车⻌辶⻍辶⻎辶⻏邑⻐钅⻑長⻒镸⻓长⻔门⻕𨸏⻖阝⻗雨⻘青⻙韦⻚页⻛风⻜飞⻝食⻞𩙿⻟飠⻠饣⻡𩠐⻢马⻣骨⻤鬼⻥鱼⻦鸟⻧卤⻨麦⻩黄⻪黾⻫斉⻬齐⻭歯⻮齿⻯竜⻰龙⻱龜⻲亀⻳龟"
)
_PLAIN = {ord(one): sign for sign, others in _PUNCTUATION.items() for one in others}
_PLAIN |= {ord(radical): ideograph for radical, ideograph in zip(_RADICALS[::2], _RADICALS[1::2], strict=True)}

# Letters of one shape: Greek, Cyrillic and Armenian ones as Latin ones.
_CAPITALS = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕЅІЈКМНОРСТУХԚԜҮӘӨӔѴՕÐƉ", "ABEZHIKMNOPTYXABESIJKMHOPCTYXQWYƏƟÆVOĐĐ", strict=True))
_SMALL = dict(zip("οаеорсухѕіјһԁԛԝүıȷɑɡәǝөӕѵօε", "oaeopcyxsijhdqwyijagəəɵævoɛ", strict=True))
_BY_CASE = _CAPITALS | _SMALL
_IN_BOTH_CASES = {one: latin for one, latin in _BY_CASE.items() if one in _SMALL and one.upper() not in "НВКМТ"}
# Where case makes no difference, н is h since its capital is H. But a microgram is not a milligram.
_IN_ANY_CASE = _BY_CASE | {one.lower(): latin.lower() for one, latin in _CAPITALS.items() if one != "Μ"}
# One letter in several languages, a letter that is two others, and a sign that is typed as a letter.
_SPELT = {
    "ي": "یى",
    "ك": "ک",
    "ه": "ہە",
    "ヘ": "へ",
    "וו": "װ",
    "וי": "ױ",
    "יי": "ײ",
    "เเ": "แ",
    "ເເ": "ແ",
    "ত\u09cd": "ৎ",
    "ണ\u0d4d": "ൺ",
    "ന\u0d4d": "ൻ",
    "ര\u0d4d": "ർ",
    "ല\u0d4d": "ൽ",
    "ള\u0d4d": "ൾ",
    "ക\u0d4d": "ൿ",
    "\u0327": "\u0326",  # the comma below of Romanian, and the cedilla
    "x": "×✕✖",
}
_LETTERS = {one: letters for letters, others in _SPELT.items() for one in others}
_STROKES = {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe", "ß": "ss"}
_STROKES |= {letter.upper(): others.upper() for letter, others in _STROKES.items() if letter != "ß"} | {"ẞ": "SS"}
_WRITTEN_OUT = dict(zip("äöüåøÄÖÜÅØ", ["ae", "oe", "ue", "aa", "oe", "Ae", "Oe", "Ue", "Aa", "Oe"], strict=True))

_INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}]|(?![\s\x1c-\x1f])\p{Cc}")
_ORDINARY = regex.compile(r"[!#-_a-~]*")  # printable ASCII without a space, double quotes and the grave accent
_FRACTION = regex.compile(r"(?<=\p{Nd})(?=[¼-¾⅐-⅟↉])")
_POWER = regex.compile(r"(?<=\p{Nd})(?=[⁰¹²³⁴-⁹⁺⁻])")
_DOT = regex.compile(r"(?<=[ij]\u0328?)\u0307")
_DASH = regex.compile(r"\p{Pd}")
_DIGIT = regex.compile(r"(?![0-9])\p{Nd}")
# Accents, and the points that Hebrew and Arabic are mostly written without; not the marks that make another kana.
_ACCENT = regex.compile(
    r"(?![\u3099\u309a])[\p{Mn}&&[\p{Script=Inherited}\p{Script=Cyrillic}\p{Script=Hebrew}\p{Script=Arabic}]]", regex.V1
)


@dataclass(frozen=True, eq=False)
class Reading:
    """What one use takes for equal, beside what all fold.

    Attributes:
        case: whether capitals and small letters are one.
        spaces: whether white space of any kind and length is one space, and nothing around the text.
        letters: Latin letters for the letters of other alphabets that have the same shape, and one spelling of letters
            that a script writes in several ways.
        digits: whether a digit of any script is the one that it stands for.
        accents: whether accents make no difference.
    """

    case: bool
    spaces: bool
    letters: Mapping[str, str] = field(default_factory=dict)
    digits: bool = True
    accents: bool = False

    def fold(self, text: str) -> str:
        """The one spelling of all texts that read like this one; empty if nothing of it is shown."""
        if not self.case and _ORDINARY.fullmatch(text):
            return text
        while (folded := self._folded(text)) != text:
            text = folded
        return text

    def alignments(self, text: str) -> list[tuple[str, list[int]]]:
        """A text in NFC folded character by character, with the place in it that each character comes from.

        Where it has letters such as ``ü``, there is another with ``ue``.
        """
        folded = [self._aligned(text)]
        written_out = [_WRITTEN_OUT.get(character, character) for character in text]
        return folded if "".join(written_out) == text else [*folded, self._aligned(written_out)]

    def _aligned(self, characters: Iterable[str]) -> tuple[str, list[int]]:
        parts = [self._character(character) for character in characters]
        return "".join(parts), [place for place, part in enumerate(parts) for _ in part]

    def _folded(self, text: str) -> str:
        text = _DASH.sub("-", _INVISIBLE.sub("", text).translate(_PLAIN))
        text = _POWER.sub("^", _FRACTION.sub(" ", text))
        text = normalize("NFKC", text)
        if self.case:
            text = normalize("NFKC", text.casefold())
        if self.accents:
            text = _ACCENT.sub("", normalize("NFKD", text))
        if self.digits:
            text = _DIGIT.sub(lambda digit: str(decimal(digit[0], digit[0])), text)
        # Letters without their accents: Ё is Ë, too, and i with a second dot is i.
        text = normalize("NFC", _DOT.sub("", normalize("NFD", text)).translate(self._latin))
        return " ".join(text.split()) if self.spaces else text

    @cached_property
    def _latin(self) -> dict[int, str]:
        return {ord(letter): latin for letter, latin in self.letters.items()}

    @lru_cache(maxsize=10_000)  # noqa: B019  # there are five of these, for the life of the program
    def _character(self, character: str) -> str:
        return self.fold(character)


UNIT_ID = Reading(case=False, spaces=True, letters=_BY_CASE | _LETTERS)
"""Ids of units. ``ann`` and ``Ann`` are two people, as are ``7`` and ``007``."""

LABEL = Reading(case=True, spaces=True, letters=_IN_BOTH_CASES | _LETTERS)
"""Labels, names of topics, and texts that no answer may contain. ``café`` and ``cafe`` are two labels."""

KEYWORD = Reading(case=True, spaces=False, digits=False)
"""Words, as they are counted and released: letters and digits stay those of their own script."""

SPAN = Reading(case=False, spaces=False, letters=_IN_ANY_CASE | _STROKES | _LETTERS, accents=True)
"""Private spans, which are searched for without regard to case (:mod:`sanitization.restore.spans`). Here too much may
be taken for equal, but nothing that reads alike may leave."""
