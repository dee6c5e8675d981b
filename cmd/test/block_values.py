"""The values of ggml's block dtypes, a block at a time, by formulas of their own.

Every product and sum is exact in a Python float (of scales with 11 bits, of small integers, within
51 bits), so that the only rounding is the last one, to F32.
"""

import json
import math
import struct
from pathlib import Path

from gguf_files import DTYPES

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1_TWICE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def half(data, at):
    return struct.unpack_from("<e", data, at)[0]


def word(data, at, size=2):
    return int.from_bytes(data[at : at + size], "little")


def bits(data, width):
    """All numbers of `width` bits, from the lowest bit of the first byte on."""
    whole, mask = int.from_bytes(data, "little"), (1 << width) - 1
    return [whole >> at & mask for at in range(0, 8 * len(data), width)]


def halves(data):
    """Nibbles of a block: all the low ones first."""
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


def planes(data, width, run):
    """Numbers of `width` bits: of each `run` bytes first all the lowest ones, then the next."""
    return [
        byte >> shift & ((1 << width) - 1)
        for start in range(0, len(data), run)
        for shift in range(0, 8, width)
        for byte in data[start : start + run]
    ]


def negated(value, negative):
    return -value if negative else value


def book(name):
    """The entries of a codebook, each a list of its values."""
    row = json.loads((Path(__file__).parents[2] / "testdata/gguf/codebooks.json").read_text())[name]
    size = row["bits"] * row["per_entry"] // 8
    data = bytes.fromhex(row["hex"])
    return [
        [row["values"][code] for code in bits(data[at : at + size], row["bits"])]
        for at in range(0, len(data), size)
    ]


BOOKS = {name: book(name) for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")}


def signed(entry, signs):
    return [negated(float(value), signs >> j & 1) for j, value in enumerate(entry)]


def with_parity(seven):
    return seven | (seven.bit_count() & 1) << 7


def scaled(scale, values):
    return [scale * value for value in values]


def five_bits(low, high):
    return [nibble | bit << 4 for nibble, bit in zip(halves(low), bits(high, 1))]


def q4_0(b):
    return scaled(half(b, 0), (q - 8.0 for q in halves(b[2:])))


def q4_1(b):
    return [half(b, 0) * q + half(b, 2) for q in halves(b[4:])]


def q5_0(b):
    return scaled(half(b, 0), (q - 16.0 for q in five_bits(b[6:], b[2:6])))


def q5_1(b):
    return [half(b, 0) * q + half(b, 2) for q in five_bits(b[8:], b[4:8])]


def q8_0(b):
    return scaled(half(b, 0), map(float, struct.unpack("<32b", b[2:])))


def q2_k(b):
    q = planes(b[16:80], 2, 32)
    return [
        half(b, 80) * (b[e // 16] & 15) * q[e] - half(b, 82) * (b[e // 16] >> 4) for e in range(256)
    ]


def q3_k(b):
    q, high = planes(b[32:96], 2, 32), planes(b[:32], 1, 32)
    low, top = planes(b[96:104], 4, 8), planes(b[104:108], 2, 4)
    scales = [low[g] + 16 * top[g] - 32 for g in range(16)]
    return [half(b, 108) * scales[e // 16] * (q[e] + 4 * high[e] - 4) for e in range(256)]


def six_bits(sc):
    """Eight scales and eight minima of 6 bits in 12 bytes."""
    first = [byte & 63 for byte in sc[:8]]
    scales, minima = first[:4], first[4:]
    for g in range(4):
        scales.append(sc[8 + g] & 15 | sc[g] >> 6 << 4)
        minima.append(sc[8 + g] >> 4 | sc[4 + g] >> 6 << 4)
    return scales, minima


def k_values(b, q):
    scales, minima = six_bits(b[4:16])
    return [
        half(b, 0) * scales[e // 32] * q[e] - half(b, 2) * minima[e // 32] for e in range(256)
    ]


def q4_k(b):
    return k_values(b, planes(b[16:], 4, 32))


def q5_k(b):
    low, high = planes(b[48:], 4, 32), planes(b[16:48], 1, 32)
    return k_values(b, [q + 16 * top for q, top in zip(low, high)])


def q6_k(b):
    low, high = planes(b[:128], 4, 64), planes(b[128:192], 2, 32)
    scales = struct.unpack("<16b", b[192:208])
    return [half(b, 208) * scales[e // 16] * (low[e] + 16 * high[e] - 32) for e in range(256)]


def iq2_xxs(b):
    values = []
    for at in range(2, 66, 8):
        s = word(b, at + 4, 4)
        for l in range(4):
            entry = signed(BOOKS["IQ2_XXS"][b[at + l]], with_parity(s >> 7 * l & 127))
            values += scaled(half(b, 0) * (0.5 + (s >> 28)) * 0.25, entry)
    return values


def iq2_xs(b):
    nibbles, values = bits(b[66:], 4), []
    for run in range(32):
        q = word(b, 2 + 2 * run)
        entry = signed(BOOKS["IQ2_XS"][q & 511], with_parity(q >> 9))
        values += scaled(half(b, 0) * (0.5 + nibbles[run // 2]) * 0.25, entry)
    return values


def iq2_s(b):
    nibbles, high, values = bits(b[74:], 4), bits(b[66:74], 2), []
    for run in range(32):
        entry = signed(BOOKS["IQ2_S"][b[2 + run] | high[run] << 8], b[34 + run])
        values += scaled(half(b, 0) * (0.5 + nibbles[run // 2]) * 0.25, entry)
    return values


def iq3_xxs(b):
    values = []
    for run in range(32):
        s = word(b, 66 + run // 4 * 4, 4)
        pair = BOOKS["IQ3_XXS"][b[2 + 2 * run]] + BOOKS["IQ3_XXS"][b[3 + 2 * run]]
        entry = signed(pair, with_parity(s >> 7 * (run % 4) & 127))
        values += scaled(half(b, 0) * (0.5 + (s >> 28)) * 0.5, entry)
    return values


def iq3_s(b):
    high, nibbles, values = bits(b[66:74], 1), bits(b[106:], 4), []
    for run in range(32):
        indexes = [b[2 + i] | high[i] << 8 for i in (2 * run, 2 * run + 1)]
        entry = signed(BOOKS["IQ3_S"][indexes[0]] + BOOKS["IQ3_S"][indexes[1]], b[74 + run])
        values += scaled(half(b, 0) * (1 + 2 * nibbles[run // 4]), entry)
    return values


def iq1_values(scale, index, minus):
    return [scale * (point + (-0.125 if minus else 0.125)) for point in BOOKS["IQ1_S"][index]]


def iq1_s(b):
    values = []
    for run in range(32):
        h = word(b, 34 + 2 * (run // 4))
        index = b[2 + run] | (h >> 3 * (run % 4) & 7) << 8
        values += iq1_values(half(b, 0) * (2 * (h >> 12 & 7) + 1), index, h >> 15)
    return values


def iq1_m(b):
    s, nibbles, values = [word(b, 48 + 2 * i) for i in range(4)], bits(b[32:48], 4), []
    d = half(struct.pack("<H", sum((s[i] >> 12) << 4 * i for i in range(4))), 0)
    small = [s[i // 4] >> 3 * (i % 4) & 7 for i in range(16)]
    for run in range(32):
        n = nibbles[run]
        values += iq1_values(d * (2 * small[run // 2] + 1), b[run] | (n & 7) << 8, n & 8)
    return values


def iq4_nl(b):
    return [half(b, 0) * IQ4[q] for q in halves(b[2:])]


def iq4_xs(b):
    low, high, values = bits(b[4:8], 4), bits(b[2:4], 2), []
    for g in range(8):
        scale = half(b, 0) * ((low[g] | high[g] << 4) - 32)
        values += [scale * IQ4[q] for q in halves(b[8 + 16 * g : 24 + 16 * g])]
    return values


def tq1_0(b):
    digits = []
    for part, count in ((b[:32], 5), (b[32:48], 5), (b[48:52], 4)):
        for n in range(count):
            digits += [(byte * 3**n % 256) * 3 // 256 - 1 for byte in part]
    return scaled(half(b, 52), map(float, digits))


def tq2_0(b):
    return scaled(half(b, 64), (q - 1.0 for q in planes(b[:64], 2, 32)))


def mxfp4(b):
    return [math.ldexp(E2M1_TWICE[q], b[0] - 128) for q in halves(b[1:])]


def ue4m3(byte):
    code = byte & 127
    if byte == 127:
        return 0.0
    return math.ldexp(code & 7, -9) if code < 8 else math.ldexp(8 + code % 8, code // 8 - 10)


def nvfp4(b):
    values = []
    for g in range(4):
        values += [0.5 * ue4m3(b[g]) * E2M1_TWICE[q] for q in halves(b[4 + 8 * g : 12 + 8 * g])]
    return values


def q1_0(b):
    return [negated(half(b, 0), not bit) for bit in bits(b[2:], 1)]


def q2_0(b):
    return scaled(half(b, 0), (q - 1.0 for q in bits(b[2:], 2)))


MAKERS = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ2_XXS": iq2_xxs,
    "IQ2_XS": iq2_xs,
    "IQ2_S": iq2_s,
    "IQ3_XXS": iq3_xxs,
    "IQ3_S": iq3_s,
    "IQ1_S": iq1_s,
    "IQ1_M": iq1_m,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
    "TQ1_0": tq1_0,
    "TQ2_0": tq2_0,
    "MXFP4": mxfp4,
    "NVFP4": nvfp4,
    "Q1_0": q1_0,
    "Q2_0": q2_0,
}
# Where a block's F16 scales are; the others have none, or its bits in four places.
SCALES = {name: (0,) for name in MAKERS if name not in ("MXFP4", "NVFP4", "IQ1_M")}
SCALES.update(
    {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2)},
    Q5_K=(0, 2),
    Q6_K=(208,),
    TQ1_0=(52,),
    TQ2_0=(64,),
)


def make_block(dtype, dice):
    """Random bytes whose scales are finite: what NaN becomes is the processor's choice."""
    block = bytearray(dice.randbytes(DTYPES[dtype][2]))
    for at in SCALES.get(dtype, ()):
        if block[at + 1] & 0x7C == 0x7C:
            block[at + 1] &= 0xBF
    if dtype == "IQ1_M" and block[55] & 0x70 == 0x70:
        block[55] &= 0xBF
    return bytes(block)


def to_f32(value):
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def dequantise(dtype, data):
    """The bytes of the F32 values."""
    size = DTYPES[dtype][2]
    blocks = (MAKERS[dtype](data[at : at + size]) for at in range(0, len(data), size))
    return b"".join(to_f32(value) for block in blocks for value in block)
