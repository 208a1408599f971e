"""From rows of logits to tokens: the launches in order. Log-probabilities are torch's."""

from __future__ import annotations

import torch

from fastsample.engines.reference.rows import OK, require_rounding_to_nearest
from fastsample.engines.torch import batch as torch_batch
from fastsample.engines.torch.batch import TensorOutput, TensorRequest
from fastsample.engines.torch.logprobs import Drawn, empty_logprobs, logprobs
from fastsample.engines.torch.mass import SCALE_OF_ONE, Scaling
from fastsample.engines.torch.prepare_params import Chain
from fastsample.engines.torch.select import KeptSet
from fastsample.params.ops import DrawMethod, Op

from . import full_vocab_path, topk_path
from .block_max import find_block_max
from .launch import bits_of, check_device
from .param_table import DrawBuffers, make_buffers
from .prepare_params import prepare_params


def sample(request: TensorRequest) -> TensorOutput:
    """Draw for every row, as the torch engine's function; without rows nothing is launched."""
    check_device(request.values.device)
    if not len(request.values):
        return torch_batch.sample(request)
    require_rounding_to_nearest()
    chain = request.chain
    if request.processors.are_none and not request.wanted.modes:
        out = draw(request, request.values, chain)
        return TensorOutput(*out[:3], *empty_logprobs(out.tokens, request.wanted))
    params = request.params
    raw, rows = torch_batch.process_rows(request, params)
    out = draw(request, request.values if rows is raw else rows.logits, chain)
    is_scaled = any(op == Op.SCALE for op, _ in chain.stages)
    scale = params.scale if is_scaled else torch.full_like(params.scale, SCALE_OF_ONE)
    count = out.kept_count.unsqueeze(1)
    no_threshold = torch.full_like(rows.top, -torch.inf)
    kept = KeptSet(torch.zeros_like(count), count, Scaling(rows.top, scale), no_threshold)
    is_bad = (out.status != OK).unsqueeze(1)
    drawn = Drawn(out.tokens.clamp_min(0), kept, out.total.unsqueeze(1), is_bad)
    found = logprobs(raw, rows, drawn, params, request.wanted)
    return TensorOutput(*out[:3], *found)


def draw(request: TensorRequest, logits: torch.Tensor, chain: Chain) -> DrawBuffers:
    """Draw from processed logits."""
    table = prepare_params(request)
    values = bits_of(logits)
    block_max = find_block_max(values, request.vocabulary)
    out = make_buffers(len(logits), request.draws, logits.device)
    rows = (values, request.vocabulary, block_max, table, chain, out)
    races = request.method == DrawMethod.RACE and chain.topk != 1
    listing = request.listing if races else None
    # A race that is not listed has tokens everywhere.
    is_short = listing is None or listing.all
    if is_short and 0 < chain.topk <= topk_path.MAX_TOPK:
        topk_path.draw(*rows, races)
    else:
        full_vocab_path.draw(*rows, listing)
    return out
