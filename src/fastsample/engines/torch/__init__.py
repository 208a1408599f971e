"""The rule in torch: batches of rows on any device, with the bits of the reference.

`engine` takes arrays, `operator` tensors; `batch` is the order of the steps: `ordinal` (sections 1
and 3), `penalties` (2), `mass` (4), `select` (5) with its two forms of a row's tokens, `topk_path`
and `full_vocab_path`, then `draw` and `race` (6; `listing` and `clocks` are parts of it) and
`logprobs` (7).

Four habits keep the bits, and the device busy. Every IEEE operation is an operation of its own, and
the operator is opaque, so that no compiler fuses a product and a sum. Sums are of integers. Nothing
is divided by a Python number, nor a Python number by a tensor: torch may multiply by a reciprocal
instead. No value is read back from the device, and no shape depends on one.
"""
