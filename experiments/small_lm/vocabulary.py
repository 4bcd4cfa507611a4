"""Token numbers: special tokens, the lists of words, and label words."""

from experiments.small_lm.words import GROUP, LIST_LENGTH, NONCE, SPECIAL, WORDS

LISTS = [words.split() for classes in WORDS.values() for words in classes.values()]
FIRST_WORD = len(SPECIAL)
# Label words with a conventional meaning, by attribute.
MEANT = {
    "sentiment": ("positive", "negative"),
    "season": ("positive", "negative"),
    "topic": ("world", "sports", "business", "science"),
}
LABELS = list(dict.fromkeys(word for words in MEANT.values() for word in words))
VOCABULARY = [*SPECIAL, *(word for words in LISTS for word in words), *LABELS, *NONCE]
ID = {word: index for index, word in enumerate(VOCABULARY)}
START, END, COLON, LINE = (ID[word] for word in ("<s>", "</s>", ":", "\n"))
FIRST_NONCE = ID[NONCE[0]]
NUM_GROUPS = len(NONCE) // GROUP

# Attributes that can determine the label, with their numbers of classes and first
# lists.
ATTRIBUTES = tuple(MEANT)
NUM_CLASSES = tuple(len(WORDS[name]) for name in ATTRIBUTES)
FIRST_LIST = tuple(sum(NUM_CLASSES[:place]) for place in range(len(ATTRIBUTES)))
FILLER = sum(NUM_CLASSES)
MOST_CLASSES = max(NUM_CLASSES)

assert FIRST_WORD % 5 == 0
assert {len(words) for words in LISTS} == {LIST_LENGTH}
assert len(ID) == len(VOCABULARY)
