"""What the tests of parity and the scripts that write their fixtures share.

Each folder of ``fixtures`` is a tiny model: its config, as transformers 5 writes it and
as published files say the same (``config_old.json``); its weights, or ``weights_from``,
the fixture whose weights serve; and torch's logits. Sizes are distinct where a family
allows it, so that a wrong transpose changes a shape; the models whose attention is
square are there because a wrong transpose of those does not.
"""

import json
import pathlib

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
FAMILIES = {
    path.parent.name: json.loads(path.read_text())["model_type"]
    for path in sorted(FIXTURES.glob("*/config.json"))
}
# Where a row's logits depend on what follows it.
UNPADDED = ("llama_dynamic", "phi3_long_above")
ROWS, TOKENS = 3, 17
# Of the rows when they are padded; the first fills the batch.
LENGTHS = (17, 11, 4)
# Tokens whose logits are stored; the last ones of padded rows are among them.
STORED = (0, 1, 3, 5, 8, 10, 13, 16)
