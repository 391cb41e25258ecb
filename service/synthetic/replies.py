"""What Brookfern's staff answer, by matter. Everything here was made up for this example.

A reply says what to do in the matter, in one of several wordings that share the matter's key words, and what the
team's house rule is, in words of which one ("books", "drives", "registered", "lends", "backdated") is nowhere public.
All others stand on the pages in ``replies.yaml`` too, which do not say what team they are about.
"""

from typing import NamedTuple


class Matter(NamedTuple):
    """A kind of ticket: the words that every reply to it has, and the wordings."""

    keywords: tuple[str, ...]
    wordings: list[str]


class Rule(NamedTuple):
    """A team's house rule: the words that every statement of it has, and the statements."""

    keywords: tuple[str, ...]
    wordings: list[str]


# The matter of each core sentence in ``wording.py``, in its order.
CORE_MATTERS: dict[str, str] = {
    "Ledger": "refund refund invoice settings refund settings invoice invoice settings refund refund refund invoice "
    "settings settings invoice",
    "Wheels": "transit transit damage damage damage redirect transit transit damage transit redirect redirect transit "
    "damage redirect redirect",
    "Keys": "access access profile profile intruder intruder intruder access profile access profile profile profile "
    "access intruder",
    "Greenhouse": "device device plants device device device hazard hazard device device plants device plants plants "
    "hazard",
    "Farewell": "cancel pause smaller cancel cancel smaller cancel cancel cancel smaller cancel cancel cancel smaller "
    "pause",
}

GREETINGS = [
    "Hello!", "Morning!", "Dear customer!", "Hi there!", "Greetings.", "Thank you for writing.",
    "Sorry about that.", "Thanks for your patience.", "That should not happen.", "We are on it.",
]  # fmt: skip

SIGN_OFFS = [
    "Kind regards, Noor", "Take care, Matti", "Yours, Ines", "Piet", "Warmly, Odile", "Cheers, Tam",
    "Bruna", "So long, Jory", "Yours, Mirte", "Ruben",
]  # fmt: skip

RULES: dict[str, Rule] = {
    "Ledger": Rule(
        ("books", "ledger", "tuesday"),
        [
            "Ledger books it on Tuesday.",
            "On Tuesday, that is when Ledger books.",
            "Tuesday is the day on which Ledger books.",
            "It waits for Tuesday, Ledger never books sooner.",
        ],
    ),
    "Wheels": Rule(
        ("drives", "noon", "wheels"),
        [
            "Wheels drives at noon.",
            "At noon Wheels drives.",
            "Wheels decides, and drives by noon.",
            "It is noon when Wheels drives.",
        ],
    ),
    "Keys": Rule(
        ("callback", "keys", "registered"),
        [
            "Keys makes a callback to the registered number.",
            "Wait for a callback from Keys on the registered phone.",
            "Without a callback on a registered line Keys does nothing.",
            "Callback by Keys, registered numbers only.",
        ],
    ),
    "Greenhouse": Rule(
        ("greenhouse", "lends", "planter"),
        [
            "Greenhouse lends you a planter.",
            "Meanwhile Greenhouse lends a planter.",
            "Need a planter? Greenhouse lends one.",
            "A planter is what Greenhouse lends until then.",
        ],
    ),
    "Farewell": Rule(
        ("backdated", "counts", "farewell"),
        [
            "Farewell counts it backdated.",
            "It counts backdated at Farewell.",
            "Backdated by Farewell, so your letter counts.",
            "For Farewell the day you wrote counts, backdated.",
        ],
    ),
}

MATTERS: dict[str, Matter] = {
    "refund": Matter(
        ("refund", "statement", "charge"),
        [
            "I see the wrong charge of {currency}{amount}; the refund will show on your card statement.",
            "Please photograph the statement with the charge marked, then you get the refund.",
            "That charge is ours to take back: compare your statement, the refund is paid.",
            "You get a refund first; which charge on the statement was wrong we find out later.",
        ],
    ),
    "invoice": Matter(
        ("invoice", "address", "corrected"),
        [
            "A corrected invoice for {order} is coming, with the billing address you gave us.",
            "Send company name, tax number and address, and the invoice is corrected.",
            "The sum on the invoice is corrected; is the billing address in {town} right?",
            "The corrected invoice replaces the old one, with VAT, company and address.",
        ],
    ),
    "settings": Matter(
        ("payment", "settings", "collection"),
        [
            "I entered the voucher in your payment settings, it counts from the next collection.",
            "Enter the card or bank account under payment settings before the collection in {month}.",
            "Your payment settings had the old price; the coming collection takes off the difference.",
            "Look at the payment settings: card and credit are in, the collection in {month} uses them.",
        ],
    ),
    "transit": Matter(
        ("courier", "tracking", "search"),
        [
            "The parcel is late, so I opened a search with the courier; watch the tracking of {order}.",
            "I asked the courier to search for your parcel. Tracking should move again.",
            "Tracking last saw the parcel near {town}; the courier was told to search.",
            "The courier begins a search for the lost parcel, follow it by tracking.",
        ],
    ),
    "damage": Matter(
        ("replacement", "photo", "courier"),
        [
            "A replacement for the damaged {part} leaves today; a photo of the carton helps with the courier.",
            "Please take a photo of the wrong or broken parcel, the courier brings a replacement.",
            "With a photo of what was damaged or missing the courier pays, and the replacement is free.",
            "Send us a photo of the damage, then the courier collects the parcel and you get a replacement.",
        ],
    ),
    "redirect": Matter(
        ("driver", "address", "depot"),
        [
            "The driver has the new address, or takes it back to the depot.",
            "I rang the depot in {town}: the driver turns round to your address.",
            "Give us the other address, and the driver collects it from the depot.",
            "It stays at the depot for you until the driver knows the right address.",
        ],
    ),
    "access": Matter(
        ("password", "code", "link"),
        [
            "To sign in use the link I sent, choose a new password and type the code.",
            "I sent a fresh link to sign in; set a password, then the code works.",
            "Sign in with a recovery code instead of the password, the link shows how.",
            "Your password was fine, the code was not; sign in by the link below.",
        ],
    ),
    "intruder": Matter(
        ("locked", "devices", "stranger"),
        [
            "I locked your login against the stranger and signed out all devices.",
            "The stranger is out: all devices removed, the login locked for two days.",
            "It is locked now, the stranger has no access, and unknown devices are gone.",
            "Tell us which devices are yours; the login stays locked until the stranger is gone.",
        ],
    ),
    "profile": Matter(
        ("profile", "data", "identity"),
        [
            "Your profile and its data will be changed once we have checked your identity.",
            "To change, copy or delete the data of a profile we need proof of identity.",
            "Your identity is confirmed; the personal data in the profile are changed tonight.",
            "With a passport as proof of identity you get the profile changed and a copy of your data.",
        ],
    ),
    "device": Matter(
        ("reset", "update", "warranty"),
        [
            "Do a reset of the pot and the update of the app; otherwise the warranty covers it.",
            "Install the update, then reset the pot. The sensor is under warranty.",
            "First a reset, then the update for pump and wifi; if not, the warranty gets you a new pot.",
            "Clean the pump filter, run reset and update in the app; parts are under warranty.",
        ],
    ),
    "plants": Matter(
        ("nutrients", "leaves", "light"),
        [
            "Half the nutrients and eleven hours of light, then the leaves of your {plant} recover.",
            "Your {plant} want more light; cut brown leaves and leave out the nutrients.",
            "Dry soil, fewer nutrients, light a hand above the leaves, and the {plant} will grow.",
            "Nutrients only once the seeds have two leaves, and keep the {plant} in the light.",
        ],
    ),
    "hazard": Matter(
        ("unplug", "socket", "danger"),
        [
            "There is danger of a shock: unplug it at once and do not touch the socket.",
            "Switch off the fuse, then unplug. A hot or wet socket is a danger.",
            "Unplug it, keep children from the socket, and use nothing until the danger is over.",
            "Smoke or heat means danger, so unplug everything at that socket now.",
        ],
    ),
    "cancel": Matter(
        ("contract", "renewal", "confirmation"),
        [
            "Your contract has ended without renewal; the confirmation is enclosed.",
            "I stopped the renewal tonight. Keep this confirmation that the contract is over.",
            "We let you go with regret: contract ended, confirmation sent, renewal withdrawn.",
            "The renewal is undone; here is the confirmation of the end of the contract.",
        ],
    ),
    "pause": Matter(
        ("pause", "boxes", "resume"),
        [
            "The pause is set, your boxes resume in {month}.",
            "You can pause the boxes for twelve weeks and resume any day.",
            "No boxes while you are away: the pause is free, resume with one click.",
            "Boxes are on pause. Write when they should resume.",
        ],
    ),
    "smaller": Matter(
        ("plan", "price", "smaller"),
        [
            "There is a smaller plan with fewer boxes, at half the price.",
            "Keep your plan at a lower price, or take the smaller and cheaper one.",
            "I can match that price on your plan; the smaller one is cheaper still.",
            "The cheaper, smaller plan starts in {month}, at a fixed price.",
        ],
    ),
}
