"""Files of other kinds under our names: the message says what they are (W01, W02)."""

import gzip
import io
import lzma
import random
import tarfile

from attacks import Input, row
from files import Member, f32, npz, safetensors, zip_file, zstd
from harness import INVALID, OK, UNSUPPORTED


def tar():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return buffer.getvalue()


RECOGNISED = {
    "gzip": gzip.compress(b"hello", mtime=0),
    "xz": lzma.compress(b"hello"),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(24),
    "RAR": b"Rar!\x1a\7\1\0" + bytes(24),
    "zstd": zstd(b"hello"),
    "ggml": b"lmgg\3\0\0\0" + bytes(16),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(88),
    "tar": tar(),
    "ELF": b"\x7fELF\2\1\1" + bytes(57),
    "zip": zip_file([Member(b"readme.txt", b"hello"), Member(b"photo.jpg", b"\xff\xd8")]),
}


@row("W01", UNSUPPORTED, "in.safetensors")
def recognised():
    for kind, content in RECOGNISED.items():
        yield Input(kind, content, message=kind)
        yield Input(f"{kind} as .npy", content, file="in.npy", message=kind)


@row("W02", INVALID, "in.safetensors")
def unknown():
    pointer = (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    )
    yield Input("git-lfs pointer", pointer, message="git-lfs pointer")
    yield Input(
        "HTML page",
        b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n",
        message="HTML",
    )
    yield Input(
        "HTML page, lower case", b"\n<html>\n<body>Not found</body></html>\n", message="HTML"
    )
    yield Input("text", b"hello, world\n" * 10, message="text")
    for name in (
        "in.npy",
        "in.npz",
        "in.safetensors",
        "in.deathtensors",
        "in.safetensors.index.json",
        "in",
    ):
        target = "out.npz"
        yield Input(f"empty {name}", b"", file=name, target=target, message="empty")
        for seed in range(3):
            yield Input(
                f"random {name} {seed}",
                random.Random(seed).randbytes(1 << 20),
                file=name,
                target=target,
                commands=("hash",),
            )


@row("W03", OK, "in.npy")
def wrong_extension():
    tensors = {"a": f32(1, 2, 3)}
    yield Input("safetensors as .npy", safetensors(tensors), tensors=tensors)
    yield Input("npz as .safetensors", npz(tensors), file="in.safetensors", tensors=tensors)
    yield Input("npz without extension", npz(tensors), file="in", tensors=tensors)
