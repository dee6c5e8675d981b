"""Pickles that are wrong in one way each: names, types, persistent ids, views, nesting, keys, arguments."""
from pickle_code import call, constant, integer, model, name_of, storage, tensor, text, tuple_of

HOSTILE = [
    "os.system", "posix.system", "nt.system", "subprocess.Popen", "builtins.eval", "__builtin__.eval",
    "builtins.exec", "builtins.getattr", "builtins.__import__", "__builtin__.apply", "sys.exit", "pickle.loads",
    "_pickle.loads", "torch.load", "torch.serialization.load", "torch.hub.load",
    "torch.jit.load", "numpy.load", "functools.partial", "operator.attrgetter", "pkgutil.resolve_name", "pip.main",
    "webbrowser.open", "importlib.import_module", "runpy.run_path", "ctypes.CDLL", "shutil.rmtree", "builtins.open",
    "io.open", "collections.namedtuple", "torch._utils._import_dotted_name", "torch.nn.modules.linear.Linear",
    "torch.ops.load_library", "numpy.core.multiarray.fromfile", "numpy.ndarray.tofile",
    "collections.OrderedDict.fromkeys", "torch.Tensor.__setstate__", "torch.FloatStorage.from_file",
    "builtins.set.union", "copyreg._reconstructor", "torch._utils._rebuild_tensor_v2.__globals__",
    "__torch__.Module", "torch.jit._pickle.build_intlist", "builtins.bytes", "builtins.str", "builtins.type",
    "builtins.object", "codecs.encode", "_codecs.decode", "_codecs.lookup", "torch.from_file",
    "torch.UntypedStorage.from_file", "torch", ".",
]  # fmt: skip


def hostile() -> list[tuple[str, bytes]]:
    good = tensor(storage())
    found = []
    for name in HOSTILE:
        found += [
            (f"{name} called", model(w=good, x=call(name, text("true")))),
            (f"{name} named", model(w=good, x=name_of(name))),
            (f"{name} made", model(w=good, x=name_of(name) + b")\x81")),
        ]
    for name in HOSTILE[:6]:
        module, _, attribute = name.rpartition(".")
        found += [
            (f"{name} by INST", model(w=good, x=b"(" + text("true") + f"i{module}\n{attribute}\n".encode())),
            (f"{name} by OBJ", model(w=good, x=b"(" + name_of(name) + text("true") + b"o")),
            (
                f"{name} by STACK_GLOBAL",
                model(w=good, x=text(module) + text(attribute) + b"\x93" + tuple_of(text("true")) + b"R"),
            ),
            (f"{name}, then dropped", name_of(name) + tuple_of(text("true")) + b"R0" + model(w=good)),
            (f"{name}, as a hook", model(w=tensor(storage(), 0, (2, 3), (3, 1), b"\x89", call(name, text("true"))))),
            (f"{name}, before garbage", model(w=good, x=call(name, text("true"))) + b"\xff\xff"),
            (f"{name}, after STOP", model(w=good) + b"." + call(name, text("true"))),
        ]
    targets = {
        "tuple": tuple_of(text("a"), text("b")), "list": constant([1, 2]), "text": text("a"), "none": b"N",
        "int": integer(1), "tensor": good, "storage": storage(), "set": call("builtins.set", b"]"),
        "class": name_of("torch.Size"), "OrderedDict class": name_of("collections.OrderedDict"),
        "size": call("torch.Size", constant([1])), "dict": b"}", "OrderedDict": call("collections.OrderedDict"),
        "Counter": call("collections.Counter"),
    }  # fmt: skip
    ends = {
        "SETITEM": text("k") + integer(1) + b"s", "SETITEM of a number": integer(0) + integer(1) + b"s",
        "SETITEMS": b"(" + text("k") + integer(1) + b"u", "SETITEMS, odd": b"(" + text("k") + b"u",
        "APPEND": integer(1) + b"a", "APPENDS": b"(" + integer(1) + b"e",
        "BUILD of a dict": constant({"k": 1}) + b"b", "BUILD of a tuple": constant((1, 2)) + b"b",
        "BUILD of none": b"Nb", "REDUCE": tuple_of(integer(1)) + b"R", "NEWOBJ": b")\x81", "BINPERSID": b"Q",
    }  # fmt: skip
    for target, made in targets.items():
        for end, code in ends.items():
            found.append((f"{end} on a {target}", model(w=good, x=made + code)))
    persistent = {
        "of a number": integer(0) + b"Q",
        "of text": text("storage") + b"Q",
        "of nothing": b")Q",
        "of four": constant(("storage", "a", "0", "cpu"))[:-1] + b"tQ",
        "of six": tuple_of(text("storage"), name_of("torch.FloatStorage"), text("0"), text("cpu"), integer(6), b"N")
        + b"Q",
        "of itself": storage() + b"Q",
        "with a number for a key": tuple_of(
            text("storage"), name_of("torch.FloatStorage"), integer(0), text("cpu"), integer(6)
        )
        + b"Q",
        "with a missing key": storage("7"),
        "with a path for a key": storage("../data/0"),
        "with an absolute key": storage("/etc/passwd"),
        "with a text for numel": tuple_of(
            text("storage"), name_of("torch.FloatStorage"), text("0"), text("cpu"), text("6")
        )
        + b"Q",
        "with a wrong class": storage("0", 6, "torch.float32"),
        "with another tag": storage(tag="module"),
        "with bytes for a tag": tuple_of(
            b"U\x07storage", name_of("torch.FloatStorage"), text("0"), text("cpu"), integer(6)
        )
        + b"Q",
    }
    found += [(f"persistent id {kind}", model(w=tensor(code))) for kind, code in persistent.items()]
    for numel in (0, 1, 5, 7, 12, -1, 2**31, 2**61, 2**62, 2**63, 2**70):
        found.append((f"storage of {numel}", model(w=tensor(storage(numel=numel)))))
    for kind in ("Double", "Half", "Bool", "Long", "Char", "ComplexDouble", "ComplexFloat", "QInt32"):
        found.append((f"storage of {kind}", model(w=tensor(storage("0", 6, f"torch.{kind}Storage")))))
    found.append(("one storage, two dtypes", model(a=tensor(storage()), b=tensor(storage("0", 6, "torch.IntStorage")))))
    found.append(("one storage, two lengths", model(a=tensor(storage()), b=tensor(storage("0", 3), 0, (3,), (1,)))))
    views = [
        (0, (2, 3), (3, 1)), (0, (7,), (1,)), (1, (6,), (1,)), (6, (0,), (1,)), (7, (0,), (1,)),
        (2**62, (0,), (1,)), (-1, (2,), (1,)), (0, (2,), (-1,)), (5, (2,), (-1,)), (0, (-1,), (1,)),
        (0, (2, 3), (1,)), (0, (), ()), (6, (), ()), (0, (3, 3), (1, 1)), (0, (2**40,), (0,)),
        (0, (2**62, 4), (0, 0)), (0, (2**32, 2**32), (0, 0)), (0, (2**63 - 1,), (1,)), (0, (2,), (2**62,)),
        (0, (3,), (2**63 - 1,)), (0, (1,), (2**63 - 1,)), (0, (1, 0), (2**62, 2**62)), (0, [2, 3], [3, 1]),
        (0, (2, 3), [3, 1]), (0, 6, 1), ("0", (2,), (1,)), (0, ("2",), (1,)), (0, (2.0,), (1,)), (0, (True,), (1,)),
        (True, (2,), (1,)), (0, (2, None), (1, 1)), (0, (1,) * 64, (1,) * 64), (0, (1,) * 65, (1,) * 65),
        (0, (1,) * 200, (1,) * 200), (2**63, (1,), (1,)), (0, (2**64,), (0,)),
    ]  # fmt: skip
    found += [(f"view {view}", model(w=tensor(storage(), *view))) for view in views]
    deep, wide = 2000, 5000
    found += [
        ("a list in itself", b"]q\x00h\x00a" + b"0" + model(w=good, x=b"h\x00")),
        ("a dict in itself", b"}q\x00" + text("a") + b"h\x00s"),
        ("nested lists", model(w=good, x=b"]" * deep + b"a" * (deep - 1))),
        ("nested tuples", model(w=good, x=b")" + b"\x85" * deep)),
        ("marks", b"(" * wide + model(w=good)),
        (
            "billion laughs",
            model(
                w=good,
                x=b"]q\x00"
                + b"".join(b"0h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(64)),
            ),
        ),
        ("memo far out", model(w=good + b"r\xff\xff\xff\x7f")),
        ("memo not set", model(w=b"h\x05")),
        ("put on nothing", b"q\x00" + model(w=good)),
        ("no STOP", model(w=good)),
        ("two values", model(w=good) + model(w=good)),
        ("STOP at once", b""),
        ("mark at the end", b"("),
        ("same key twice", b"}(" + text("w") + good + text("w") + tensor(storage(), 0, (3,), (1,)) + b"u"),
        ("two keys of one name", model(**{"a.b": good}) + text("a") + b"}" + text("b") + good + b"ss"),
        ("key 1 and key '1'", b"}(" + integer(1) + good + text("1") + good + b"u"),
        ("key 1 and key true", b"}(" + integer(1) + good + b"\x88" + good + b"u"),
        ("key none", b"}(N" + good + b"u"),
        ("key float", b"}(" + constant(1.5) + good + b"u"),
        ("key tuple", b"}(" + constant((1, 2)) + good + b"u"),
        ("key list", b"}(" + constant([1]) + good + b"u"),
        ("key bytes", b"}(U\x01a" + good + b"u"),
        ("key tensor", b"}(" + good + good + b"u"),
        ("huge bytearray", model(w=good, x=call("builtins.bytearray", integer(2**40)))),
        ("bytearray of ten", model(w=good, x=call("builtins.bytearray", integer(10)))),
        ("rot13", model(w=good, x=call("_codecs.encode", text("os"), text("rot13")))),
        ("utf-8", model(w=good, x=call("_codecs.encode", text("é"), text("utf-8")))),
        ("latin1", model(w=good, x=call("_codecs.encode", text("é"), text("latin1")))),
        ("not latin1", model(w=good, x=call("_codecs.encode", text("重"), text("latin1")))),
        ("complex of text", model(w=good, x=call("builtins.complex", text("1+2j")))),
        ("size of text", model(w=good, x=call("torch.Size", text("ab")))),
        ("counter of text", model(w=good, x=call("collections.Counter", text("aab")))),
        ("set of text", model(w=good, x=call("builtins.set", text("aab")))),
        ("device", model(w=good, x=call("torch.device", text("cpu")))),
        ("device of nonsense", model(w=good, x=call("torch.device", text("nonsense")))),
        ("device with index", model(w=good, x=call("torch.device", text("cuda"), integer(1)))),
        ("layout of nonsense", model(w=good, x=call("torch.serialization._get_layout", text("x")))),
        (
            "meta tensor",
            model(
                w=call(
                    "torch._utils._rebuild_meta_tensor_no_storage",
                    name_of("torch.float32"),
                    constant((2, 3)),
                    constant((3, 1)),
                    b"\x89",
                )
            ),
        ),
        ("bare tensor", good),
        ("bare int", integer(1)),
        ("bare text", text("a")),
        ("bare storage", storage()),
        ("bare list", b"](" + good + good + b"e"),
        ("bare none", b"N"),
        ("bare class", name_of("torch.Size")),
        ("empty dict", b"}"),
        ("empty tuple", b")"),
        ("storage as a value", model(w=storage())),
        (
            "parameter of text",
            model(w=call("torch._utils._rebuild_parameter", text("a"), b"\x89", call("collections.OrderedDict"))),
        ),
        (
            "wrapper of a type",
            model(
                w=call(
                    "torch._tensor._rebuild_from_type_v2",
                    name_of("torch._utils._rebuild_tensor_v2"),
                    name_of("torch.Tensor"),
                    tuple_of(
                        storage(),
                        integer(0),
                        constant((2, 3)),
                        constant((3, 1)),
                        b"\x89",
                        call("collections.OrderedDict"),
                    ),
                    b"}",
                )
            ),
        ),
        (
            "wrapper of a call to set",
            model(
                w=call(
                    "torch._tensor._rebuild_from_type_v2",
                    name_of("builtins.set"),
                    name_of("torch.Tensor"),
                    tuple_of(b"]"),
                    b"}",
                )
            ),
        ),
        (
            "wrapper of a hostile function",
            model(
                w=call(
                    "torch._tensor._rebuild_from_type_v2",
                    name_of("posix.system"),
                    name_of("torch.Tensor"),
                    tuple_of(text("true")),
                    b"}",
                )
            ),
        ),
        ("long text", model(w=good, x=text("x" * 300_000))),
        ("text cut short", model(w=good) + b"X\xff\xff\xff\x7fabc"),
        ("bad utf-8", model(w=good, x=b"X\x01\0\0\0\xff")),
        ("surrogate in a key", b"}(" + text("\ud800") + good + b"u"),
        ("key with a NUL", b"}(" + text("a\0b") + good + b"u"),
        ("protocol 0", model(w=good)),
        ("unframed 4", model(w=good)),
    ]
    return found
