"""`tconv show` against numpy's str()."""
import ml_dtypes
import numpy as np

from models import NUMPY, Model, Tensor
from peers import safetensors_by_hand

SMALL = {
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
SHAPES = [
    (), (0,), (1,), (3,), (40,), (1000,), (1001,), (5000,), (2, 3), (1, 7), (200, 3), (3, 400), (0, 4), (6, 2000),
    (2, 3, 4), (11, 11, 11), (1, 1, 1, 5), (7, 2, 9, 8), (2,) * 11, (1,) * 20 + (3,),
]  # fmt: skip
ROUNDS = 8


def run(checks, tconv):
    random = np.random.default_rng(5)
    for number in range(ROUNDS):
        for dtype in [*NUMPY, *SMALL]:
            with checks.case(f"{dtype}, round {number}"), tconv.folder() as folder:
                check(checks, tconv, folder, dtype, random)
    with checks.case("powers of two"), tconv.folder() as folder:
        check_scalars(checks, tconv, folder, random)


def values(random, kind, count):
    """Of one of the kinds that numpy lays out in different ways."""
    style = random.integers(9)
    scale = 10.0 ** random.integers(-12, 12)
    with np.errstate(over="ignore", invalid="ignore"):
        if style == 0:  # every bit pattern
            return np.frombuffer(random.bytes(count * np.dtype(kind).itemsize), kind)
        array = random.standard_normal(count)
        if style == 1:
            array = array * scale
        elif style == 2:
            array = random.integers(-100, 100, count).astype(np.float64)
        elif style == 3:
            array = np.round(array, int(random.integers(1, 5)))
        elif style == 4:
            array = np.exp(array * 8) * random.choice([-1, 1], count)
        elif style == 5:
            array[random.random(count) < 0.2] = random.choice([np.nan, np.inf, -np.inf])
        elif style == 6:
            array = np.full(count, random.choice([0.0, -0.0, 1e-4, 1e16, 123456.0, np.nan, -np.inf, 0.1]))
        elif style == 7:
            array = np.abs(np.round(array * 1000) / 8)
        return array.astype(kind)


def make(random, dtype, shape):
    count = int(np.prod(shape))
    kind = np.dtype(NUMPY.get(dtype, SMALL.get(dtype)))
    if dtype == "BOOL":
        array = random.integers(0, 2, count).astype(bool)
    elif kind.kind in "iu":
        info = np.iinfo(kind)
        low, high = [(info.min, info.max), (0, 9), (max(-9, info.min), 99)][random.integers(3)]
        array = random.integers(low, high, count, dtype=kind, endpoint=True)
    elif dtype.startswith("C"):
        part = np.float32 if dtype == "C64" else np.float64
        array = np.stack([values(random, part, count), values(random, part, count)], axis=-1).view(kind)[:, 0]
    else:
        array = values(random, kind, count)
    return array.reshape(shape)


def shown(array):
    """What numpy prints of the same values in the nearest dtype of its own."""
    with np.errstate(invalid="ignore"):
        return str(array.astype(np.float32) if array.dtype in map(np.dtype, SMALL.values()) else array)


def check(checks, tconv, folder, dtype, random):
    arrays = {str(shape): make(random, dtype, shape) for shape in SHAPES}
    path = folder / "model.safetensors"
    if dtype == "C128":
        path = folder / "model.npz"
        np.savez(path, **arrays)
    else:
        model = Model({name: Tensor(dtype, array.shape, array.tobytes()) for name, array in arrays.items()})
        path.write_bytes(safetensors_by_hand(model, list(model.tensors)))
    for name, array in arrays.items():
        compare(checks, tconv, ["show", path, name], array)
        if array.ndim and array.shape[0] > 4:
            compare(checks, tconv, ["show", path, name, "--rows", "1:4"], array[1:4])
        if 1000 < array.size < 3000:
            with np.printoptions(threshold=array.size):
                compare(checks, tconv, ["show", "--full", path, name], array)


def compare(checks, tconv, command, array):
    output = tconv.run(*command)
    if output is not None:
        checks.equal(" ".join(map(str, command[2:])), output.decode(), shown(array) + "\n")


def check_scalars(checks, tconv, folder, random):
    """Where the shortest digits are hardest: next to powers of two and of ten."""
    for kind in (np.float16, np.float32, np.float64):
        info = np.finfo(kind)
        with np.errstate(over="ignore", under="ignore"):
            twos = np.ldexp(np.ones((), kind), np.arange(info.minexp - info.nmant, info.maxexp))
            tens = np.array([10.0**power for power in range(-320, 309)]).astype(kind)
        array = np.concatenate([twos, tens])
        array = np.concatenate([array, np.nextafter(array, kind(0)), np.nextafter(array, kind(np.inf))])
        np.savez(folder / "a.npz", a=array.reshape(-1, 1))
        lines = tconv.run("show", "--full", folder / "a.npz", "a")
        with np.printoptions(threshold=array.size):
            checks.equal(f"{np.dtype(kind)}", lines and lines.decode(), str(array.reshape(-1, 1)) + "\n")
        for index in random.integers(0, len(array), 40):
            np.save(folder / "s.npy", array[index])
            compare(checks, tconv, ["show", folder / "s.npy", "s"], array[index])
