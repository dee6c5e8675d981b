"""Attacks on .npz: the zip around the arrays (Z01 to Z18)."""

import functools
import zlib

from attacks import Input, row
from files import (
    Member,
    crc32_zeros,
    deflate_zeros,
    f32,
    lzma_member,
    npy,
    npz,
    zip64_end,
    zip_end,
    zip_file,
)
from harness import INVALID, MIB, OK, SANITIZED, UNSAFE, UNSUPPORTED

FILE = "in.npz"
ARRAY = npy()
THREE = f32(1, 2, 3)
ZERO_BLOCK = 16 << 20


def write_bomb(folder, shape, blocks):
    """One deflated member: a header with this shape, then blocks of zeros."""
    header = npy(shape=shape, data=b"")
    zeros = blocks * ZERO_BLOCK
    pieces = list(deflate_zeros(header, blocks, ZERO_BLOCK))
    member = Member(
        b"a.npy",
        b"",
        8,
        packed=b"",
        crc=crc32_zeros(zlib.crc32(header), zeros),
        size=len(header) + zeros,
        packed_size=sum(map(len, pieces)),
        zip64=True,
    )
    local, central = member.local(), member.central(0)
    with open(folder / FILE, "wb") as file:
        file.write(local)
        file.writelines(pieces)
        offset = file.tell()
        file.write(central + zip_end(1, len(central), offset))


def bomb(shape, blocks):
    return functools.partial(write_bomb, shape=shape, blocks=blocks)


FORTY_GB = 2384


@row("Z01", INVALID, FILE)
def bomb_behind_a_small_header():
    yield Input("40 GB for (2,2)", bomb((2, 2), FORTY_GB), seconds=1)


@row("Z02", UNSAFE, FILE)
def bomb_with_a_true_header():
    yield Input("40 GB", bomb((FORTY_GB * ZERO_BLOCK // 4,), FORTY_GB), seconds=2)
    yield Input("64 MiB, limit 1 MiB", bomb((ZERO_BLOCK,), 4), options=("--max-size", "1M"))
    yield Input("64 MiB", bomb((ZERO_BLOCK,), 4), OK, rss=64 * MIB)


@row("Z03", INVALID, FILE)
def checksums():
    yield Input("a stored byte", npz({"a": THREE}).replace(THREE.data, b"\1" + THREE.data[1:]))
    for method in (0, 8):
        yield Input(
            f"the CRC, method {method}",
            zip_file([Member(b"a.npy", ARRAY, method, crc=zlib.crc32(ARRAY) ^ 1)]),
        )


@row("Z04", INVALID, FILE)
def sizes():
    array = npy("|u1", (872,), bytes(872))
    for method in (0, 8):
        for size in (10, 999, 1001, 0x7FFFFFFF):
            yield Input(
                f"{size} for 1000, method {method}",
                zip_file([Member(b"a.npy", array, method, size=size)]),
            )


@row("Z05", INVALID, FILE)
def same_name_twice():
    yield Input("a.npy", zip_file([Member(b"a.npy", ARRAY), Member(b"a.npy", npy(data=bytes(12)))]))


@row("Z06", INVALID, FILE)
def local_and_central_names():
    yield Input("aaaa and bbbb", zip_file([Member(b"aaaa.npy", ARRAY, local_name=b"bbbb.npy")]))


@row("Z07", UNSUPPORTED, FILE)
def flags():
    yield Input("encrypted", zip_file([Member(b"a.npy", ARRAY, flags=1)]))
    yield Input("patch data", zip_file([Member(b"a.npy", ARRAY, flags=0x20)]), INVALID)
    yield Input("strong encryption", zip_file([Member(b"a.npy", ARRAY, flags=0x40)]), INVALID)


@row("Z08", INVALID, FILE)
def overlaps():
    one = Member(b"a.npy", ARRAY)
    two = Member(b"b.npy", ARRAY)
    central = one.central(0) + two.central(0)
    yield Input(
        "two entries, one member",
        one.local() + central + zip_end(2, len(central), len(one.local())),
    )
    outer = Member(b"c.npy", npy("|u1", (len(two.local()),), two.local()))
    central = outer.central(0) + two.central(outer.local().index(two.local()))
    yield Input(
        "a member inside another's data",
        outer.local() + central + zip_end(2, len(central), len(outer.local())),
    )


@row("Z09", INVALID, FILE)
def entry_counts():
    member = Member(b"a.npy", ARRAY)
    local, central = member.local(), member.central(0)
    position = len(local) + len(central)
    for count in (2**60, 2**28, 2):
        yield Input(
            f"{count} entries",
            local + central + zip64_end(count, len(central), len(local), position),
        )
    yield Input(
        "directory past the end", local + central + zip64_end(1, len(central), 2**40, position)
    )
    yield Input(
        "directory longer than the file",
        local + central + zip64_end(1, 2**63, len(local), position),
    )
    yield Input(
        "2**24 entries in a sparse file", write_sparse_directory, UNSAFE, seconds=1, rss=64 * MIB
    )


def write_sparse_directory(folder):
    count = 2**24
    with open(folder / FILE, "wb") as file:
        file.write(Member(b"a.npy", ARRAY).local())
        offset = file.tell()
        position = offset + count * 46
        file.seek(position)
        file.write(zip64_end(count, count * 46, offset, position))


@row("Z10", INVALID, FILE)
def bytes_around():
    yield Input("40 before", bytes(40) + npz({"a": THREE}))
    yield Input(
        "40 before, offsets adjusted", bytes(40) + zip_file([Member(b"a.npy", ARRAY)], base=40)
    )
    yield Input("40 after", npz({"a": THREE}) + bytes(40))


@row("Z11", INVALID, FILE)
def two_ends():
    member = Member(b"a.npy", ARRAY)
    second = zip_end(1, len(member.central(0)), len(member.local()))
    yield Input("an end record in the comment", zip_file([member], comment=second))


HOSTILE_NAMES = {
    "parent": b"../x.npy",
    "absolute": b"/etc/x.npy",
    "drive": b"C:\\x.npy",
    "newline": b"a\nb.npy",
    "escape": b"\x1b[31m.npy",
    "long": b"x" * 65531 + b".npy",
}


@row("Z12", OK, FILE)
def names():
    for label, name in HOSTILE_NAMES.items():
        archive = zip_file([Member(name, ARRAY)])
        yield Input(
            label,
            archive,
            tensors={name.removesuffix(b".npy").decode(): THREE},
            target="out.safetensors",
        )
        yield Input(f"{label} into a folder", archive, UNSAFE, commands=("folder",))
    yield Input("bad UTF-8", zip_file([Member(b"\xff\xfe.npy", ARRAY, flags=0x800)]), INVALID)


@row("Z13", INVALID, FILE)
def nul_in_a_name():
    yield Input("alone", zip_file([Member(b"a\0b.npy", ARRAY)]))
    yield Input("beside a space", zip_file([Member(b"a\0b.npy", ARRAY), Member(b"a b.npy", ARRAY)]))


@row("Z14", OK, FILE)
def foreign_members():
    for name, data in ((b"readme.txt", b"hello"), (b"folder/", b""), (b"bare", ARRAY)):
        archive = zip_file([Member(b"a.npy", ARRAY), Member(name, data)])
        yield Input(name.decode(), archive, tensors={"a": THREE}, message=name.decode())
        yield Input(
            f"{name.decode()} --strict",
            archive,
            UNSUPPORTED,
            commands=("convert",),
            options=("--strict",),
        )


@row("Z15", UNSUPPORTED, FILE)
def methods():
    for method in (93, 98, 1, 9):
        unknown = Member(b"a.npy", ARRAY, method)
        yield Input(f"method {method}", zip_file([unknown]))
        yield Input(
            f"method {method} beside another",
            zip_file([unknown, Member(b"b.npy", ARRAY)]),
            OK,
            tensors={"b": THREE},
            message="zip compression method",
        )
        yield Input(
            f"method {method} --strict",
            zip_file([unknown, Member(b"b.npy", ARRAY)]),
            commands=("convert",),
            options=("--strict",),
        )
    yield Input("end record of disk 1", zip_file([Member(b"a.npy", ARRAY)], disk=1))
    yield Input("member on disk 1", zip_file([Member(b"a.npy", ARRAY, disk=1)]))


@row("Z15b", OK, FILE)
def bzip2_and_lzma():
    for method in (12, 14):
        member = Member(b"a.npy", ARRAY, method)
        yield Input(f"method {method}", zip_file([member]), tensors={"a": THREE})
        yield Input(
            f"method {method}, no elements",
            zip_file([Member(b"a.npy", npy(shape=(0,), data=b""), method)]),
            tensors={"a": f32()},
        )
        for end in range(0, len(member.packed), 5):
            cut = Member(b"a.npy", ARRAY, method, packed=member.packed[:end])
            yield Input(f"method {method} cut at {end}", zip_file([cut]), INVALID)
        for name, changes in (
            ("one byte more", {"packed": member.packed + b"\0"}),
            ("longer than said", {"size": len(ARRAY) - 1}),
            ("shorter than said", {"size": len(ARRAY) + 1}),
            ("another CRC", {"crc": 1}),
            ("no data", {"packed": b""}),
            ("deflated data", {"packed": Member(b"a.npy", ARRAY, 8).packed}),
        ):
            odd = Member(b"a.npy", ARRAY, method, **changes)
            yield Input(f"method {method}: {name}", zip_file([odd]), INVALID)
    plain = lzma_member(ARRAY, end_marker=False)
    yield Input(
        "no end marker", zip_file([Member(b"a.npy", ARRAY, 14, packed=plain)]), tensors={"a": THREE}
    )
    # What a decoder would take for its dictionary is what the data needs at most.
    large = lzma_member(ARRAY)[:5] + b"\xff\xff\xff\xff" + lzma_member(ARRAY)[9:]
    yield Input(
        "a dictionary of 4 GiB",
        zip_file([Member(b"a.npy", ARRAY, 14, packed=large)]),
        tensors={"a": THREE},
        rss=64 * MIB,
    )
    claims = Member(b"a.npy", ARRAY, 14, packed=large, size=(1 << 32) - 2)
    yield Input("and of 4 GiB of data", zip_file([claims]), {UNSUPPORTED, INVALID}, rss=64 * MIB)


def zeros(method, size):
    """A member of zeros with a true header, packed in this way."""
    data = npy("|u1", (size,), bytes(size))
    return zip_file([Member(b"a.npy", data, method)])


@row("Z15c", UNSAFE, FILE)
def bombs_of_bzip2_and_lzma():
    for method in (12, 14):
        bomb = zeros(method, 64 * MIB)
        yield Input(f"method {method}, limit 1 MiB", bomb, options=("--max-size", "1M"))
        yield Input(f"method {method}", bomb, OK, rss=160 * MIB)


@row("Z15d", INVALID, FILE)
def folders_with_data():
    folders = (
        ("a slash", {"name": b"a.npy/"}),
        ("the bit of DOS", {"attributes": 0x10}),
        ("the mode of Unix", {"attributes": 0o040755 << 16}),
    )
    for method in (0, 8, 12, 14):
        for label, changes in folders:
            member = Member(**{"name": b"a.npy", "data": ARRAY, "method": method, **changes})
            both = zip_file([Member(b"b.npy", ARRAY), member])
            yield Input(f"{label}, method {method}", both, message="folder")
    for label, changes in folders[:1]:
        empty = Member(**{"name": b"a/", "data": b"", **changes})
        yield Input(
            "an empty folder", zip_file([Member(b"b.npy", ARRAY), empty]), OK, tensors={"b": THREE}
        )


SKIPPED = {  # what numpy saves that is no tensor, and how long an element is
    "'<U3'": 12,
    "'>U3'": 12,
    "'|S5'": 5,
    "'<M8[ns]'": 8,
    "'<m8[D]'": 8,
    "'|V7'": 7,
    "'<f16'": 16,
    "'<f12'": 12,
    "'<c32'": 32,
    "[('t', '|S2'), ('d', '<M8[s]')]": 10,
}
PICKLED = ("'|O'", "'O'", "'|T16'", "[('a', '|O')]", "[('a', '<f4'), ('b', [('c', '|O')], (2,))]")


def odd_array(descr, shape=(2,), data=None):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    size = SKIPPED.get(descr, 0) * 2 if data is None else 0
    return npy(header=header, data=bytes(size) if data is None else data)


@row("Z16", OK, FILE)
def odd_arrays():
    """An array that is no tensor costs its own name, wherever it stands, and nothing else."""
    kinds = [(descr, None) for descr in SKIPPED] + [(descr, b"cos\nsystem\n") for descr in PICKLED]
    for descr, data in kinds:
        array = odd_array(descr, data=data)
        for place in range(3):
            members = [Member(b"a.npy", ARRAY), Member(b"b.npy", ARRAY)]
            members.insert(place, Member(b"odd.npy", array, 8 * (place & 1)))
            archive = zip_file(members)
            yield Input(
                f"{descr}, place {place}",
                archive,
                tensors={"a": THREE, "b": THREE},
                message="odd",
            )
        yield Input(
            f"{descr} --strict",
            archive,
            UNSUPPORTED,
            commands=("convert",),
            options=("--strict",),
        )
        alone = UNSAFE if data else UNSUPPORTED
        yield Input(f"{descr} alone", zip_file([Member(b"odd.npy", array)]), alone)
        text = Member(b"t.npy", odd_array("'<U3'"))
        yield Input(
            f"{descr} beside text", zip_file([text, Member(b"odd.npy", array)]), alone
        )
        if data is None:  # damage is damage, also where nobody would read it
            short = zip_file([Member(b"a.npy", ARRAY), Member(b"odd.npy", array[:-1])])
            yield Input(f"{descr} cut short", short, INVALID)


@row("Z16b", OK, FILE)
def many_fields():
    """However many fields a record has, its data is read once."""
    fields = [(f"f{number:x}", "|u1") for number in range(3000)]
    data = npy(fields, (20_000,), bytes(3000 * 20_000))
    archive = zip_file([Member(b"a.npy", data, 8)])
    yield Input("3,000 of 20,000 records", archive, rss=96 * MIB, seconds=10, commands=("hash",))
    inner = f"[('r', [{', '.join(map(str, fields[:100]))}], (1000,))]"
    header = f"{{'descr': {inner}, 'fortran_order': True, 'shape': (10, 2), }}"
    nested = npy(header=header, data=bytes(100 * 1000 * 20))
    yield Input(
        "records in an array in a record",
        zip_file([Member(b"a.npy", nested, 8)]),
        message="more than 16 fields",
        seconds=10,
    )


@row("Z17", INVALID, FILE)
def wrapped_count():
    array, body, central = npy("|u1", (0,), b""), bytearray(), bytearray()
    for number in range(70_000):
        member = Member(b"%d.npy" % number, array)
        central += member.central(len(body))
        body += member.local()
    yield Input(
        "70,000 as 4,464", bytes(body + central) + zip_end(70_000 & 0xFFFF, len(central), len(body))
    )


@row("Z18", OK, FILE, commands=("hash",), full=SANITIZED)
def four_gib_members():
    for size in (2**32 - 1, 2**32):
        header = npy("|u1", (size - 128,), b"")
        yield Input(
            f"{size}",
            functools.partial(write_sparse_member, header=header, size=size),
            printed=f"  U8  [{size - 128}]  ",
            timeout=60,
        )


def write_sparse_member(folder, header, size):
    assert len(header) == 128
    member = Member(
        b"a.npy",
        b"",
        packed=b"",
        crc=crc32_zeros(zlib.crc32(header), size - len(header)),
        size=size,
        packed_size=size,
        zip64=True,
    )
    with open(folder / FILE, "wb") as file:
        file.write(member.local() + header)
        file.seek(size - len(header), 1)
        offset, central = file.tell(), member.central(0)
        file.write(central + zip64_end(1, len(central), offset, offset + len(central)))
