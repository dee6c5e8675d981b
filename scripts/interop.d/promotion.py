"""Dtypes that the target lacks: every bit pattern has ml_dtypes' value for it, and stays apart from all others."""
from itertools import product

import ml_dtypes
import numpy as np

from models import BITS, FLOAT8, NUMPY, Model, Tensor
from peers import Deathtensors, Npz, Safetensors, is_available

VALUES = {
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    **NUMPY,
}  # fmt: skip
SIGNED_NAN = ["BF16", "F8_E4M3", "F8_E5M2"]
NAME = "model"  # also the stem of the .npy, which has no other name for its tensor


class Npy(Npz):
    suffix = ".npy"

    def __init__(self):
        super().__init__(deflated=False)
        self.label = "npy"

    def read(self, path):
        return Model({path.stem: Tensor.of(np.load(path, allow_pickle=False))})


def promoted(dtype: str, target) -> str:
    """The smallest dtype of the target that holds every value."""
    if dtype in target.dtypes:
        return dtype
    if dtype == "F8_E8M0":
        return "BF16" if "BF16" in target.dtypes else "F32"
    return "F32" if dtype == "BF16" else "F16"


def run(checks, tconv):
    narrows = b"--dtype" in (tconv.run("convert", "--help") or b"")
    if not narrows:
        checks.skipped.append("narrowing back: this tconv has no --dtype")
    targets = [Npy(), Npz(deflated=False), Npz(deflated=True), Deathtensors(checksum=True, compress=False)]
    checks.skipped += [target.label for target in targets if not is_available(target.peer)]
    for dtype, target in product(["BF16", *FLOAT8], targets):
        if is_available(target.peer):
            with checks.case(f"{dtype} → {target.label}"), np.errstate(invalid="ignore"):
                check(checks, tconv, dtype, target, narrows)


def check(checks, tconv, dtype, target, narrows):
    patterns = np.arange(1 << BITS[dtype], dtype=f"<u{BITS[dtype] // 8}")
    model = Model({NAME: Tensor(dtype, patterns.shape, patterns.tobytes())})
    with tconv.folder() as folder:
        source, copy, back = folder / "1.safetensors", folder / f"{NAME}{target.suffix}", folder / "3.safetensors"
        Safetensors().write(source, model)
        if tconv.convert(source, copy, *target.options(model)):
            found = target.read(copy).tensors[NAME]
            if checks.equal("dtype and shape", found[:2], (promoted(dtype, target), patterns.shape)):
                check_values(checks, dtype, patterns, found)
            if narrows and tconv.convert(copy, back, "--dtype", dtype, "--lossy"):
                checks.equal("narrowed back", Safetensors().read(back).tensors[NAME], model.tensors[NAME])


def check_values(checks, dtype, patterns, found):
    want = patterns.view(VALUES[dtype]).astype(np.float64)
    got = np.frombuffer(found.data, VALUES[found.dtype]).astype(np.float64)
    differs = np.where(np.isnan(want), ~np.isnan(got), got.view("<u8") != want.view("<u8"))
    wrong = [f"{pattern:#x} is {got[pattern]}, not {want[pattern]}" for pattern in patterns[differs]]
    checks.equal("patterns with another value than ml_dtypes'", wrong, [])
    bits = np.frombuffer(found.data, f"<u{BITS[found.dtype] // 8}")
    checks.equal("patterns that stay apart", len(np.unique(bits)), len(patterns))
    if dtype in SIGNED_NAN:
        checks.equal("signs", sign(bits).tolist(), sign(patterns).tolist())


def sign(bits: np.ndarray) -> np.ndarray:
    return bits >> (bits.itemsize * 8 - 1)
