"""The rule in torch: batches of rows on whatever device they lie, with the bits of the reference.

Its rooms: `limbs` (wide products, rule 6's generator), `mass` (rules 4 and 7's logarithm), `rows`
(rules 1 and 3), `adjust` (rule 2), `settings` (parameters), `head` and `whole` (the filters and the
draw, among the first tokens of a row or among all), `batch` (from rows to tokens), `tell` (rule 7),
`laws` (whole rows), `op` (all of it as one operator of torch), `lay` (what came as arrays) and
`given` (what came as tensors).

These habits keep the bits, and the device busy. Every IEEE operation is an operation of its own,
and the operator is opaque, so that no compiler fuses a product and a sum. Sums are of integers.
Nothing is divided by a Python number, nor a Python number by a tensor: torch may multiply by a
reciprocal instead. No value is asked back from the device, and no shape depends on one.
"""
