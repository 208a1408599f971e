"""Section 6 of the rule a second time, in Python's integers and floats: an oracle of the reference.

Written from the text of docs/rule.md and sharing no code with the package: slow, one number after
the other. It has the stages of the temperature, top_k, top_p, top_a, min_p and epsilon_cutoff.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

INF = math.inf
ORDER = ("temperature", "top_k", "top_p", "top_a", "min_p", "epsilon_cutoff")
OFF: dict[str, float] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "top_a": 0.0,
    "min_p": 0.0,
    "epsilon_cutoff": 0.0,
}
TIMES_OF_TOTAL = {"min_p": 0, "epsilon_cutoff": 1, "top_a": -1}
"""How often b of section 5 is in a threshold."""


def f32(x: float) -> float:
    """Round to float32: right also for one operation on two float32, done in float64."""
    return struct.unpack("f", struct.pack("f", x))[0]


def bits_of(x: float) -> int:
    return struct.unpack("<q", struct.pack("<d", x))[0]


def float_of(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<q", bits))[0]


# ---------------------------------------------------------------- sections 4 and 7

C1, C2, C3, C4, C5 = (
    float.fromhex(c)
    for c in ("0x1.62e42ap-1", "0x1.ebf9c2p-3", "0x1.c6b6e4p-5", "0x1.3ce8acp-7", "0x1.5bda40p-10")
)
G = [
    float.fromhex(g)
    for g in (
        *("0x1.5555555555593p-1", "0x1.999999997fa04p-2", "0x1.2492494229359p-2"),
        *("0x1.c71c51d8e78afp-3", "0x1.7466496cb03dep-3", "0x1.39a09d078c69fp-3"),
        "0x1.2f112df3e5244p-3",
    )
]


def ln(x: float) -> float:
    a = bits_of(x) + (0x3FF0000000000000 - 0x3FE6A09E00000000)
    e = (a >> 52) - 1023
    z = float_of((a & (2**52 - 1)) + 0x3FE6A09E00000000)
    f = z - 1
    q = f / (2 + f)
    w = q * q
    v = w * w
    r = w * (G[0] + v * (G[2] + v * (G[4] + v * G[6]))) + v * (G[1] + v * (G[3] + v * G[5]))
    h = (0.5 * f) * f
    low = q * (h + r) + e * float.fromhex("0x1.a39ef35793c76p-33")
    return e * float.fromhex("0x1.62e42feep-1") - ((h - low) - f)


def scale(temperature: float) -> float:
    return f32(min(max(1.4426950408889634 / f32(temperature), 2.0**-126), 2.0**64))


@cache
def exponent(x: float, m: float, temperature: float) -> float:
    """y of section 4."""
    if x == -INF:
        return -64.0
    gap = x - m
    return -64.0 if gap < -3.4e38 else max(f32(f32(gap) * scale(temperature)), -64.0)


@cache
def mass_of(x: float, m: float, temperature: float) -> int:
    if x == -INF:
        return 0
    y = exponent(x, m, temperature)
    k = round(y)  # half to even
    f = f32(y - k)
    p = f32(f32(C5 * f) + C4)
    for c in (C3, C2, C1, 1.0):
        p = f32(f32(p * f) + c)
    return round(p * 2.0 ** (k + 40))  # the product is exact


# ---------------------------------------------------------------- section 5


@dataclass
class Kept:
    """The kept set in section 3's order, the temperature in force, and what the stages showed."""

    tokens: list[int]
    temperature: float
    thresholds: list[float]
    is_listed: bool


def log2(x: float) -> float:
    return ln(x) * 1.4426950408889634


def kept_set(row: Sequence[float], settings: dict[str, Any], stages: Sequence[str]) -> Kept:
    values = {**OFF, **settings}
    tokens = [t for t in range(len(row)) if row[t] > -INF]
    if any(values[name] != OFF[name] for name in ORDER):
        tokens.sort(key=lambda t: (-row[t], t))
    m, temperature = max(row), 1.0
    kept = Kept(tokens, 1.0, [], False)
    has_filter = False
    for name in stages:
        v = f32(values[name])
        if name == "temperature":
            temperature = v
            kept.is_listed |= v != 1 and has_filter
            continue
        if v == OFF[name] or (name == "top_k" and v >= len(row)):
            continue
        if name in TIMES_OF_TOTAL and v <= 2.0**-60:
            continue
        has_filter = True
        kept.is_listed |= (name == "top_k" and v < 128) or (name == "top_p" and v < 0.5)
        masses = [mass_of(row[t], m, temperature) for t in kept.tokens]
        total = sum(masses)
        if name == "top_k":
            count = int(v)
        elif name == "top_p":
            count = count_to(masses, max(0, math.floor(v * 2**31) - 2**10), total)
        else:
            a = log2(v) - 2.0**-19
            b = log2(float(total)) - 40 if TIMES_OF_TOTAL[name] else 0
            t = min(f32(a + TIMES_OF_TOTAL[name] * b), -(2.0**-36))
            kept.thresholds.append(t)
            count = sum(exponent(row[token], m, temperature) >= t for token in kept.tokens)
        kept.tokens = kept.tokens[: max(count, values.get("min_keep", 1))]
    kept.temperature = temperature
    return kept


def count_to(masses: list[int], p: int, total: int) -> int:
    need = max(1, -(-p * total // 2**31))
    running = 0
    for count, mass in enumerate(masses, 1):
        running += mass
        if running >= need:
            return count
    raise AssertionError("all of them reach it")


# ---------------------------------------------------------------- section 6


def philox(
    seed: int, position: int, stream: int, purpose: int, index: int
) -> tuple[int, int, int, int]:
    k0, k1 = seed % 2**32, seed >> 32
    c0, c1, c2, c3 = position % 2**32, position >> 32, stream, purpose + 256 * index
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b % 2**32, (a >> 32) ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def clock_of(w0: int, w1: int) -> float:
    return -ln(((w0 + 2**32 * w1 >> 12) + 0.5) * 2.0**-52)


@dataclass
class Found:
    """One race: its winner, the first arrival of another token, and the margin."""

    token: int
    time: float | None = None
    height: int = -1
    runner_up: int | None = None
    end: float | None = None
    margin: float = INF
    q: int | None = None


def inverse(
    masses: dict[int, int], place: tuple[int, int, int], purpose: int, index: int = 0
) -> int:
    w0, w1, _, _ = philox(*place, purpose, index)
    r = (w0 + 2**32 * w1) * sum(masses.values()) >> 64
    running = 0
    for token in sorted(masses):
        running += masses[token]
        if running > r:
            return token
    raise AssertionError("r is below the total")


def race(
    row: Sequence[float],
    place: tuple[int, int, int],
    limit: int = 32768,
    stages: Sequence[str] = ORDER,
    **settings: Any,
) -> Found:
    """The race of one row, adjusted, with every logit normal or 0."""
    kept = kept_set(row, settings, stages)
    if len(kept.tokens) == 1:
        return Found(kept.tokens[0])
    return race_of(row, kept, place, limit)


def race_of(row: Sequence[float], kept: Kept, place: tuple[int, int, int], limit: int) -> Found:
    m, temperature = max(row[t] for t in kept.tokens), kept.temperature
    masses = {t: mass_of(row[t], m, temperature) for t in kept.tokens}
    if kept.is_listed:
        return listed(masses, place)
    v = next(v for v in range(1, 23) if len(row) <= 2**v)
    least = max(kept.thresholds, default=-INF)
    of_c = [mass_of(x, m, temperature) for x in row if exponent(x, m, temperature) >= least]
    return not_listed(masses, of_c, v, place, limit)


def listed(masses: dict[int, int], place: tuple[int, int, int]) -> Found:
    times = sorted(
        (clock_of(*philox(*place, 1, token)[:2]) / mass, token)
        for token, mass in masses.items()
        if mass > 0
    )
    (t1, winner), rest = times[0], times[1:]
    if not rest:
        return Found(winner, t1)
    t2, other = rest[0]
    return Found(winner, t1, -1, other, t2, ln(t2 / t1))


def level(masses: Iterable[int], v: int) -> int:
    """Masses count by their size in bits: 2^q or more is more than q bits."""
    most = math.isqrt(2**v // 32) if v >= 5 else 0
    sizes = sorted((mass.bit_length() for mass in masses), reverse=True)[: most + 1]
    q = max(0, 47 - v)
    while len(sizes) > most and sizes[most] > q:
        q += 1
    return q


def not_listed(
    masses: dict[int, int], of_c: list[int], v: int, place: tuple[int, int, int], limit: int
) -> Found:
    q = level(of_c, v)
    clocks = {t: clock_of(*philox(*place, 1, t)[:2]) for t, a in masses.items() if a > 2**q}
    by_clock = sorted((c / (masses[t] - 2**q), t) for t, c in clocks.items())
    h = by_clock[0][0] if by_clock else INF
    by_tail, missed, last = tail(masses, v, q, place, limit, by_clock[:2])
    if by_tail and by_tail[0].time <= h:
        first = by_tail[0]
        before = [one for one in missed if one.number < first.number]
    elif h < last:
        first = Hit(-1, h, by_clock[0][1], -1)
        before = [one for one in missed if one.time <= h]
    else:
        return Found(inverse(masses, place, 3), q=q, margin=math.nan)
    later = [(one.time, one.token) for one in by_tail] + by_clock
    others = [one for one in later if one[1] != first.token and one[0] <= last]
    # Of equal times the tail's comes first: it stands first in the list.
    t2, other = min(others, key=lambda one: one[0], default=(last, None))
    ratios = [one.height / masses[one.token] for one in before]
    ratios += [
        (2.0**q + (c / first.time if first.time else INF)) / masses[t]
        for t, c in clocks.items()
        if t != first.token
    ]
    if first.number < 0:
        ratios.append(masses[first.token] / (2.0**q + clocks[first.token] / t2))
    elif first.height:
        ratios.append(masses[first.token] / first.height)
    least = min(ratios, default=INF)
    margin = INF if least == INF else ln(max(least, 1.0))
    return Found(first.token, first.time, first.height, other, t2, margin, q)


@dataclass
class Hit:
    """An arrival: its number in the tail, or -1 by a clock."""

    number: int
    time: float
    token: int
    height: int


def tail(
    masses: dict[int, int],
    v: int,
    q: int,
    place: tuple[int, int, int],
    limit: int,
    by_clock: list[tuple[float, int]],
) -> tuple[list[Hit], list[Hit], float]:
    """Arrivals that count, those that miss a kept token, and the last time.

    Up to the limit, or until two tokens have arrived, by the tail or by their clocks.
    """
    counting: list[Hit] = []
    missed: list[Hit] = []
    steps, last = 0, 0.0
    for j in range(limit):
        w0, w1, w2, w3 = philox(*place, 2, j)
        steps += round(clock_of(w0, w1) * 2.0**32)  # half to even; the product is exact
        last = steps * 2.0**-32 * 2.0 ** -(v + q)
        point = w2 + 2**32 * w3
        token, height = point >> 64 - v, (point >> 64 - v - q) % 2**q
        mass = masses.get(token, 0)
        if mass > 0:
            (counting if mass > height else missed).append(Hit(j, last, token, height))
        arrived = {one.token for one in counting if one.time < last}
        arrived |= {token for time, token in by_clock if time < last}
        if len(arrived) > 1:
            break
    return counting, missed, last
