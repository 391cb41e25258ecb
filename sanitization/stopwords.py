"""English words that only connect others: declared public, they stay as they are."""

_ARTICLES = "a an the"
_PRONOUNS = """i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she
her hers herself it its itself they them their theirs themselves this that these those who whom whose which what one"""
_VERBS = """am is are was were be been being have has had having do does did doing can could will would shall should may
might must"""
_PREPOSITIONS = """about above across after against along among around as at before behind below between beyond by down
during for from in inside into of off on onto out outside over past per since through throughout till to toward towards
under until up upon via with within without"""
_CONJUNCTIONS = "and but or nor so yet if because while although though unless whereas whether than then once"
_ADVERBS = """also again ever further here there how however just more most less least much many few several now only
other another same some such any all both each every either neither no not own quite rather too very when where why"""
_CONTRACTED = "s t d ll m re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn mustn ain"

STOPWORDS = frozenset(
    " ".join((_ARTICLES, _PRONOUNS, _VERBS, _PREPOSITIONS, _CONJUNCTIONS, _ADVERBS, _CONTRACTED)).split()
)
"""All stop words, in lower case."""
