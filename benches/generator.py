"""A generator of rows that look like a language model's, where no recorded ones are at hand.

Sorted, a model's logits are two things: a bulk, which follows a normal distribution down to the
hundredth token or so, and a head of a few likely tokens, far above the bulk.
Row i of a seed, with `rng = numpy.random.default_rng([seed, i])` called in this order:

    width      uniform in [3.8, 5.2): the standard deviation of the bulk
    bulk       V times width * normal, float32
    h          2**u of u uniform in [0, 6), cut to an integer: tokens in the head, 1 to 63
    where      h different tokens, each as likely
    lift       exponential of mean 6: how far the head stands out
    head       h logits: the bulk's largest + lift * (uniform in [0, 1)) - (uniform in [0, 4))

Tokens are in no order, where real vocabularies have the frequent ones in the first blocks: that is
harder for a sampler that skips blocks. `python benches/row_statistics.py` prints the sizes of the
nuclei of these rows and of recorded ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEED = 4


def make_row(vocabulary: int, number: int, seed: int = SEED) -> NDArray[np.float32]:
    """Make row `number` of a seed: float32 of shape (vocabulary,)."""
    rng = np.random.default_rng([seed, number])
    width = np.float32(rng.uniform(3.8, 5.2))
    row = rng.standard_normal(vocabulary, dtype=np.float32) * width
    count = min(int(2 ** rng.uniform(0, 6)), vocabulary)
    where = rng.choice(vocabulary, count, replace=False)
    lift = rng.exponential(6)
    row[where] = row.max() + lift * rng.uniform(0, 1, count) - rng.uniform(0, 4, count)
    return row
