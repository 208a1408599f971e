"""The filters and the draw among a row's first tokens, where the host knows how many are enough.

One program per row. First it finds that many first blocks: the tokens lie in them. Then the tokens,
which it lists ascending, so that a draw is a running sum in place.
"""

from __future__ import annotations

from torch import Tensor

from fastsample.torch_rule.settings import Chain

from .table import Drawn


def draw(
    values: Tensor, vocabulary: int, block_ranks: Tensor, table: Tensor, chain: Chain, out: Drawn
) -> None:
    """Draw from every row; `whole.draw` takes and does the same.

    Parameters
    ----------
    values : tensor of shape (B, columns), of any strides
        Logits as `launch.bits_of` gives them. Columns past the vocabulary are not looked at.
    vocabulary : int
    block_ranks : int32 tensor of shape (B, ceil(vocabulary / 64)), contiguous
        The largest rank in each block of 64 tokens; above `numbers.PLUS_INF` for NaN.
    table : int64 tensor of shape (B, `table.COLUMNS`), contiguous
        The settings of each row, on the device.
    chain : Chain
        The stages that may act in some row, as the host knows it. `head`, here above 0, is how
        many first tokens are enough in every row.
    out : Drawn
        Written, all of it.
    """
