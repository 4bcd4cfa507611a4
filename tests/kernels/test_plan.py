"""Plans are hashable, kept as JSON, and refuse what no kernel takes."""

import dataclasses
import json

import pytest

from icltheory.kernels import Plan, Tile
from icltheory.kernels.plan import KERNELS

PLAN = Plan(
    attention=Tile(64, 64),
    attention_backward=Tile(64, 32, num_warps=8),
    residual_mlp=Tile(64, 128, depth=32, num_stages=3),
)


def built(cls, **values):
    """Builds without the type checks that only tests have."""
    node = object.__new__(cls)
    for field in dataclasses.fields(cls):
        value = values.get(field.name, field.default)
        object.__setattr__(node, field.name, value)
    node.__post_init__()
    return node


def test_a_plan_survives_json_and_hashing():
    again = Plan.from_json(json.loads(json.dumps(PLAN.to_json())))
    assert again == PLAN
    assert hash(again) == hash(PLAN)
    assert Plan.from_json({"attention": "cudnn"}) == Plan(attention="cudnn")


def test_the_empty_plan_is_twins_all_through():
    assert Plan.twins() == Plan() == Plan.from_json({})
    for name in KERNELS:
        assert Plan.twins().tiles(name) == {"tile": None, "backward": None}


def test_a_plan_hands_out_a_kernels_keywords():
    assert PLAN.tiles("attention") == {
        "tile": Tile(64, 64),
        "backward": Tile(64, 32, num_warps=8),
    }
    with pytest.raises(ValueError, match="name: expected one of 'attention'"):
        PLAN.tiles("softmax")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"rows": 82}, "rows: expected a power of two from 16 to 4096, got 82"),
        ({"columns": 8}, "columns: expected a power of two"),
        ({"rows": True}, "rows: expected a power of two"),
        ({"depth": 24}, "depth: expected a power of two"),
        ({"columns": "16"}, "columns: expected a power of two"),
        ({"num_warps": 3}, "num_warps: expected a power of two from 1 to 16"),
        ({"num_stages": 0}, "num_stages: expected one of 1, 2, .*got 0"),
    ],
)
def test_tiles_refuse_sizes_no_program_has(sizes, message):
    with pytest.raises(ValueError, match=message):
        built(Tile, **{"rows": 64, "columns": 64, **sizes})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention": "flash"}, 'attention: expected a Tile or "cudnn" or None'),
        ({"norm_linear": "cudnn"}, "norm_linear: expected a Tile or None"),
        ({"attention_backward": Tile(16, 16)}, "expected None with attention = None"),
        (
            {"attention": "cudnn", "attention_backward": Tile(16, 16)},
            "expected None with attention = 'cudnn'",
        ),
        ({"attention": Tile(16, 16), "attention_backward": "cudnn"}, "expected a Tile"),
    ],
)
def test_plans_refuse_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        built(Plan, **fields)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"softmax": None}, r"plan: expected fields among .*got \['softmax'\]"),
        ({"attention": {"rows": 16, "columns": 16, "depht": 16}}, r"got \['depht'\]"),
        ({"attention": {"rows": 16}}, "attention: expected rows and columns"),
    ],
)
def test_a_broken_record_says_where(record, message):
    with pytest.raises(ValueError, match=message):
        Plan.from_json(record)
