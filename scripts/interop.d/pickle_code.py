"""An assembler for pickles: each function gives the bytes of one or a few opcodes."""
import struct


def integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def constant(value) -> bytes:
    if value is None:
        return b"N"
    if value is True or value is False:
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        return tuple_of(*map(constant, value))
    if isinstance(value, list):
        return b"](" + b"".join(map(constant, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(constant(part) for pair in value.items() for part in pair) + b"u"
    raise TypeError(value)


def tuple_of(*items: bytes) -> bytes:
    return {0: b")"}.get(len(items), b"(" + b"".join(items) + b"t")


def name_of(dotted: str) -> bytes:
    module, _, name = dotted.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def call(dotted: str, *arguments: bytes) -> bytes:
    return name_of(dotted) + tuple_of(*arguments) + b"R"


def pickle_of(body: bytes, protocol: int = 2) -> bytes:
    return b"\x80" + bytes([protocol]) + body + b"."


def storage(
    key: str = "0", numel: int = 6, kind: str = "torch.FloatStorage", location: str = "cpu", tag: str = "storage"
) -> bytes:
    return tuple_of(text(tag), name_of(kind), text(key), text(location), integer(numel)) + b"Q"


def tensor(of: bytes, offset=0, size=(2, 3), stride=(3, 1), *rest: bytes) -> bytes:
    tail = rest or (b"\x89", call("collections.OrderedDict"))
    return call("torch._utils._rebuild_tensor_v2", of, constant(offset), constant(size), constant(stride), *tail)


def model(**entries: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in entries.items()) + b"u"


# The bytes of the storages "0", "1" and "2"
DATA = {"0": struct.pack("<6f", *range(6)), "1": struct.pack("<4q", *range(4)), "2": bytes(range(8))}
