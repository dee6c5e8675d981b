"""Attacks on the first .pt files, which are tar archives (T01 to T07)."""

import pickle as op
import struct

from attacks import Input, row
from attacks_pickle import FILE, HOSTILE, ONE, framed
from files import Tensor, f32
from harness import INVALID, OK, UNSAFE, UNSUPPORTED
from pickles import (
    TAR_STORAGE,
    TAR_TENSOR,
    TAR_VALUE,
    Zeros,
    code,
    name,
    pickled,
    sparse,
    tar_member,
    tar_of,
    tar_storages,
    tar_tensors,
    torch_tar,
    torch_tar_members,
)

MEMBERS = ("sys_info", "pickle", "tensors", "storages")


@row("T01", UNSAFE, FILE)
def hostile_pickles():
    yield Input("honest", torch_tar(), OK, tensors=ONE)
    for row_id in ("P01", "P02", "P03", "P05", "P06"):
        yield from framed(row_id, TAR_VALUE, torch_tar, f"{row_id} ", commands=("hash",))
    hostile = pickled(HOSTILE)
    for member in MEMBERS:
        yield Input(
            f"first in {member}",
            torch_tar(**{member: hostile + torch_tar_members()[member]}),
            message="os.system",
        )
    system = name("os", "system")
    yield Input(
        "a storage's type", torch_tar(storages=tar_storages(kind=system)), message="os.system"
    )
    yield Input("a tensor's type", torch_tar(tensors=tar_tensors(kind=system)), message="os.system")
    yield Input(
        "a whole module",
        torch_tar(
            pickled(
                code((name("torch.nn.modules.linear", "Linear"), "model.py", "source"))
                + op.BINPERSID
            )
        ),
        message="torch.nn.modules.linear.Linear",
    )


@row("T02", UNSAFE, FILE)
def escapes():
    for label, member in {
        "../x": tar_member(b"../x", b"pwned"),
        "a/../../x": tar_member(b"a/../../x", b"pwned"),
        "/tmp/x": tar_member(b"/tmp/x", b"pwned"),
        "symbolic link": tar_member(b"link", kind=b"2", link=b"/etc/passwd"),
        "hard link": tar_member(b"link", kind=b"1", link=b"pickle"),
        "character device": tar_member(b"null", kind=b"3"),
        "block device": tar_member(b"disk", kind=b"4"),
        "FIFO": tar_member(b"fifo", kind=b"6"),
    }.items():
        yield Input(f"{label} first", tar_of(torch_tar_members(), before=member))
        yield Input(f"{label} last", tar_of(torch_tar_members(), end=member + bytes(1024)))
    for kind in (b"1", b"2"):
        rest = {key: value for key, value in torch_tar_members().items() if key != "storages"}
        link = tar_member(b"storages", kind=kind, link=b"../storages")
        yield Input(f"storages as link {kind.decode()}", tar_of(rest, before=link))


def with_size(size):
    """An archive whose second member has this size in its header."""
    members = torch_tar_members()
    first = tar_member(b"sys_info", members.pop("sys_info"))
    second = tar_member(b"pickle", members.pop("pickle"), size=size)
    return tar_of(members, before=first + second)


@row("T03", INVALID, FILE)
def sizes():
    for label, size in {
        "spaces": b" " * 12,
        "99999999999": b"99999999999\0",
        "no digits": b"abc\0\0\0\0\0\0\0\0\0",
        "a sign": b"-0000000001\0",
        "digits after NUL": b"0000001\x0000\x0000",
        "base 256, negative": b"\xff" * 12,
        "base 256, 2**63": b"\x80" + (2**63).to_bytes(11, "big"),
        "base 256, 2**64 - 1": b"\x80" + (2**64 - 1).to_bytes(11, "big"),
        "base 256, 2**87": b"\x80\x80" + bytes(10),
        "77777777777": b"77777777777\0",
    }.items():
        yield Input(label, with_size(size))
    length = len(torch_tar_members()["pickle"])
    yield Input(
        "base 256, true",
        with_size(b"\x80" + length.to_bytes(11, "big")),
        {OK, INVALID},
        tensors=ONE,
    )


@row("T04", INVALID, FILE)
def damage():
    members = torch_tar_members()
    for member in MEMBERS:
        blocks = {key: tar_member(key.encode(), data) for key, data in members.items()}
        for checksum in (0, 0o777777):
            blocks[member] = tar_member(member.encode(), members[member], checksum=checksum)
            archive = b"".join(blocks.values()) + bytes(1024)
            yield Input(f"checksum {checksum:o} of {member}", archive)
    whole = torch_tar()
    for start in range(0, len(whole), 512):
        yield Input(f"cut at {start}", whole[:start], commands=("hash",))
        yield Input(f"cut at {start + 200}", whole[: start + 200], commands=("hash",))
    yield Input("text after the end", whole + b"x" * 512, {OK, INVALID})
    yield Input("one byte after the end", whole + b"\0", {OK, INVALID})


@row("T05", INVALID, FILE)
def extensions():
    def extended(kind, data):
        return tar_of(torch_tar_members(), before=tar_member(b"header", data, kind))

    for label, record in {
        "a length of 10**18": b"1000000000000000000 path=a\n",
        "a length of 10**30": b"1" + b"0" * 30 + b" path=a\n",
        "a negative length": b"-5 path=a\n",
        "a length of 0": b"0 path=a\n",
        "no length": b"path=a\n",
        "no =": b"7 path\n",
        "a length one short": b"9 path=aa\n",
    }.items():
        yield Input(f"PAX with {label}", extended(b"x", record))
    yield Input(
        "GNU name of 1 GB",
        sparse(
            FILE,
            [tar_member(b"././@LongLink", kind=b"L", size=2**30), Zeros(2**30), torch_tar()],
        ),
        UNSAFE,
    )
    yield Input(
        "sparse member",
        tar_of(torch_tar_members(), before=tar_member(b"holes", bytes(512), b"S")),
        UNSUPPORTED,
    )
    rest = {key: value for key, value in torch_tar_members().items() if key != "storages"}
    yield Input(
        "storages as sparse member",
        tar_of(rest, before=tar_member(b"storages", tar_storages(), b"S")),
        UNSUPPORTED,
    )


@row("T06", INVALID, FILE)
def members_and_counts():
    members = torch_tar_members()
    for member in MEMBERS:
        rest = {key: value for key, value in members.items() if key != member}
        yield Input(f"no {member}", tar_of(rest))
        double = tar_member(member.encode(), members[member])
        yield Input(f"{member} twice", tar_of(members, before=double))
        yield Input(f"{member} empty", torch_tar(**{member: b""}))
        yield Input(f"{member} cut short", torch_tar(**{member: members[member][:-1]}))
    for count in (0, 2, -1, 2**31, 2**62, 2**70, "1", None):
        yield Input(f"{count!r} storages", torch_tar(storages=tar_storages(count)))
        yield Input(f"{count!r} tensors", torch_tar(tensors=tar_tensors(count)))
    for elements in (-1, 2, 4, 2**62, 2**61 + 3, 2**63 - 1):
        yield Input(f"{elements} elements", torch_tar(storages=tar_storages(elements=elements)))
    for ndim in (-1, 0, 2, 65, 2**31 - 1, -(2**31)):
        outcome = {INVALID, UNSUPPORTED} if ndim > 64 else None
        yield Input(f"{ndim} dimensions", torch_tar(tensors=tar_tensors(ndim=ndim)), outcome)
    huge = 2**63 - 1
    for view in (
        {"size": (4,)},
        {"size": (-1,)},
        {"size": (huge,)},
        {"stride": (2,)},
        {"stride": (-1,)},
        {"stride": (huge,)},
        {"offset": 1},
        {"offset": -1},
        {"offset": huge},
        {"store": 7},
        {"store": None},
    ):
        shown = ", ".join(f"{key} {value}" for key, value in view.items())
        yield Input(shown, torch_tar(tensors=tar_tensors(**view)))
    for view in ((7, TAR_STORAGE, 2, 2), (7, 9, 0, 1), (7, 7, 0, 1), (7, TAR_STORAGE, -1, 1), (7,)):
        yield Input(f"view {view}", torch_tar(storages=tar_storages(views=[view])))
    for key in ("9", "x", "-1", str(2**70), TAR_TENSOR + 1, None):
        yield Input(f"a tensor {key!r}", torch_tar(pickled({"w": code(key) + op.BINPERSID})))
    yield Input(
        "honest view",
        torch_tar(
            tensors=tar_tensors(store=7, size=(2,)),
            storages=tar_storages(views=[(7, TAR_STORAGE, 1, 2)]),
        ),
        OK,
        tensors={"w": f32(2, 3)},
    )
    yield Input(
        "honest doubles",
        torch_tar(
            tensors=tar_tensors(kind=name("torch", "DoubleTensor")),
            storages=tar_storages(
                kind=name("torch", "DoubleStorage"), data=struct.pack("<3d", 1, 2, 3)
            ),
        ),
        OK,
        tensors={"w": Tensor("F64", [3], struct.pack("<3d", 1, 2, 3))},
    )


@row("T07", UNSUPPORTED, FILE)
def other_archives():
    texts = tar_of({"readme.txt": b"hello\n", "notes/a.txt": b"x" * 1000})
    yield Input("text files", texts, message="tar")
    empty_blocks = Zeros(10 << 30)
    yield Input("text files, 10 GB of zeros", sparse(FILE, [texts, empty_blocks]), seconds=1)
    yield Input(
        "10 GB of zeros",
        sparse(FILE, [empty_blocks]),
        {INVALID, UNSUPPORTED},
        seconds=1,
    )
    yield Input(
        "tensors, 10 GB of zeros",
        sparse(FILE, [torch_tar(), empty_blocks]),
        OK,
        tensors=ONE,
        seconds=1,
    )
    yield Input(
        "padded to a record", torch_tar() + bytes(-len(torch_tar()) % 10240), OK, tensors=ONE
    )
