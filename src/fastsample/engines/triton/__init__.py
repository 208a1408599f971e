"""The rule in Triton: a draw in a few kernels, for tensors on a CUDA device.

`prepare_params` computes the parameters, a row of `param_table` for each row of logits; `block_max`
the largest logit of each block of 64 tokens. Then `topk_path` filters and draws among the top
tokens of a row, or `full_vocab_path` among all, by `threshold_search`. `ordinal`, `mass`, `draw`,
`select` and `int64_math` are functions that kernels call; `batch` is the order of the launches.
Logits processors and log-probabilities are the torch engine's.

The bits are kept as there: kernels are launched with multiply-add fusion off, sums are of integers,
and no result depends on a library's exp or log. Logits are compared as ordinals, integers in their
order, so that NaN is a number like others.
"""
