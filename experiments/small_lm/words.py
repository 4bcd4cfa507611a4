"""The vocabulary of the small language: lists of twenty words, and nonce words."""

LIST_LENGTH = 20

# The words of each class, by attribute.
WORDS: dict[str, dict[str, str]] = {
    "sentiment": {
        "positive": """good great lovely superb charming brilliant delightful wonderful
            excellent pleasant happy graceful splendid enjoyable clever amazing
            beautiful perfect joyful sweet""",
        "negative": """bad awful dreadful terrible boring dull nasty horrible poor ugly
            sad clumsy miserable tedious stupid annoying broken rotten gloomy bitter""",
    },
    "season": {
        "summer": """sunshine beach sandals heat picnic swimming lemonade tan shorts
            barbecue fan shade pool meadow swallow harvest bees berries daylight
            sunflower""",
        "winter": """snow frost gloves ice fireplace skiing cocoa sledge coat blizzard
            scarf heater icicle chimney owl firewood boots soup darkness fir""",
    },
    "topic": {
        "world": """minister treaty border embassy war election president parliament
            army refugees summit sanctions diplomat protest capital coup envoy truce
            nation vote""",
        "sports": """match goal team coach league striker final medal race stadium
            referee tennis score captain record season champion sprint penalty cup""",
        "business": """shares profit market bank merger investor price company sales
            debt shareholder loan retailer budget stock tariff supplier earnings
            currency trade""",
        "science": """planet gene telescope laser vaccine physics atom fossil robot
            satellite cell experiment enzyme galaxy theory microscope species reactor
            proton comet""",
    },
    "none": {
        "this": """the a this that it one some every each another which what here there
            now then again still also just""",
        "of": """of in on with by from for about over under near after before during
            through between behind beside against along""",
    },
}

# Nonce label words: eight groups of four.
_NONCE = """blick dax wug toma zorp fendle gavix plim
    quorn rindle skeb tazzle ullot vorn wibbon xand
    yurple zimbo brask clome drint eggle frobe glunt
    harn ismo jask klep lurb mosk nerf ovik"""
NONCE = _NONCE.split()
GROUP = 4

SPECIAL = ("<unk>", "<s>", "</s>", ":", "\n")
