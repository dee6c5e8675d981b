"""What Python's own pickle machines make of a program, with all that it names and calls recorded.

`run` gives the result as text, the names and calls in their order, and how far the machine read.
Nothing of what a pickle names is imported: a name is a class that notes how it is used, or, where
tconv too makes data of it, a stand-in that does as the real one of the standard library.

The text is what formats/test/pickle_trace.c prints, which says how it looks.
"""

import argparse
import codecs
import collections
import copyreg
import io
import pickle
from pathlib import PurePosixPath

EVENTS = []
UNDECIDED = "undecided"
NOTHING = type("Nothing", (), {"__repr__": lambda _: "-"})()
EXTENSION = ("extension", "one")
copyreg.add_extension(*EXTENSION, 1)


class Shown(type):
    """The class of classes that a pickle may name: shows the name, and takes items as objects do."""

    def __repr__(cls):
        return cls.shown

    def __setitem__(cls, key, value):
        pass


def note_call(shown):
    EVENTS.append(" c" + shown)


# Names that mean nothing here


class Thing(metaclass=Shown):
    """Any class or function: what is done with it is part of how it is shown."""

    shown = "?"
    made_of, args, state, content, more = None, (), NOTHING, NOTHING, NOTHING

    def __new__(cls, *args, **keywords):
        # pickle.py takes objects for classes too.
        note_call(cls.shown if isinstance(cls, type) else "?")
        self = object.__new__(cls)
        self.args = (*args, keywords) if keywords else args
        return self

    def __call__(self, *args, **keywords):
        note_call("?")
        made = object.__new__(Thing)
        made.made_of, made.args = self, (*args, keywords) if keywords else args
        return made

    def __repr__(self):
        if any(self is each for each in OPEN):
            return "<...>"
        OPEN.append(self)
        try:
            args = self.args
            while args and args[-1] == {}:
                args = args[:-1]
            made_of = self.made_of or type(self)
            content = self.content or NOTHING
            more = "" if self.more is NOTHING else f"|{show(self.more)}"
            return f"<{made_of!r} {show(args)}|{show(self.state)}|{show(content)}{more}>"
        finally:
            OPEN.pop()

    # These are called with an object, or without one where the class itself is used so.

    def __setstate__(*args):
        if len(args) == 2:
            args[0].state = args[1]

    def take(self, kind, items):
        if self.content is NOTHING:
            self.content = kind()
        if type(self.content) is not kind:
            self.more = items
        elif kind is list:
            self.content.extend(items)
        else:
            self.content.update(items)

    def append(*args):
        if len(args) == 2:
            args[0].take(list, [args[1]])

    def extend(*args):
        if len(args) == 2:
            args[0].take(list, args[1])

    def add(*args):
        if len(args) == 2:
            args[0].take(set, [args[1]])

    def __setitem__(self, key, value):
        self.take(dict, {key: value})


OPEN = []  # objects that are being shown


class Persistent:
    def __init__(self, key):
        self.key = key

    def __repr__(self):
        return f"P({show(self.key)})"


# Names of which tconv makes data


def recorded(shown, base, **more):
    """A class that is as `base`, and notes that an object is made of it."""

    def __new__(cls, *args, **keywords):
        if isinstance(cls, type):
            note_call(shown)
        return base.__new__(cls, *args, **keywords)

    slots = {} if "__dict__" in dir(base()) else {"__slots__": ()}
    return Shown(base.__name__, (base,), {"shown": shown, "__new__": __new__, **slots, **more})


def made_by(shown, function):
    """A class whose objects are what a function gives."""

    def __new__(cls, *args, **keywords):
        note_call(shown)
        return function(*args, **keywords)

    return Shown("made_by", (), {"shown": shown, "__new__": __new__})


class Function:
    def __init__(self, shown, function):
        self.shown, self.function = shown, function

    def __repr__(self):
        return self.shown

    def __call__(self, *args, **keywords):
        """What it calls in turn is not the pickle's: a scan judges its arguments."""
        note_call(self.shown)
        noted = len(EVENTS)
        try:
            return self.function(*args, **keywords)
        finally:
            del EVENTS[noted:]


def reconstruct(cls, base, state):
    base = object if getattr(base, "shown", "").endswith(".object") else base
    return copyreg._reconstructor(cls, base, state)


def as_dict(self):
    return dict.__repr__(self)


def as_list(self):
    return show(list(self))


def no_arguments(cls, *args, **keywords):
    note_call(cls.shown if isinstance(cls, type) else "?")
    if args or keywords:
        raise TypeError("it takes no arguments")
    return object.__new__(cls)


def stand_ins():
    for module in ("builtins", "__builtin__"):
        for base in (set, frozenset, list, bytearray):
            yield f"{module}.{base.__name__}", lambda shown, base=base: recorded(shown, base)
        yield f"{module}.dict", lambda shown: recorded(shown, dict, __repr__=as_dict)
        yield f"{module}.bytes", lambda shown: made_by(shown, bytes)
    for base in (collections.OrderedDict, collections.Counter, collections.defaultdict):
        name = f"collections.{base.__name__}"
        yield name, lambda shown, base=base: recorded(shown, base, __repr__=as_dict)
    yield "collections.deque", lambda shown: recorded(shown, collections.deque, __repr__=as_list)
    yield "_codecs.encode", lambda shown: Function(shown, codecs.encode)
    yield "pathlib.PosixPath", lambda shown: made_by(shown, lambda *a: str(PurePosixPath(*a)))
    for name in ("copyreg._reconstructor", "copy_reg._reconstructor"):
        yield name, lambda shown: Function(shown, reconstruct)
    for name in ("argparse.Namespace", "types.SimpleNamespace"):
        yield name, lambda shown: Shown(
            "Namespace",
            (Thing,),
            {"shown": shown, "__new__": no_arguments, "__hash__": None},
        )


STAND_INS = {name: make(name) for name, make in stand_ins()}
assert argparse.Namespace.__hash__ is None  # as the stand-in has it


class Names(dict):
    """(module, name) -> the event and the class."""

    def __missing__(self, key):
        text = ".".join(key).encode("utf-8", "backslashreplace").decode()
        if key == EXTENSION:
            text = "copyreg.extension"
        known = STAND_INS.get(text) or Shown("Thing", (Thing,), {"shown": text})
        shown = text.encode("unicode_escape").decode().replace(" ", "\\ ")
        if known.shown != shown and isinstance(known, Shown):
            known.shown = shown
        if len(self) > 4096:
            self.clear()
        self[key] = " g" + shown, known
        return self[key]


NAMES = Names()


# The machines


def find_class(self, module, name):
    event, known = NAMES[module, name]
    EVENTS.append(event)
    return known


def persistent_load(self, key):
    return None if isinstance(key, str) else Persistent(key)  # as inert has it for PERSID


HOOKS = {"find_class": find_class, "persistent_load": persistent_load}
C_MACHINE = type("CMachine", (pickle.Unpickler,), HOOKS)
PYTHON_MACHINE = type("PythonMachine", (pickle._Unpickler,), HOOKS)


class InMemory(io.BytesIO):
    """A file that shows what comes: C's machine then reads as it does from bytes."""

    def peek(self, _):
        return self.getvalue()[self.tell() :]


def show(value):
    """As Python's ascii(), but sets are sorted."""
    return ascii(value) if no_sets(value) else show_sets(value)


def no_sets(value):
    """Whether it is certain that no set is in it."""
    kind = type(value)
    return kind in (str, int, bool, bytes, float, type(None), Thing) or (
        kind in (tuple, list, dict) and not value
    )


def show_sets(value):
    if isinstance(value, (set, frozenset)):
        return f"<{', '.join(sorted(map(show, value)))}>"
    if not isinstance(value, (tuple, list, dict, collections.deque)):
        return ascii(value)
    brackets = "()" if isinstance(value, tuple) else "{}" if isinstance(value, dict) else "[]"
    if any(value is each for each in OPEN):
        return f"{brackets[0]}...{brackets[1]}"
    OPEN.append(value)
    try:
        if isinstance(value, dict):
            inner = ", ".join(f"{show(key)}: {show(item)}" for key, item in value.items())
        else:
            inner = ", ".join(map(show, value))
            inner += "," if isinstance(value, tuple) and len(value) == 1 else ""
    finally:
        OPEN.pop()
    return f"{brackets[0]}{inner}{brackets[1]}"


def run(program, machine=C_MACHINE, file=io.BytesIO, encoding="utf-8"):
    """The result as text, None where the machine refuses it; the events; where it stands.

    The text is UNDECIDED where another machine or encoding might accept it: C's memo is an array as
    long as its highest key, and strings of Python 2 may be no UTF-8.
    """
    EVENTS.clear()
    OPEN.clear()
    copyreg._extension_cache.clear()
    stream = file(program)
    try:
        shown = show(machine(stream, encoding=encoding).load())
    except (MemoryError, UnicodeDecodeError) as error:
        shown = UNDECIDED
        again = encoding == "utf-8" and isinstance(error, UnicodeDecodeError)
    except Exception:
        shown = None
    if shown is UNDECIDED and again:
        shown, events, stands = run(program, machine, file, "bytes")
        return shown and UNDECIDED, events, stands
    return shown, "".join(EVENTS), stream.tell()
