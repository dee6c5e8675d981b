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
    "address": [
        "a https://user:word@host.example:8443/a/b.npy?sig=1#f\nl /c\nl //other.example/d\nl ?e\nl d/../f\nl https://x/y\n",
        "a hf://datasets/ns/name@refs/pr/3/c/d.npy\na hf://name@v1%2F2/x\na hf://ns/name\nr spaces/ns/name@main\nr ns/name\n",
        "a https://hub.example/base/ns/name/blob/main/a%20b.npy?x\nr https://hub.example/base/datasets/ns/name/tree/v1\n",
        "a http://127.0.0.1:80/x\na http://[::1]/\na http://0x7f.1/y\na http://localhost\na https://[fe80::1]:1/\n",
        "h :HTTP/1.1 206 Partial\nh Content-Range:bytes 0-99/1000\nh Content-Length:100\nh ETag:W/\"abc\"\nh Retry-After:7\n",
        "h :HTTP/1.1 429 No\nh Retry-After:Wed, 18 Nov 2026 07:30:00 GMT\nh Date:Wed, 18 Nov 2026 07:29:00 GMT\n"
        "h RateLimit:\"api\";r=0;t=55\nh Link:<https://x/?p=1>; rel=\"prev\", <https://x/?p=2>; rel=\"next\"\n",
        "h :HTTP/1.1 302 x\nh Location:/a\nh X-Repo-Commit:0123456789abcdef0123456789abcdef01234567\nh X-Linked-Size:12\n"
        "h X-Linked-Etag:\"1\"\nh X-Error-Code:EntryNotFound\nh Accept-Ranges:none\nh Content-Encoding:gzip\n",
    ],
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
    "remote": [
        "https://user:word@host.example:443/a/b.safetensors?sig=x#y\nHTTP/1.1 206 Partial Content\n"
        'ETag: "abc"\nContent-Range: bytes 0-65535/300000\nContent-Length: 65536\nLast-Modified: x\n\n[]',
        "hf://datasets/org/name@refs/pr/1/d/f.npz\nHTTP/1.1 302 Found\nLocation: //other.example/x?y\n"
        "X-Repo-Commit: %s\nX-Linked-Etag: \"%s\"\nX-Linked-Size: 12\n\n"
        '[{"type":"file","path":"d/a.json","size":2,"oid":"%s"},{"type":"directory","path":"d/e","size":0,"oid":"%s"}]'
        % ("1" * 40, "2" * 64, "3" * 40, "4" * 40),
        "https://hub.example/base/org/name/resolve/main/d/a%%20b.bin\nHTTP/1.1 429 No\nRetry-After: 5\n"
        "RateLimit: \"api\";r=0;t=55\nDate: Tue, 01 Jan 2030 00:00:00 GMT\nX-Error-Code: GatedRepo\n"
        'Link: <https://hub.example/base/api?c=1>; rel="next"\n\n'
        '[{"type":"file","path":"d/m.bin","size":9,"oid":"%s","lfs":{"oid":"%s","size":9}}]' % ("5" * 40, "6" * 64),
        "org/name@main\nHTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 1\nContent-Length: 2\n\n"
        '{"id":"org/name","sha":"%s","private":true,"gated":"auto","downloads":3,"likes":4,"tags":["a"],"lastModified":"x"}'
        % ("7" * 40),
        "http://127.0.0.1:8080/x\nHTTP/1.1 301 Moved\nLocation: ../y\nRetry-After: Tue, 01 Jan 2030 00:00:00 GMT\n\n{}",
        "https://[::ffff:10.0.0.1]:1/\nHTTP/1.1 416 No\nContent-Range: bytes */0\n\n[1,null]",
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
    "tree": [
        '{"v":1,"root":{"a":[],"b":["t","a~1",{"g":true,"k":[1,2],"a":{"x":1}}],"c":["p",null,{"g":false}]}}',
        '{"v":1,"root":["O",{"w":[],"v":["t",null,{"v":["w",0,[1]]}]},{"_metadata":["O",{"":{"version":1}}]}]}',
        '{"v":1,"root":["d",1,["l",null,true,-1,0.5,"x"],["u",1,"a"],["S",1,"a"],"s",["s",null,"coo",true]]}',
        '{"v":1,"root":["l",["q",null,"per_tensor_affine",0.1,3,"qint8"],["q",null,"per_channel_affine",0,"qint8"]]}',
        '{"v":1,"root":["l",["i","9223372036854775808"],["f","nan:7ff800000000beef"],["c",1.0,["f","-inf"]],["z",2]]}',
        '{"v":1,"root":["l",["b","AAEC"],["B",""],["x","7aCA"],["dt","float16"],["dv","cuda:0"],["ly","strided"]]}',
        '{"v":1,"root":{"c":["C",{"a":2}],"d":["D","list",["d",3,["n"]]],"n":["N"],"e":["s",null,"csr"]}}',
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
    """Those of them that are files, with their names."""
    return parts((path.name, path.read_bytes()) for path in paths if path.is_file())


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


def members(path):
    """A file of torch's as the target puts it together again."""
    archive = zipfile.ZipFile(path)
    for name in archive.namelist():
        member = name.partition("/")[2]
        if member == "data.pkl" or member.startswith("data/"):
            yield f"{path.name}!{member}", archive.read(name)


def checkpoints():
    """Distributed checkpoints of torch, and DeepSpeed's."""
    for path in files("dcp", "bad"):
        if path.name == ".metadata":
            beside = [other for other in sorted(path.parent.iterdir()) if other != path]
            yield packed([path, *beside])
    for path in files("zero", "bad"):
        if path.name == "latest":
            tag = path.parent / path.read_text().strip()
            yield parts([part for other in sorted(tag.glob("*.pt")) for part in members(other)][:16])


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
    elif target == "checkpoint":
        yield from checkpoints()
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
