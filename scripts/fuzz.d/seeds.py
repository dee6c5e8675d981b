"""The first inputs of each fuzz target, from testdata and from the texts below: seeds(TARGET)."""

import io
import struct
import zipfile
from pathlib import Path

TESTDATA = Path("testdata")
LARGEST = 65536

RECEIPT_KEY = "tconv-public-ed25519 " + "ab" * 32 + "\n"
RECEIPT = (
    '{"receipt":{"tconv_receipt":1,"tconv":"0.1.0","date":"2026-11-16T07:30:00Z","inputs":[{"path":"a.npy",'
    '"size":4,"sha256":"%s"}],"output":"b.safetensors","format":"safetensors","outputs":[{"name":"b.safetensors",'
    '"size":80,"sha256":"%s"}],"digest":"%s","options":["--order","name"],"changes":[],"losses":[]}%s}\n'
)
SIGNATURE = ',"signature":{"algorithm":"ed25519","public_key":"%s","value":"%s"}' % ("0" * 64, "f" * 128)

TEXTS = {
    "arguments": [
        "--dtype\nF16\n--lossy\nin.npy\nout.safetensors\n",
        "-f\nnumpy\n--json\n-q\n-v\n--max-memory=1G\n--max-size\n10MB\n--\n--x\n",
        "--include\n^a\\.\n--exclude=b$\n--rename\ns/a/b/g\n--rows\n-3:\n--sort=size\n",
        "--metadata\nkey=value\n--compress=3\n--strict=all\n--receipt\nr.json\n--progress=json\n--progress-fd=2\n",
        "--atol\n1e-3\n--shard-size=5G\n--as=bf16\n--no-checksum\n--sandbox=off\n--pickle=inert\n--help=man\n",
        "--npy-void=BF16\n--strings=bytes\n--dtype=layers.*=I8\n--compress\n9\n--dry-run\nmodel.bin\n",
    ],
    "receipt": [
        RECEIPT % ("0" * 64, "1" * 64, "2" * 64, ""),
        RECEIPT % ("0" * 64, "1" * 64, "2" * 64, SIGNATURE),
        RECEIPT_KEY,
    ],
    "schema": [
        '{"tensors":{"a":{"dtype":"F32","shape":[2,3]}},"allow_extra":true}',
        '{"tensors":{"/layers\\\\.[0-9]+\\\\.weight/":{"dtype":["F16","BF16"],"shape":[null],"finite":true}},'
        '"allow_extra":true,"metadata_keys":["format"]}',
        '{"tensors":{"nan":{"finite":true,"optional":true,"metadata_keys":["k"]},"empty":{"shape":[0,5]}}}',
    ],
    "select": [
        "i ^a\nx b$\nn a\nn b\nn ab\n",
        "s s/(a)(b)?/\\2&\\1/g\ns s,x,y,i\np pre.\nt model.\nn model.ab\nn X\n",
        "r a=1:3\nr b=-2:\nr c=4\nr d=:\nn a\nn b\nn c\nn d\n",
        'd F16\nd layers\\..*=BF16\nn layers.0\nm\n{"layers.0":"x","y":"z"}\n',
        "i (?i)^(?:[a-z]+\\.)*w(?=eight)\nx \\p{Lu}|[^\\x00-\\x7f]\nn a.b.weight\nn \u00c9\n",
    ],
    "sidecar": [
        '{"metadata":{"a":"b"},"tensors":{"a":{"k":"v"},"nan":{"x":"y"}}}',
        '{"metadata":{},"names":["x","y","z"],"tensors":{"x":{"k":"v"}}}',
        '{"names":["x","y"]}',
    ],
    "json": ['{"a":[1,-2.5e+3,true,false,null,"\\u00e9\\ud83d\\ude00\\n"]}', "[[[]],{}]", '"\u00e9"', "0"],
}


def files(*folders):
    for folder in folders:
        for path in sorted((TESTDATA / folder).rglob("*")):
            if path.is_file() and "fuzz" not in path.relative_to(TESTDATA).parts[:1]:
                if path.stat().st_size <= LARGEST:
                    yield path


def pickles():
    """Pickles as they lie in files and in archives, behind a byte of flags."""
    for path in files("."):
        data = path.read_bytes()
        if path.suffix in (".pkl", ".pickle"):
            yield b"\0" + data
        if data[:2] == b"PK":
            try:
                archive = zipfile.ZipFile(io.BytesIO(data))
                for name in archive.namelist():
                    if name.endswith(".pkl") and archive.getinfo(name).file_size <= LARGEST:
                        yield b"\0" + archive.read(name)
            except Exception:  # of those in testdata/bad
                continue


def parts(named):
    """Several files or members in one input (cmd/test/fuzz/parts.h), from pairs of name and bytes."""
    return b"\n".join(b"@@@ %s\n%s" % (name.encode(), data) for name, data in named)


def packed(paths):
    return parts((path.name, path.read_bytes()) for path in paths)


def archives():
    """The members of zip archives."""
    for path in files("."):
        if path.read_bytes()[:2] != b"PK":
            continue
        try:
            archive = zipfile.ZipFile(path)
            yield parts((name, archive.read(name)) for name in archive.namelist()[:16])
        except Exception:  # of those in testdata/bad
            continue


def records():
    """Tensors of TensorFlow, alone and in pairs."""
    tensors = [path.read_bytes() for path in files("tf")]
    for first, second in zip(tensors, tensors[1:]):
        yield parts([("", first)])
        yield parts([("", first), ("", second)])


def folders():
    for path in files("."):
        if path.name.endswith(".index.json"):
            yield packed([path, *(other for other in sorted(path.parent.iterdir()) if other != path)])
        elif path.with_suffix(".bin").exists() and path.suffix == ".onnx":
            yield packed([path, path.with_suffix(".bin")])
    for path in files("npy", "npz"):
        if path.stat().st_size < 2000:
            yield packed([path]) + b'\n@@@ %s.tconv.json\n{"metadata":{"a":"b"}}' % path.name.encode()


def scaled():
    """Models whose weights have scales of their own, with what lies beside them."""
    for path in files("blockscaled"):
        if path.suffix == ".safetensors":
            yield packed([path, *(path.parent.glob("*.json"))])


def headers():
    """JSON texts: files, and the headers of safetensors and deathtensors."""
    for path in files("."):
        data = path.read_bytes()
        if path.suffix == ".json":
            yield data
        elif path.suffix == ".safetensors" and len(data) > 8:
            (length,) = struct.unpack("<Q", data[:8])
            yield data[8 : 8 + min(length, LARGEST)]


def seeds(target):
    """Bytes of each first input of a target."""
    for text in TEXTS.get(target, []):
        yield text.encode()
    if target in ("json", "document"):
        yield from headers()
    elif target == "npy_header":
        yield from (path.read_bytes()[:2048] for path in files("npy", "bad"))
    elif target == "wire":
        yield from (path.read_bytes() for path in files("onnx", "pb", "tf", "tfrecord"))
    elif target == "pickle":
        yield from pickles()
    elif target == "folder":
        yield from folders()
    elif target == "scales":
        yield from scaled()
    elif target == "archive":
        yield from archives()
    elif target == "records":
        yield from records()
    elif target in ("scan", "zip", "roundtrip"):
        yield from (path.read_bytes() for path in files("."))
    elif target not in TEXTS:
        yield from (path.read_bytes() for path in files(target, "bad"))


def write(target, folder):
    """Writes the first inputs to a folder, each under its number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(target)):
        if len(data) <= LARGEST:
            (folder / f"{number:04}").write_bytes(data)
