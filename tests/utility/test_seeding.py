from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from digideep.errors import CheckpointError
from digideep.utility.seeding import (
    derive,
    generator,
    generator_state,
    rng_state,
    seed_everything,
    set_generator_state,
    set_rng_state,
)


def test_derived_seeds_are_the_same_in_every_process() -> None:
    code = "from digideep.utility.seeding import derive; print(derive(1, 'train', 0), derive(7, 'eval', 12))"

    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert printed.split() == [str(derive(1, "train", 0)), str(derive(7, "eval", 12))]
    assert (derive(1, "train", 0), derive(7, "eval", 12)) == (1584534238, 788338634)


def test_seeds_depend_on_every_name_its_type_and_the_order() -> None:
    seeds = [
        derive(1),
        derive(2),
        derive(1, "train", 0),
        derive(1, "train", 1),
        derive(1, "train", "1"),
        derive(1, "eval", 1),
        derive(1, 1, "eval"),
        derive(1, "a", "b"),
        derive(1, "ab"),
        derive(1, "a/str:1:b"),
    ]

    assert len(set(seeds)) == len(seeds)


def test_seeds_fit_in_31_bits() -> None:
    seeds = [derive(seed, "train", i) for seed in (0, -5, 2**63) for i in range(200)]

    assert all(0 <= seed < 2**31 for seed in seeds)
    assert len(set(seeds)) == len(seeds)


def test_seeding_imports_no_torch() -> None:
    code = "import sys, digideep.utility.seeding as s; s.rng_state(); print('torch' in sys.modules)"

    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert printed.strip() == "False"


def test_a_generator_goes_on_where_its_state_was_taken() -> None:
    rng = generator(3, "noise")
    rng.standard_normal(5)
    state = generator_state(rng)
    expected = rng.standard_normal(4)

    other = generator(99)
    set_generator_state(other, state)

    np.testing.assert_array_equal(other.standard_normal(4), expected)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_the_state_of_every_kind_of_generator_is_plain_and_untouched_by_draws(kind: type) -> None:
    rng = np.random.Generator(kind(1))
    state = generator_state(rng)
    before = json.dumps(state, default=lambda array: array.tolist())

    expected = rng.random(3)

    assert json.dumps(state, default=lambda array: array.tolist()) == before
    set_generator_state(rng, state)
    np.testing.assert_array_equal(rng.random(3), expected)


def test_a_state_of_another_kind_of_generator_is_refused() -> None:
    state = generator_state(np.random.Generator(np.random.MT19937(1)))

    with pytest.raises(CheckpointError, match="expected the state of a PCG64, found 'MT19937'"):
        set_generator_state(generator(1), state)


def test_every_global_generator_goes_on_where_its_state_was_taken() -> None:
    import torch

    seed_everything(5)
    random.gauss(0.0, 1.0)
    np.random.standard_normal()
    torch.randn(3)
    state = rng_state()
    expected = (random.gauss(0.0, 1.0), np.random.standard_normal(3).tolist(), torch.randn(3).tolist())

    seed_everything(6)
    set_rng_state(state)

    assert (random.gauss(0.0, 1.0), np.random.standard_normal(3).tolist(), torch.randn(3).tolist()) == expected


def test_one_seed_gives_one_stream_in_every_library() -> None:
    import torch

    streams = []
    for seed in (5, 5, 6):
        seed_everything(seed)
        streams.append((random.random(), float(np.random.random()), float(torch.rand(()))))

    assert streams[0] == streams[1]
    assert all(a != b for a, b in zip(streams[0], streams[2], strict=True))


def test_the_global_state_survives_the_codec() -> None:
    from digideep.utility.codec import decode, encode

    seed_everything(7)
    random.gauss(0.0, 1.0)
    state = rng_state()
    expected = (random.gauss(0.0, 1.0), float(np.random.random()))

    encoded = encode(state)
    set_rng_state(decode(json.loads(json.dumps(encoded.json)), encoded.arrays))

    assert (random.gauss(0.0, 1.0), float(np.random.random())) == expected
