"""Values that a conversion could change (V01 to V10); what two formats both have is in test_values."""

import math
import os
import random
import struct

from attacks import scene
from files import Tensor, npy, read_npz, read_safetensors, safetensors, values
from harness import DIFFERENT, OK, UNSUPPORTED, check_equal, expect, text
from test_values import HALVES, converted, tensor_of

CPUS = ({"TCONV_CPU": "plain"}, {})  # whatever instructions there are
QUIET = ("--lossy", "-q")


def cast(folder, tensor, *dtypes, env=None):
    """A tensor after one conversion to each of these dtypes."""
    (folder / "0.safetensors").write_bytes(safetensors({"w": tensor}))
    for number, dtype in enumerate(dtypes):
        names = (f"{number}.safetensors", f"{number + 1}.safetensors")
        expect(folder, OK, *names, "--dtype", f".*={dtype}", *QUIET, env=env)
    return read_safetensors(folder / f"{len(dtypes)}.safetensors")["w"]


def singles(patterns):
    return Tensor("F32", [len(patterns)], struct.pack(f"<{len(patterns)}I", *patterns))


def doubles(numbers):
    return Tensor("F64", [len(numbers)], struct.pack(f"<{len(numbers)}d", *numbers))


@scene("V01", "F16", "BF16", "F32", "F64")
def every_pattern(dtype, folder):
    for target in ("safetensors", "deathtensors", "pt"):
        tensor = tensor_of(dtype)
        check_equal(converted(folder, tensor, target) == tensor, True, f"{dtype} in {target}")


@scene("V02", "F32 by F64", "F16 by F32", "BF16 by F32", "F16 by F64")
def wider_and_back(way, folder):
    """Every NaN keeps its sign and payload, a signalling one too."""
    narrow, wide = way.split(" by ")
    dice = random.Random(2)
    payloads = [1, 1 << 21, (1 << 22) - 1, 1 << 22, (1 << 23) - 1]
    payloads += [dice.randrange(1, 1 << 23) for _ in range(500)]
    patterns = [sign << 31 | 0xFF << 23 | payload for payload in payloads for sign in (0, 1)]
    tensor = singles(patterns) if narrow == "F32" else Tensor(narrow, [65536], HALVES)
    for env in CPUS:
        check_equal(cast(folder, tensor, wide, narrow, env=env) == tensor, True, f"{way}, {env}")


@scene("V03", "F32 by F64", "F64 by F32", "F16 by F32")
def subnormal(way, folder):
    """As exact as others. A build with -ffast-math flushes them to zero, and fails here."""
    first, second = way.split(" by ")
    if first == "F32":
        tensor = singles([*range(1, 200), (1 << 23) - 1, 1 << 22, 1 << 31 | 1, 1 << 31 | 0x7FFFFF])
    elif first == "F64":
        tensor = doubles([math.ldexp(count, -149) for count in (1, -1, 3, 8388607, -8388607)])
    else:
        tensor = Tensor("F16", [1023], struct.pack("<1023H", *range(1, 1024)))
    for env in CPUS:
        check_equal(values(cast(folder, tensor, second, env=env)), values(tensor), f"{way}, {env}")
        check_equal(cast(folder, tensor, second, first, env=env), tensor, f"{way} and back, {env}")


def half(value):
    """The bits of the nearest half, ties to even, by Python."""
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


@scene("V04")
def doubles_to_halves(folder):
    """Rounded once: by way of F32 a tie would be made, and rounded again."""
    dice, numbers = random.Random(4), [65519.999, 65520.0, 65520.001, 65536.0, 1e300, 2.0**-25]
    for bits in [0, 1, 2, 0x3FF, 0x400, 0x3C00, 0x7BFE] + [dice.randrange(0x7BFF) for _ in range(400)]:
        low, high = struct.unpack("<2e", struct.pack("<2H", bits, bits + 1))
        tie = (low + high) / 2
        numbers += [tie, *(tie * (1 + sign * 2.0**-power) for power in (52, 40, 30, 26, 24) for sign in (1, -1))]
    numbers += [-number for number in numbers] + [math.inf, -math.inf, 0.0, -0.0]
    expected = Tensor("F16", [len(numbers)], struct.pack(f"<{len(numbers)}H", *map(half, numbers)))
    for env in CPUS:
        check_equal(cast(folder, doubles(numbers), "F16", env=env) == expected, True, f"halves, {env}")


@scene("V05", "F64", "F32")
def large_integers(dtype, folder):
    tensor = Tensor("I64", [3], struct.pack("<3q", 2**53 + 1, 1, -(2**53) - 1))
    (folder / "in.safetensors").write_bytes(safetensors({"w": tensor}))
    convert = ("in.safetensors", "out.safetensors", "--dtype", f".*={dtype}")
    expect(folder, UNSUPPORTED, *convert)
    result = expect(folder, OK, *convert, "--lossy")
    check_equal("values: 2 changed" in text(result.err), True, "the count is reported", result)


@scene("V06", "I8", "U8", "I32", "I64", "U64")
def no_integer(dtype, folder):
    """What no integer is has no defined value in C: refused, or the nearest where one asks for it."""
    (folder / "in.safetensors").write_bytes(
        safetensors({"w": doubles([math.nan, math.inf, -math.inf, 1e300, -1e300, 7.0])})
    )
    convert = ("in.safetensors", "out.safetensors", "--dtype", f".*={dtype}")
    expect(folder, UNSUPPORTED, *convert)
    expect(folder, UNSUPPORTED, *convert, "--lossy")
    expect(folder, OK, *convert, "--lossy", "--saturate", "-q")
    bits = int(dtype[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype[0] == "I" else (0, 2**bits - 1)
    got = values(read_safetensors(folder / "out.safetensors")["w"])
    check_equal(got, [0, high, low, high, low, 7], "the nearest")


@scene("V07")
def truths(folder):
    """Copied as they are where they stay truths, 0 and 1 as anything else; `verify` reports them."""
    odd = Tensor("BOOL", [5], bytes((0, 1, 2, 128, 255)))
    (folder / "in.safetensors").write_bytes(safetensors({"w": odd}))
    for target in ("out.npz", "out.deathtensors", "out.pt"):
        expect(folder, OK, "in.safetensors", target)
        expect(folder, OK, target, "back.safetensors")
        check_equal(read_safetensors(folder / "back.safetensors")["w"], odd, f"by way of {target}")
    expect(folder, OK, "in.safetensors", "other.safetensors", "--dtype", ".*=U8", "-q")
    expected = Tensor("U8", [5], bytes((0, 1, 1, 1, 1)))
    check_equal(read_safetensors(folder / "other.safetensors")["w"], expected, "as U8")
    expect(folder, DIFFERENT, "verify", "in.safetensors")


@scene("V08")
def no_such_dtype(folder):
    tensors = {"u": Tensor("U64", [1], bytes(8))}
    (folder / "u.safetensors").write_bytes(safetensors(tensors))
    expect(folder, UNSUPPORTED, "u.safetensors", "out.ot")
    (folder / "c.npy").write_bytes(npy("<c16", (1,), bytes(16)))
    expect(folder, UNSUPPORTED, "c.npy", "out.safetensors")
    kinds = ("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ")
    (folder / "f8.safetensors").write_bytes(safetensors({kind: tensor_of(kind) for kind in kinds}))
    expect(folder, OK, "f8.safetensors", "f8.npz", "-q")
    wide = read_npz(folder / "f8.npz")
    for kind in kinds:
        check_equal(wide[kind].dtype, "F16", "dtype")
        check_equal(list(map(repr, values(wide[kind]))), list(map(repr, values(tensor_of(kind)))), kind)
    check_equal(len({wide[kind].data for kind in kinds}), 4, "no two are alike")


@scene("V09", "C64", "C128")
def big_endian_complex(dtype, folder):
    """Each of the two numbers is turned round, and they keep their places."""
    code, size = ("f", 8) if dtype == "C64" else ("d", 16)
    numbers = (1.0, -2.0, 0.5, math.inf)
    (folder / "w.npy").write_bytes(npy(f">c{size}", (2,), struct.pack(f">4{code}", *numbers)))
    expect(folder, OK, "w.npy", "out.npz")
    expected = Tensor(dtype, [2], struct.pack(f"<4{code}", *numbers))
    check_equal(read_npz(folder / "out.npz")["w"], expected, "swapped")


@scene("V10", "npy in Fortran's order")
def far_elements(_, folder):
    """Rows whose elements lie beyond 2**31 and 2**32 bytes into the data."""
    rows = 2**31 + 16
    (folder / "w.npy").write_bytes(npy("|u1", (rows, 3), b"", fortran=True))
    begin = (folder / "w.npy").stat().st_size
    os.truncate(folder / "w.npy", begin + 3 * rows)
    with open(folder / "w.npy", "r+b") as file:
        for row in range(rows - 8, rows):
            for column in range(3):
                file.seek(begin + column * rows + row)
                file.write(bytes([16 * column + rows - row]))
    expect(folder, OK, "w.npy", "out.npz", "--rows", f"w={rows - 8}:{rows}")
    expected = bytes(16 * column + back for back in range(8, 0, -1) for column in range(3))
    check_equal(read_npz(folder / "out.npz")["w"], Tensor("U8", [8, 3], expected), "the last rows")
