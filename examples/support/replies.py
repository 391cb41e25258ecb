"""What Brookfern's staff answer, by matter. Everything here was made up for this example.

A reply says what to do in the matter, in one of several wordings that share the matter's key words, and what the
team's house rule is, with the words of that rule. The key words stand on the public help pages too (``replies.yaml``);
the house rules do not: only the tickets know them.
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
    "Bruna", "So long, Jory", "Write back if anything is unclear.", "Have a fine week.",
]  # fmt: skip

RULES: dict[str, Rule] = {
    "Ledger": Rule(
        ("ledger", "tuesday"),
        [
            "Ledger books everything on Tuesday.",
            "This goes into the Tuesday run at Ledger.",
            "Ledger closes its books each Tuesday, so look after that.",
            "Expect it after Tuesday, when Ledger does the accounts.",
        ],
    ),
    "Wheels": Rule(
        ("wheels", "noon"),
        [
            "Wheels decides this before noon.",
            "Whatever reaches Wheels by noon leaves the same evening.",
            "The van of Wheels goes at noon.",
            "Wheels will ring you around noon.",
        ],
    ),
    "Keys": Rule(
        ("keys", "callback"),
        [
            "Keys only acts after a callback to the registered number.",
            "Please wait for the callback from Keys.",
            "A callback by Keys comes first, always.",
            "Keys arranges a callback this evening.",
        ],
    ),
    "Greenhouse": Rule(
        ("greenhouse", "loan"),
        [
            "Greenhouse lends you a loan planter meanwhile.",
            "Until it is solved you get a loan set from Greenhouse.",
            "Ask Greenhouse for a loan pot, it costs nothing.",
            "Greenhouse has one on loan for you, if you like.",
        ],
    ),
    "Farewell": Rule(
        ("farewell", "backdated"),
        [
            "Farewell has backdated this to the day you wrote.",
            "It is backdated to your first message, as Farewell always does.",
            "At Farewell such things are backdated, nothing is lost by waiting.",
            "Farewell enters it backdated, so today counts.",
        ],
    ),
}

MATTERS: dict[str, Matter] = {
    "refund": Matter(
        ("refund", "statement", "charge"),
        [
            "I see the charge of {currency}{amount}; your refund is on its way, please compare the next statement.",
            "Please photograph the statement with the charge marked, and the refund follows without further questions.",
            "Agreed, that charge is ours to take back: the refund for {order} shows on your statement soon.",
            "We give a refund first and look for the cause of the charge later; the statement line is all we need.",
        ],
    ),
    "invoice": Matter(
        ("invoice", "address", "corrected"),
        [
            "A corrected invoice for {order} is coming, with the address you gave us.",
            "Reply with company name, tax number and address, then the invoice is corrected and sent as PDF.",
            "The invoice did not match, I have corrected the sum; is the billing address still in {town}?",
            "Old version void: the corrected invoice replaces it. Tell us if the address has changed too.",
        ],
    ),
    "settings": Matter(
        ("payment", "settings", "collection"),
        [
            "I put it into your payment settings by hand, and it counts from the next collection.",
            "Open payment, then settings, and enter it there before the collection in {month}.",
            "Your payment settings were out of date; what is missing comes off the coming collection.",
            "Done: look at payment under settings. The collection of {currency}{amount} already takes it into account.",
        ],
    ),
    "transit": Matter(
        ("courier", "tracking", "search"),
        [
            "I have opened a search with the courier; tracking for {order} should move again shortly.",
            "The courier is asked to start a search. Should tracking stand still, we dispatch a second one.",
            "According to the tracking it is near {town}; the courier was told to search the depot.",
            "We begin a search at once, papers go to the courier today, and you follow it all on the tracking page.",
        ],
    ),
    "damage": Matter(
        ("replacement", "photo", "courier"),
        [
            "A replacement leaves us at once; a photo of the {part} and the carton helps us with the courier.",
            "Please send one photo of everything, keep it all, the courier fetches it and brings the replacement.",
            "With your photo we claim from the courier, and the replacement for {order} is free.",
            "No need to return anything: photo first, then a replacement, and the courier gets our complaint.",
        ],
    ),
    "redirect": Matter(
        ("driver", "address", "depot"),
        [
            "The driver has the new address, or keeps it at the depot if nobody is in.",
            "I rang the depot in {town}: the driver turns round and uses the address of your message.",
            "Give us an address for {order}, and the driver takes it from the depot tomorrow.",
            "Held at the depot until you confirm the address; the driver rings first.",
        ],
    ),
    "access": Matter(
        ("password", "code", "link"),
        [
            "Use the link I have just sent, choose a new password, and the code works again.",
            "I cleared the block; the fresh link is good for an hour, then set a password and type the code.",
            "Take a recovery code from your welcome letter instead of the password, the link shows where.",
            "Your password is fine, only the code was out of step; the link below puts it right.",
        ],
    ),
    "intruder": Matter(
        ("locked", "devices", "password"),
        [
            "Everything is locked now and all devices are signed out; choose a new password when you are ready.",
            "I locked the login and removed the devices you do not know. Change the password, on mail too.",
            "Devices out, password void, locked for two days: nobody comes in, not even by a shared login.",
            "It stays locked until you list the devices that are yours and pick another password.",
        ],
    ),
    "profile": Matter(
        ("profile", "identity", "request"),
        [
            "I noted your request; once your identity is checked, the profile is changed overnight.",
            "For a request on a profile we need proof of identity, a passport without the number will do.",
            "Your identity is confirmed, so the request is granted and the profile looks as you wished tomorrow.",
            "The request about the profile takes up to thirty days by law, but with proof of identity we are quicker.",
        ],
    ),
    "device": Matter(
        ("reset", "update", "warranty"),
        [
            "Hold the ring for ten seconds for a reset, let the update run, and if that fails the warranty covers it.",
            "We know this one: install the update, then do a reset. The {pot} is under warranty in any case.",
            "First a reset, then the update of this week; still wrong, and you get another one on warranty.",
            "Soak the filter in vinegar, do the reset and the update, and we will not argue about the warranty.",
        ],
    ),
    "plants": Matter(
        ("nutrients", "water", "light"),
        [
            "Give half the nutrients, less water, and eleven hours of light; the {plant} will recover.",
            "Your {plant} want more light before anything else; change the water and pause the nutrients.",
            "Rinse the soil with water, add nutrients once a fortnight, keep the light a hand above the leaves.",
            "Too much water, I think. Let it dry, hold back the nutrients, raise the light.",
        ],
    ),
    "hazard": Matter(
        ("unplug", "socket", "replacement"),
        [
            "Please unplug it at once, leave the socket alone, and do not touch the metal; a replacement is packed.",
            "Switch off at the fuse, then unplug. The socket must be dry before the replacement goes in.",
            "Do not use it again: unplug, photograph the socket, and the replacement reaches {town} tomorrow.",
            "Safety first, so unplug everything on that socket; you get a replacement without sending it back.",
        ],
    ),
    "cancel": Matter(
        ("contract", "renewal", "confirmation"),
        [
            "Your contract has ended, no renewal; the confirmation comes by post and mail.",
            "I stopped the renewal tonight. Keep this as confirmation that the contract is over.",
            "We let you go with regret: contract closed, confirmation attached, renewal and debit withdrawn.",
            "The renewal was our mistake and is undone; a confirmation of the end of the contract is enclosed.",
        ],
    ),
    "pause": Matter(
        ("pause", "boxes", "resume"),
        [
            "A pause is set, the boxes resume in {month} unless you tell us otherwise.",
            "You can pause for twelve weeks and resume any day; boxes already packed still come.",
            "No boxes for now: the pause costs nothing, and one click lets you resume.",
            "I put the pause in, dates open. Write when boxes should resume.",
        ],
    ),
    "smaller": Matter(
        ("plan", "price", "smaller"),
        [
            "There is a smaller plan with a box every other month, at half the price.",
            "For loyal customers we keep the old price, or you move to a smaller plan.",
            "I can match that price on the yearly plan; the smaller one costs less still.",
            "The smaller plan starts in {month}, and its price is fixed for two years.",
        ],
    ),
}
