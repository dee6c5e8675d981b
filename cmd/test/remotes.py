"""What the suites about remote files share: models to serve, and tconv with settings of its own."""

import json
import os
import struct
import zlib

import files
import gguf_files
from files import f32
from harness import MIB, check_equal, expect, run, tconv
from remote_server import Sparse

MODEL = {"a.weight": f32(*range(12), shape=[3, 4]), "a.bias": f32(1, 2, 3), "b": f32(0.5)}
# Nothing of the machine's own settings counts, and waits are short.
PLAIN = {
    "TCONV_TEST_BACKOFF": "2",
    "HF_HUB_DOWNLOAD_TIMEOUT": "5",
    "HF_HOME": "/nonexistent",
    "HF_TOKEN": "",
    "HF_ENDPOINT": "http://127.0.0.1:9",  # nobody listens there
    "HTTPS_PROXY": "",
    "https_proxy": "",
    "ALL_PROXY": "",
}
SECRET = "s3cr3t"


def run_remote(folder, code, *args, mention=None, env=None, quiet=True):
    return expect(
        folder, code, *args, env={**PLAIN, **(env or {})}, mention=mention, quiet=quiet
    )


def model(tensors=None):
    return files.safetensors(tensors or MODEL, {"k": "v"})


def big_model(count=2, size=50 << 30):
    """A safetensors file of zeros, far larger than anything that may be fetched."""
    header = {}
    for i in range(count):
        header[f"t{i}"] = {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
    header["small"] = {"dtype": "U8", "shape": [3 * MIB], "data_offsets": [count * size, count * size + 3 * MIB]}
    text = json.dumps(header).encode()
    head = struct.pack("<Q", len(text)) + text
    return Sparse(head, len(head) + count * size + 3 * MIB), len(head)


def big_deathtensors(size=50 << 30):
    """As big_model, a deathtensors file whose checksum is that of another file."""
    tensors, at = {}, 0
    for name, count in {"t0": size, "t1": size, "small": 3 * MIB}.items():
        tensors[name] = {"dtype": "U8", "shape": [count], "data_offsets": [at, at + count], "metadata": {}}
        at += count
    header = {"format": "deathtensors", "format_version": 1, "created_by": "x", "global_metadata": {}, "tensors": tensors}
    text = json.dumps(header).encode()
    head = b"DTLEGION" + struct.pack("<IIQ", 1, 2, len(text)) + text
    head += bytes(-len(head) % 8)
    return Sparse(head, len(head) + at + 32), len(head)


def big_gguf(size=50 << 30):
    """As big_model, a GGUF file."""
    number = gguf_files.DTYPES["I8"][0]
    dims = {"t0": size, "t1": size, "small": 3 * MIB}
    entries = [gguf_files.entry(name, [count], number, i * size) for i, (name, count) in enumerate(dims.items())]
    head = gguf_files.raw(entries=entries)
    return Sparse(head, len(head) + 2 * size + 3 * MIB), len(head)


def big_npz(size=50 << 30):
    """As big_model, an archive: its table lies at its end. The checksums of the large members are none."""
    pieces, central, at = {}, b"", 0
    for name, count in {"t0": size, "t1": size, "small": 3 * MIB}.items():
        npy = files.npy("|u1", (count,), b"")
        length, whole = len(npy) + count, name.encode() + b".npy"
        crc = zlib.crc32(npy + bytes(count)) if name == "small" else 1
        wide = struct.pack("<HHQQ", 1, 16, length, length)
        local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 33, crc, 2**32 - 1, 2**32 - 1, len(whole), len(wide))
        pieces[at] = local + whole + wide + npy
        extra = struct.pack("<HHQQQ", 1, 24, length, length, at)
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 33, crc, 2**32 - 1, 2**32 - 1, len(whole),
                               len(extra), 0, 0, 0, 0, 2**32 - 1) + whole + extra  # fmt: skip
        at += len(pieces[at]) + count
    end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 3, 3, len(central), at)
    end += struct.pack("<IIQI", 0x07064B50, 0, at + len(central), 1)
    end += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 3, 3, 2**32 - 1, 2**32 - 1, 0)
    pieces[at] = central + end
    return Sparse(b"", at + len(central + end), pieces), len(central)


def error_code(result):
    """The code of the error, from --json."""
    return json.loads(result.out.splitlines()[-1])["error"]["code"]


def expect_code(folder, code, slug, *args, env=None):
    result = run_remote(folder, code, *args, "--json", env=env, quiet=False)
    check_equal(error_code(result), slug, "the error's code", result)
    return result


def hub_env(hub, token=None, **more):
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": token or "", **more}


def run_hub(folder, code, hub, *args, token="hf_test", env=None, quiet=True):
    more = {"HF_HUB_CACHE": str(folder / "cache"), **(env or {})}
    return run_remote(folder, code, "hub", *args, env=hub_env(hub, token, **more), quiet=quiet)


def tree_of(root):
    """Files and links below a folder, with what is in them."""
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def tconv_hub(folder, hub, *args):
    """A run that may leave something behind."""
    env = {**PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))}
    return tconv("hub", *args, cwd=folder, env=env)
