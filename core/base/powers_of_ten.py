#!/usr/bin/env python3
"""Writes the table of powers of ten that core/base/digits.c multiplies with.

Entry k - LEAST holds 10**k as g * 2**e, where g has exactly 128 bits and is rounded up; g is written as
its high and low half. The powers 0 to 55 are exact. The exponents are those that doubles need.
"""
import sys
from fractions import Fraction

LEAST, MOST = -292, 324


def leading_bits(k: int) -> int:
    power = Fraction(10) ** k
    # The number of bits tells the exponent but for one.
    exponent = power.numerator.bit_length() - power.denominator.bit_length() - 128
    while power / Fraction(2) ** exponent >= 1 << 128:
        exponent += 1
    while power / Fraction(2) ** exponent < 1 << 127:
        exponent -= 1
    scaled = power / Fraction(2) ** exponent
    return -(-scaled.numerator // scaled.denominator)


with open(sys.argv[1], "w") as out:
    out.write('#include "core/base/powers_of_ten.h"\n\n')
    out.write("const uint64_t tc_powers_of_ten[TC_MOST_POWER - TC_LEAST_POWER + 1][2] = {\n")
    for k in range(LEAST, MOST + 1):
        high, low = divmod(leading_bits(k), 1 << 64)
        out.write(f"    {{UINT64_C({high:#018x}), UINT64_C({low:#018x})}}, /* {k} */\n")
    out.write("};\n")
