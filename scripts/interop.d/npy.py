"""numpy's .npy in every order, byte order and version, against what tconv makes of it: np.save's bytes."""
import numpy as np

from models import NUMPY, SHAPES, Model, Tensor, random_tensor
from peers import Npz, npy_bytes

# (order, byte order, version): each of the writer's choices, and some together.
VARIANTS = [("C", "<", 1), ("F", "<", 1), ("C", ">", 1), ("F", ">", 1), ("C", "<", 2), ("C", "<", 3), ("F", ">", 3)]

# Headers of every length modulo 64, so that each amount of padding occurs, 64 included; and of the highest rank.
HEADER_SHAPES = [
    *((0, *[1] * ones, 10**digits) for ones in range(22) for digits in range(3)),
    *((10**digits, 0) for digits in range(19)),
    (1,) * 32,
    (1,) * 64,
]


def run(checks, tconv):
    random = np.random.default_rng(3)
    for dtype in NUMPY:
        for shape in SHAPES:
            tensor = random_tensor(random, dtype, shape)
            for order, endian, version in VARIANTS:
                array = np.array(tensor.array().astype(np.dtype(NUMPY[dtype]).newbyteorder(endian)), order=order)
                with checks.case(f"{dtype}{list(shape)} {order} {endian} v{version}"):
                    check(checks, tconv, array, tensor, version)
    for shape in HEADER_SHAPES:
        array = np.zeros(shape, np.uint8)
        with checks.case(f"header of {shape}"):
            check(checks, tconv, array, Tensor.of(array), version=1)
    with checks.case("many files"):
        check_many(checks, tconv, {dtype: random_tensor(random, dtype, (2, 3)) for dtype in NUMPY})


def check(checks, tconv, array, tensor, version):
    with tconv.folder() as folder:
        source, target = folder / "tensor.npy", folder / "copy.npy"
        with source.open("wb") as file:
            np.lib.format.write_array(file, array, version=(version, 0), allow_pickle=False)
        tconv.check_hash(source, Model({"tensor": tensor}))
        if tconv.convert(source, target):
            checks.equal("np.load", Tensor.of(np.load(target, allow_pickle=False)), tensor)
            checks.equal("np.save's bytes", target.read_bytes(), npy_bytes(tensor.array()))


def check_many(checks, tconv, tensors):
    """One .npy a tensor, merged, and taken apart again."""
    with tconv.folder() as inputs, tconv.folder() as outputs:
        files = [inputs / f"{name}.npy" for name in tensors]
        for file, tensor in zip(files, tensors.values()):
            np.save(file, tensor.array())
        merged, apart = outputs / "merged.npz", outputs / "apart"
        apart.mkdir()
        if tconv.run("--no-sync", *files, "-o", merged) is not None:
            checks.equal("merged", Npz(deflated=False).read(merged).tensors, tensors)
        if tconv.convert(merged, f"{apart}/"):
            written = {file.stem: file.read_bytes() for file in sorted(apart.iterdir(), key=lambda file: file.name)}
            checks.equal("taken apart", written, {name: npy_bytes(tensors[name].array()) for name in sorted(tensors)})
        for name, tensor in tensors.items():
            checks.equal(f"get {name}", tconv.run("get", merged, name), npy_bytes(tensor.array()))
