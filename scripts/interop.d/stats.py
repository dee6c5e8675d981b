"""`tconv stats` against exact arithmetic on numpy's values, and against deathtensors' own statistics."""
import json
import math
from fractions import Fraction

import ml_dtypes
import numpy as np

from models import NUMPY, Model, Tensor
from peers import Deathtensors, Npz, is_available, safetensors_by_hand

FLOATS = {
    "F16": np.float16, "F32": np.float32, "F64": np.float64, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
PACKED = {
    "F4": ml_dtypes.float4_e2m1fn, "F6_E2M3": ml_dtypes.float6_e2m3fn, "F6_E3M2": ml_dtypes.float6_e3m2fn,
}  # fmt: skip
COUNTS = [0, 1, 2, 3, 7, 8, 9, 1000, 1023, 1024, 1025, 5000]


def run(checks, tconv):
    random = np.random.default_rng(11)
    for label, tensors in {
        "every bit pattern": dict(bit_patterns(random)),
        "random bits": dict(random_bits(random)),
        "distributions": dict(distributions(random)),
        "packed": dict(packed(random)),
    }.items():
        with checks.case(label), tconv.folder() as folder:
            check_exact(checks, tconv, folder, tensors)
    with checks.case("several pieces"), tconv.folder() as folder:
        check_pieces(checks, tconv, folder, random)
    with checks.case("numpy"), tconv.folder() as folder:
        check_numpy(checks, tconv, folder, random)
    with checks.case("histograms"), tconv.folder() as folder:
        check_histograms(checks, tconv, folder, random)
    if is_available("deathtensors"):
        with checks.case("deathtensors"), tconv.folder() as folder:
            check_deathtensors(checks, tconv, folder, random)
    else:
        checks.skipped.append("deathtensors' statistics")


def bit_patterns(random):
    for dtype, kind in FLOATS.items():
        bits = np.dtype(kind).itemsize * 8
        if bits <= 16:
            codes = np.arange(1 << bits, dtype=f"<u{bits // 8}")
            random.shuffle(codes)
            yield dtype, (dtype, codes.view(kind))


def random_bits(random):
    for dtype, kind in {**FLOATS, **{name: np.dtype(code) for name, code in NUMPY.items()}}.items():
        if dtype.startswith("C"):  # see distributions: a sum of random magnitudes is infinite
            continue
        for count in COUNTS:
            data = random.bytes(count * np.dtype(kind).itemsize)
            data = bytes(byte & 1 for byte in data) if dtype == "BOOL" else data
            yield f"{dtype}.{count}", (dtype, np.frombuffer(data, kind))


def distributions(random):
    """What weights, optimizers and awkward people have in their tensors."""
    for dtype, kind in FLOATS.items():
        if np.dtype(kind).itemsize == 1:
            continue
        for count in (10, 3000):
            values = {
                "normal": random.standard_normal(count) * 0.02,
                "mean far from zero": 1000 + random.standard_normal(count),
                "constant": np.full(count, 0.1),
                "moments of Adam": np.exp(random.uniform(-60, -5, count)),
                "cancelling": np.concatenate([x := random.standard_normal(count // 2) * 1e4, -x, [1e-4]]),
                "signed zeros": random.choice([0.0, -0.0], count),
                "one large": np.concatenate([[3e4], random.standard_normal(count) * 1e-6]),
                "with NaN and Inf": random.choice([1, 2.5, np.nan, np.inf, -np.inf, 0], count),
                "only NaN": np.full(count, np.nan),
            }
            for name, array in values.items():
                yield f"{dtype}.{name}.{count}", (dtype, array.astype(kind))
    for dtype in ("C64", "C128"):
        values = random.standard_normal(3000) + 1j * random.standard_normal(3000)
        yield dtype, (dtype, values.astype(NUMPY[dtype]))
    yield "BOOL.odd", ("BOOL", np.frombuffer(bytes(range(256)), np.bool_))


def packed(random):
    for dtype, kind in PACKED.items():
        bits = 4 if dtype == "F4" else 6
        for count in (4, 64, 4096):
            codes = random.integers(0, 1 << bits, count, dtype=np.uint8)
            stream = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :bits]
            data = np.packbits(stream.ravel(), bitorder="little").tobytes()
            yield f"{dtype}.{count}", (dtype, codes.view(kind), data)


def check_exact(checks, tconv, folder, tensors):
    path = folder / "model.deathtensors"
    model = Model({name: as_tensor(*parts) for name, parts in tensors.items()})
    if all(dtype in {*NUMPY, "BF16"} for dtype, *_ in tensors.values()):
        if is_available("deathtensors"):
            Deathtensors(False, False).write(path, model)
    if not path.exists():
        held = model.only(lambda name, tensor: tensor.dtype != "C128")
        path = folder / "model.safetensors"
        path.write_bytes(safetensors_by_hand(held, list(held.tensors)))
    output = tconv.run("stats", "--json", path)
    if output is None:
        return
    found = {entry["name"]: entry for entry in json.loads(output)["tensors"]}
    for name, parts in tensors.items():
        if name in found:
            checks.equal(name, facts(found[name]), reference(*parts[:2]))


def as_tensor(dtype, array, data=None):
    return Tensor(dtype, array.shape, array.tobytes() if data is None else data)


def facts(entry):
    return {key: entry[key] for key in ("count", "min", "max", "mean", "stddev", "zeros", "nnz", "nan", "inf")}


def reference(dtype, array):
    """By fractions, rounded once."""
    if dtype.startswith("C"):
        array = np.hypot(array.real.astype(np.float64), array.imag.astype(np.float64))
    elif dtype == "BOOL":
        array = array.view(np.uint8) != 0
    elif array.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            array = array.astype(np.float64)
    values = array.tolist()
    finite = [value for value in values if math.isfinite(value)]
    nan = sum(value != value for value in values)
    zeros = sum(value == 0 for value in finite)
    result = dict(
        count=len(values), zeros=zeros, nnz=len(finite) - zeros, nan=nan, inf=len(values) - len(finite) - nan,
        min="NaN", max="NaN", mean="NaN", stddev="NaN",
    )  # fmt: skip
    if finite:
        total, squares = (sum(Fraction(value) ** power for value in finite) for power in (1, 2))
        mean = total / len(finite)
        result |= dict(min=min(finite), max=max(finite), mean=float(mean))
        result["stddev"] = square_root(squares / len(finite) - mean * mean)
    return result


def square_root(number: Fraction) -> float:
    """Correctly rounded."""
    if number == 0:
        return 0.0
    shift = max(0, 130 - (number.numerator.bit_length() - number.denominator.bit_length()))
    shift += shift % 2
    scaled, rest = divmod(number.numerator << shift, number.denominator)
    root = math.isqrt(scaled)
    root = root << 1 | (rest != 0 or root * root != scaled)
    return float(Fraction(root, 1 << (shift // 2 + 1)))


def check_pieces(checks, tconv, folder, random):
    """More bytes than one thread takes at once; math.fsum is exact too."""
    array = (random.standard_normal(9_000_000) * 0.02).astype(np.float32)
    array[1234567] = 12345.678
    np.savez(folder / "stored.npz", w=array)
    np.savez_compressed(folder / "deflated.npz", w=array)
    values = array.astype(np.float64)
    mean = math.fsum(values) / len(values)
    want = {
        "mean": mean, "min": float(array.min()), "max": float(array.max()),
        "stddev": square_root(Fraction(math.fsum(values * values)) / len(values) - Fraction(mean) ** 2),
    }  # fmt: skip
    outputs = {}
    for name in ("stored.npz", "deflated.npz"):
        output = tconv.run("stats", "--json", folder / name)
        if output is not None:
            entry = outputs[name] = json.loads(output)["tensors"][0]
            checks.true(
                all(abs(entry[key] - value) <= math.ulp(value) for key, value in want.items()),
                lambda: f"{name}: got {entry}, expected {want}",
            )
    checks.equal("the same in sequence", outputs.get("deflated.npz"), outputs.get("stored.npz"))


def check_numpy(checks, tconv, folder, random):
    """numpy's own functions, which round at every step."""
    for dtype in ("I8", "U16", "I32", "U32", "I64", "U64", "F64"):
        values = random.integers(-100, 100, 4000) if dtype[0] == "I" else random.integers(0, 200, 4000)
        array = values.astype(NUMPY[dtype]) if dtype[0] in "IU" else random.standard_normal(4000)
        Npz(False).write(folder / "a.npz", Model({"a": Tensor.of(array)}))
        output = tconv.run("stats", "--json", folder / "a.npz")
        if output is None:
            continue
        entry = json.loads(output)["tensors"][0]
        checks.equal(f"{dtype} extremes", (entry["min"], entry["max"]), (array.min().item(), array.max().item()))
        checks.equal(f"{dtype} nnz", entry["nnz"], int(np.count_nonzero(array)))
        for key, want in (("mean", array.mean()), ("stddev", array.std())):
            checks.true(
                math.isclose(entry[key], want, rel_tol=1e-12, abs_tol=1e-14),
                lambda: f"{dtype} {key}: got {entry[key]}, expected {want}",
            )


def check_histograms(checks, tconv, folder, random):
    arrays = {
        "normal": random.standard_normal(100_000).astype(np.float32),
        "edges": random.integers(0, 41, 5000).astype(np.float16),
        "tenths": random.integers(-100, 100, 5000) / 10,
        "one value": np.full(7, 3.0),
        "integers": random.integers(-1000, 1000, 5000, dtype=np.int16),
        "with NaN": np.array([1, 2, np.nan, np.inf, 5]),
        "huge": np.array([-1.7e308, 0, 1.7e308]),
        "nothing": np.zeros(0),
    }
    np.savez(folder / "a.npz", **arrays)
    output = tconv.run("stats", "--plot", "--json", folder / "a.npz")
    for entry in json.loads(output)["tensors"] if output else []:
        values = arrays[entry["name"]].astype(np.float64)
        values = values[np.isfinite(values)] / (4 if entry["name"] == "huge" else 1)
        want = np.histogram(values, bins=40)[0].tolist() if len(values) else [0] * 40
        checks.equal(entry["name"], entry["histogram"], want)


def check_deathtensors(checks, tconv, folder, random):
    """Its mean divides by the full count: so tensors that are finite, and others without mean and stddev."""
    import deathtensors

    tensors = {
        name: as_tensor(*parts)
        for name, parts in distributions(random)
        if parts[0] in {*NUMPY, "BF16"} and len(parts[1]) and name != "BOOL.odd"
    }
    path = folder / "model.deathtensors"
    Deathtensors(True, False).write(path, Model(tensors))
    output = tconv.run("stats", "--json", path)
    with deathtensors.open(path) as opened:
        theirs = {name: opened.stats(name) for name in tensors}
    for entry in json.loads(output)["tensors"] if output else []:
        want = theirs[entry["name"]]
        if entry["nan"] + entry["inf"] == entry["count"]:
            continue
        keys = ["min", "max"] + (["mean", "stddev"] if entry["nan"] + entry["inf"] == 0 else [])
        checks.equal(f"{entry['name']} counts", (entry["count"], entry["nnz"]), (want["count"], want["nnz"]))
        for key in keys:
            # One pass in double precision: what is small beside the values is lost there.
            slack = 1e-6 * max(abs(entry["min"]), abs(entry["max"]))
            checks.true(
                math.isclose(entry[key], want[key], rel_tol=1e-6, abs_tol=slack),
                lambda: f"{entry['name']} {key}: got {entry[key]}, expected {want[key]}",
            )
