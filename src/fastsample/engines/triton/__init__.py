"""The rule in Triton: a draw in a few kernels, for tensors on a CUDA device.

Its rooms: `numbers` (what one logit, one mass and one draw are), `settle` (parameters, a row of a
table per row of logits), `tops` (the best of each block of 64 tokens), `cuts` (where a kept set
ends in a whole row), `head` and `whole` (the filters and the draw, among the first tokens of a row
or among all), `batch` (from rows to tokens).
What adjusts logits and what is told of a draw is `engines.torch`'s.

The bits are kept as there: kernels are launched with multiply-add fusion off, sums are of integers,
and nothing on the way to a result is a library's exp or log. Logits are compared as ranks, integers
in their order, so that NaN is a number like others.
"""
