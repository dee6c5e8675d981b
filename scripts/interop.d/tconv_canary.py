"""What hostile pickles name: everything in here reports that it was reached, and does nothing else."""

report = None  # set by the process that watches


def touch(*arguments, **options):
    if report:
        report("ran", "touch")
    return touch


def extension(*arguments):
    """What the watching process has itself registered under a number: to look it up is no import, to call it is a run."""
    return touch(*arguments)


class Touch:
    """Each way in which an unpickler calls into an object."""

    def __new__(cls, *arguments, **options):
        touch()
        return super().__new__(cls)

    def __init__(self, *arguments, **options):
        touch()

    def __setstate__(self, state):
        touch()

    def __setitem__(self, key, value):
        touch()

    def append(self, value):
        touch()

    def extend(self, values):
        touch()

    def add(self, value):
        touch()

    def __call__(self, *arguments):
        touch()
        return self

    def __hash__(self):
        touch()
        return 0

    def __reduce_ex__(self, protocol):
        touch()
        return (Touch, ())


class inner:  # for dotted names
    touch = staticmethod(touch)
    Touch = Touch


value = Touch.__new__(Touch)  # an object, not a class: BUILD and the others reach into it
