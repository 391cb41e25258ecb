"""The advice on the encoding of a text is right, or shows the readings that are about as likely."""

from pathlib import Path

import pytest

from exemplar_store import Layout
from service.sources.files import open_file
from service.sources.guesses import guess, mostly_utf8

TEXTS = {
    "german": [
        "Päckchen fehlt seit Montag",
        "Die Größe stimmt nicht",
        "Straße gesperrt",
        "Müller hat angerufen",
        "Überweisung kam zurück",
        "schöne Grüße aus Köln",
        "Wäsche",
        "Gebühr für März",
        "Öl läuft aus",
        "das Gerät heißt anders",
    ],
    "french": [
        "Le colis n'est pas arrivé",
        "facture déjà payée",
        "problème de réseau",
        "où est ma commande",
        "reçu à l'hôpital",
        "élève très fatigué",
        "forêt",
        "garçon malade",
        "Noël à Paris",
        "une pièce cassée",
    ],
    "spanish": [
        "¿Dónde está mi pedido?",
        "mañana llega el niño",
        "la contraseña no funciona",
        "corazón",
        "dirección equivocada",
        "año nuevo",
        "teléfono roto",
        "señor Núñez",
        "médico de guardia",
        "camión parado",
    ],
    "portuguese": [
        "não recebi a encomenda",
        "informação errada",
        "coração",
        "português",
        "amanhã às três",
        "endereço",
        "cartão não funciona",
        "manutenção",
        "você",
        "açúcar",
    ],
    "italian": [
        "perché non è arrivato",
        "la città è lontana",
        "più tardi",
        "caffè freddo",
        "qualità",
        "però",
        "già pagato",
        "università",
        "lunedì",
        "così",
    ],
    "swedish": [
        "paketet är försenat",
        "för många fel",
        "ingen åtkomst",
        "öppna dörren",
        "två påsar",
        "mår dåligt",
        "räkningen är fel",
        "svårt att nå er",
        "kött",
        "Malmö",
    ],
    "danish": [
        "pakken er på vej",
        "må ikke åbnes",
        "for få varer",
        "købt i går",
        "ødelagt æske",
        "hjælp",
        "ønsker svar",
        "når kommer den",
        "blå",
        "Århus",
    ],
    "polish": [
        "paczka nie przyszła",
        "zażółć gęślą jaźń",
        "źle działa",
        "proszę o pomoc",
        "błąd płatności",
        "książka zgubiona",
        "świeże mięso",
        "łóżko",
        "żółty",
        "pieniądze się należą",
    ],
    "czech": [
        "balíček nepřišel",
        "příliš žluťoučký kůň",
        "děkuji za pomoc",
        "špatná velikost",
        "účet je chybný",
        "dveře nejdou otevřít",
        "řidič",
        "město",
        "zítra ráno",
        "příště",
    ],
    "hungarian": [
        "nem érkezett meg a csomag",
        "árvíztűrő tükörfúrógép",
        "köszönöm szépen",
        "hibás a számla",
        "késő",
        "nő",
        "örülök",
        "időpont",
        "szükség van rá",
        "betűk",
    ],
    "romanian": ["şi mâine", "ţară", "încă nu a sosit", "mulţumesc", "în oraş"],
    "lithuanian": [
        "siuntinys neatėjo",
        "ačiū už pagalbą",
        "šiandien",
        "klaidų sąrašas",
        "žmogus",
        "ąžuolas",
        "įmonė",
        "ūkis",
        "dėžė",
        "reikšmė",
    ],
    "latvian": [
        "sūtījums nav saņemts",
        "paldies jums ļoti",
        "kļūda rēķinā",
        "šodien",
        "ģimene",
        "ūdens",
        "labākā cena",
        "mājā",
        "pašlaik",
        "četri",
    ],
    "estonian": [
        "pakk ei jõudnud kohale",
        "aitäh teile",
        "õpetaja",
        "täna öösel",
        "tänav",
        "müüa",
        "šokolaad",
        "jõgi",
        "tõesti",
        "ülikool",
    ],
    "turkish": [
        "Kargo gelmedi, şikâyet ediyorum",
        "yanlış ürün",
        "teşekkür ederim",
        "İstanbul",
        "çok geç",
        "sağlık",
        "kırık kutu",
        "güzel",
        "öğrenci",
        "ışık",
    ],
    "greek": [
        "Το δέμα δεν ήρθε",
        "ευχαριστώ πολύ",
        "λάθος μέγεθος",
        "πού είναι",
        "αύριο",
        "σπίτι",
        "δεν λειτουργεί",
        "τιμολόγιο",
        "γιατρός",
        "νερό",
    ],
    "russian": [
        "Посылка не пришла",
        "спасибо за помощь",
        "неверный размер",
        "где мой заказ",
        "завтра",
        "дом",
        "не работает",
        "счёт",
        "врач",
        "вода",
    ],
    "hebrew": ["החבילה לא הגיעה", "תודה רבה", "מידה לא נכונה", "מחר", "בית"],
    "arabic": ["لم تصل الطرود", "شكرا جزيلا", "مقاس خاطئ", "غدا", "بيت"],
    "japanese": ["荷物が届きません", "ありがとうございます", "サイズが違います", "明日", "請求書の間違い"],
    "korean": ["소포가 오지 않았어요", "감사합니다", "크기가 달라요", "내일", "청구서 오류"],
    "chinese": ["包裹没有到", "非常感谢", "尺寸不对", "明天", "账单错误"],
    "taiwan": ["包裹沒有到", "非常感謝", "尺寸不對", "明天", "帳單錯誤"],
    "english": ["it’s broken", "“urgent” please", "price 20 €", "don’t know", "cost – high"],
}
DOS_AND_MAC = ("cp1252", "mac_roman", "cp850")
ENCODINGS = {
    "german": ("cp1252", "mac_roman", "cp850", "iso8859_15"),
    "french": ("cp1252", "mac_roman", "cp850", "iso8859_15"),
    "spanish": ("cp1252", "mac_roman", "cp850"),
    "portuguese": ("cp1252", "mac_roman", "cp850"),
    "italian": ("cp1252", "mac_roman", "cp850"),
    "swedish": ("cp1252", "mac_roman", "cp850"),
    "danish": ("cp1252", "mac_roman", "cp850"),
    "polish": ("cp1250", "iso8859_2", "cp852"),
    "czech": ("cp1250", "iso8859_2", "cp852"),
    "hungarian": ("cp1250", "iso8859_2", "cp852"),
    "romanian": ("cp1250",),
    "lithuanian": ("cp1257",),
    "latvian": ("cp1257",),
    "estonian": ("cp1257",),
    "turkish": ("cp1254",),
    "greek": ("cp1253",),
    "russian": ("cp1251", "koi8_r", "cp866"),
    "hebrew": ("cp1255",),
    "arabic": ("cp1256",),
    "japanese": ("cp932", "euc_jp"),
    "korean": ("cp949",),
    "chinese": ("gb18030",),
    "taiwan": ("big5",),
    "english": ("cp1252", "mac_roman"),
}
ALL = [(language, encoding) for language, encodings in ENCODINGS.items() for encoding in encodings]


def reads(texts: list[str], encoding: str, guessed: str) -> bool:
    data = "\n".join(texts).encode(encoding)
    try:
        return data.decode(guessed) == "\n".join(texts)
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize(("language", "encoding"), ALL)
def test_a_list_of_short_texts_is_read_right(language: str, encoding: str) -> None:
    found = guess([text.encode(encoding) for text in TEXTS[language]])
    assert reads(TEXTS[language], encoding, found.likely[0])


def test_most_single_lines_are_read_right_or_shown_beside_others() -> None:
    """The library that guessed before was right about 31 % of them."""
    first = shown = every = 0
    for language, encoding in ALL:
        for text in TEXTS[language]:
            if text.isascii():
                continue
            found = guess([text.encode(encoding)]).likely
            first += reads([text], encoding, found[0])
            shown += any(reads([text], encoding, one) for one in found)
            every += 1
    assert first >= 0.78 * every
    assert shown >= 0.9 * every


def test_a_line_is_shown_on_which_the_readings_differ(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = ["Größe", "Müller", "“eilig”, 20 €", "Łódź"]
    file.write_bytes("\n".join(["unit_id;text", *(f"u;{row}" for row in rows)]).encode("cp1250") + b"\n")
    with open_file(str(file)) as source, pytest.raises(ValueError, match="--encoding cp1250") as caught:
        list(source.rows(Layout(("text",))))
    assert "line 2 is not UTF-8" in str(caught.value)
    assert "line 5 reads 'u;Łódź'" in str(caught.value), "both encodings read the lines before alike"


def test_several_likely_readings_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes("unit_id;text\nu;a\nu;proszę\n".encode("cp1250"))
    with open_file(str(file)) as source, pytest.raises(ValueError, match="it may be cp1250") as caught:
        list(source.rows(Layout(("text",))))
    assert "in which the line reads 'u;proszę', or cp1252: 'u;proszê'" in str(caught.value)
    assert "--encoding cp1250" not in str(caught.value)


def test_utf_8_with_some_broken_bytes_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    lines = [b"unit_id;text", "u;Größe".encode(), "u;Straße".encode(), "u;Päckchen".encode("cp1252")]
    assert mostly_utf8(b"\n".join(lines))
    assert not mostly_utf8("Größe, Straße".encode("cp1252"))
    assert not mostly_utf8(b"plain")
    file = tmp_path / "t.csv"
    file.write_bytes(b"\n".join(lines) + b"\n")
    with open_file(str(file)) as source, pytest.raises(ValueError, match="most of its letters are UTF-8") as caught:
        list(source.rows(Layout(("text",))))
    assert "line 4 " in str(caught.value)
    assert "--encoding" not in str(caught.value), "it would garble the other lines"


@pytest.mark.parametrize(("text", "encoding"), [("10 € pour l'été", "cp1252"), ("šťastný", "cp1250")])
def test_hard_spaces_between_words_are_nothing_odd(text: str, encoding: str) -> None:
    lines = [*["from\xa0Excel"] * 3, text]
    assert reads(lines, encoding, guess([line.encode(encoding) for line in lines]).likely[0])
