/*
 * Names that no data needs: they run programs or code, load code, open files,
 * reach the network, or give access to any attribute of anything. A name on no list is
 * unsafe as well; this list says which names are known to be dangerous.
 *
 * An entry stands for itself and for what is below it: "os" for "os.system". Of
 * Python's built-in functions only some are meant, since most make plain data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "formats/pickle/pickle.h"

#define MAX_NAME 4096u

/* Sorted by bytes, for a binary search. */
static const char *const names[] = {
    "IPython",
    "__builtins__",
    "_aix_support",
    "_asyncio",
    "_bootstrap_subprocess",
    "_codecs.lookup_error",
    "_codecs.register",
    "_codecs.register_error",
    "_ctypes",
    "_ctypes_test",
    "_dbm",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "_functools",
    "_gdbm",
    "_imp",
    "_interpreters",
    "_io.FileIO",
    "_io.open",
    "_io.open_code",
    "_msi",
    "_multiprocessing",
    "_operator",
    "_osx_support",
    "_pickle",
    "_posixshmem",
    "_posixsubprocess",
    "_pyrepl",
    "_signal",
    "_socket",
    "_sqlite3",
    "_ssl",
    "_testcapi",
    "_thread",
    "_winapi",
    "_winreg",
    "_xxsubinterpreters",
    "aiohttp",
    "antigravity",
    "anydbm",
    "ast",
    "asyncio",
    "atexit",
    "bdb",
    "boto3",
    "botocore",
    "bsddb",
    "bz2",
    "cPickle",
    "cProfile",
    "cffi",
    "cgi",
    "cgitb",
    "click",
    "cloudpickle",
    "cmd",
    "code",
    "codecs.open",
    "codecs.register",
    "codeop",
    "collections.abc",
    "collections.namedtuple",
    "commands",
    "compile",
    "compileall",
    "concurrent",
    "copyreg.__newobj__",
    "copyreg.__newobj_ex__",
    "copyreg.add_extension",
    "copyreg.clear_extension_cache",
    "copyreg.constructor",
    "copyreg.extension",
    "copyreg.pickle",
    "copyreg.remove_extension",
    "crypt",
    "ctypes",
    "dataclasses.make_dataclass",
    "dbm",
    "dill",
    "dis",
    "distutils",
    "docker",
    "doctest",
    "email.mime",
    "ensurepip",
    "enum.EnumMeta.__call__",
    "eval",
    "exec",
    "fabric",
    "faulthandler",
    "fcntl",
    "fileinput",
    "fire",
    "ftfy",
    "ftplib",
    "functools",
    "gc",
    "gdbm",
    "getpass",
    "git",
    "gitdb",
    "glob",
    "grp",
    "gzip",
    "hickle",
    "http",
    "httplib",
    "httpx",
    "huggingface_hub",
    "idlelib",
    "imaplib",
    "imghdr",
    "imp",
    "importlib",
    "inspect",
    "invoke",
    "io.FileIO",
    "io.OpenWrapper",
    "io.open",
    "io.open_code",
    "io.text_encoding",
    "ipykernel",
    "itertools.accumulate",
    "itertools.dropwhile",
    "itertools.filterfalse",
    "itertools.groupby",
    "itertools.starmap",
    "itertools.takewhile",
    "jinja2",
    "joblib.externals",
    "joblib.load",
    "joblib.memory",
    "joblib.numpy_pickle.load",
    "joblib.numpy_pickle_utils",
    "joblib.parallel",
    "jsonpickle",
    "keras.layers.Lambda",
    "keras.models.load_model",
    "keras.src.layers.core.lambda_layer",
    "keras.utils.get_file",
    "lib2to3",
    "lightning.pytorch.cli",
    "linecache",
    "logging.FileHandler",
    "logging.basicConfig",
    "logging.config",
    "logging.handlers",
    "lzma",
    "mailbox",
    "mako",
    "marshal",
    "mimetypes",
    "mmap",
    "modulefinder",
    "msvcrt",
    "multiprocessing",
    "netrc",
    "nis",
    "nltk.data",
    "nltk.downloader",
    "nntplib",
    "notebook",
    "nt",
    "ntpath",
    "nturl2path",
    "numpy.DataSource",
    "numpy._core.multiarray.fromfile",
    "numpy.apply_along_axis",
    "numpy.apply_over_axes",
    "numpy.core._multiarray_umath._reload_guard",
    "numpy.core.multiarray.fromfile",
    "numpy.core.testing",
    "numpy.ctypeslib",
    "numpy.distutils",
    "numpy.f2py",
    "numpy.fromfile",
    "numpy.fromfunction",
    "numpy.frompyfunc",
    "numpy.fromregex",
    "numpy.genfromtxt",
    "numpy.info",
    "numpy.lib._npyio_impl",
    "numpy.lib._utils_impl",
    "numpy.lib.format",
    "numpy.lib.npyio",
    "numpy.lib.utils",
    "numpy.load",
    "numpy.loadtxt",
    "numpy.lookfor",
    "numpy.memmap",
    "numpy.save",
    "numpy.savez",
    "numpy.source",
    "numpy.testing",
    "numpy.vectorize",
    "operator",
    "os",
    "pandas.compat.pickle_compat",
    "pandas.core.computation",
    "pandas.eval",
    "pandas.io",
    "pandas.read_pickle",
    "paramiko",
    "pathlib.Path.open",
    "pathlib.Path.read_bytes",
    "pathlib.Path.read_text",
    "pathlib.Path.unlink",
    "pathlib.Path.write_bytes",
    "pathlib.Path.write_text",
    "pdb",
    "pexpect",
    "pickle",
    "pip",
    "pipes",
    "pkg_resources",
    "pkgutil",
    "platform._syscmd_ver",
    "platform.architecture",
    "platform.libc_ver",
    "platform.node",
    "platform.platform",
    "platform.popen",
    "platform.system",
    "platform.uname",
    "plumbum",
    "popen2",
    "poplib",
    "posix",
    "posixpath",
    "profile",
    "psutil",
    "pty",
    "pwd",
    "py_compile",
    "pyautogui",
    "pyclbr",
    "pydoc",
    "random.SystemRandom",
    "random._os",
    "readline",
    "reprlib._os",
    "requests",
    "resource",
    "ruamel",
    "runpy",
    "sched",
    "scipy.io",
    "scipy.weave",
    "select",
    "selectors",
    "setuptools",
    "sh",
    "shelve",
    "shlex",
    "shutil",
    "signal",
    "site",
    "sitecustomize",
    "smtpd",
    "smtplib",
    "sndhdr",
    "socket",
    "socketserver",
    "spacy.util",
    "spwd",
    "sqlite3",
    "srsly",
    "ssl",
    "statistics._os",
    "string.Formatter",
    "subprocess",
    "symtable",
    "sys",
    "sysconfig",
    "tabnanny",
    "tarfile",
    "telnetlib",
    "tempfile",
    "tensorflow.io",
    "tensorflow.keras.models.load_model",
    "tensorflow.load_library",
    "tensorflow.load_op_library",
    "tensorflow.numpy_function",
    "tensorflow.py_function",
    "tensorflow.python",
    "termios",
    "test",
    "this",
    "thread",
    "threading",
    "timeit",
    "tkinter",
    "torch.UntypedStorage.from_file",
    "torch._C",
    "torch._appdirs",
    "torch._dynamo",
    "torch._inductor",
    "torch._jit_internal",
    "torch._sources",
    "torch._utils_internal",
    "torch.classes",
    "torch.compile",
    "torch.cpp_extension",
    "torch.cuda.memory",
    "torch.distributed",
    "torch.from_file",
    "torch.fx",
    "torch.hub",
    "torch.jit",
    "torch.library",
    "torch.load",
    "torch.multiprocessing",
    "torch.onnx",
    "torch.ops",
    "torch.package",
    "torch.save",
    "torch.serialization",
    "torch.storage.UntypedStorage.from_file",
    "torch.storage._load_from_bytes",
    "torch.testing",
    "torch.utils",
    "trace",
    "tracemalloc",
    "transformers.AutoModel",
    "transformers.dynamic_module_utils",
    "transformers.pipeline",
    "transformers.utils.hub",
    "tty",
    "turtle",
    "types.BuiltinFunctionType",
    "types.CodeType",
    "types.DynamicClassAttribute",
    "types.FunctionType",
    "types.LambdaType",
    "types.MethodType",
    "types.ModuleType",
    "types.coroutine",
    "types.new_class",
    "types.prepare_class",
    "types.resolve_bases",
    "typing.ForwardRef",
    "typing._eval_type",
    "typing.get_type_hints",
    "unittest",
    "urllib",
    "urllib2",
    "urllib3",
    "usercustomize",
    "uuid._arp_getnode",
    "uuid._find_mac",
    "uuid._get_command_stdout",
    "uuid._ifconfig_getnode",
    "uuid._ipconfig_getnode",
    "uuid._lanscan_getnode",
    "uuid._netbios_getnode",
    "uuid._netstat_getnode",
    "uuid._popen",
    "uuid.getnode",
    "venv",
    "weakref.WeakMethod",
    "weakref.finalize",
    "weakref.ref",
    "webbrowser",
    "whichdb",
    "win32api",
    "win32com",
    "win32process",
    "winreg",
    "wmi",
    "wsgiref",
    "xmlrpc",
    "yaml",
    "zipapp",
    "zipfile",
    "zipimport",
};

/* Names in builtins, which Python 2 calls __builtin__. Sorted by bytes too. */
static const char *const builtins[] = {
    "__build_class__",
    "__import__",
    "__loader__",
    "__spec__",
    "apply",
    "breakpoint",
    "callable",
    "classmethod",
    "coerce",
    "compile",
    "copyright",
    "credits",
    "delattr",
    "dir",
    "eval",
    "exec",
    "execfile",
    "exit",
    "file",
    "filter",
    "getattr",
    "globals",
    "hasattr",
    "help",
    "input",
    "intern",
    "iter",
    "license",
    "locals",
    "map",
    "memoryview",
    "next",
    "open",
    "property",
    "quit",
    "raw_input",
    "reduce",
    "reload",
    "setattr",
    "staticmethod",
    "super",
    "type",
    "vars",
};

static int compare(const void *key, const void *entry) {
    return tc_text_compare(*(const struct tc_text *)key, tc_text_of(*(const char *const *)entry));
}

static bool is_listed(struct tc_text name, const char *const *list, size_t count) {
    return bsearch(&name, list, count, sizeof *list, compare) != NULL;
}

#define LISTED(name, list) is_listed(name, list, sizeof(list) / sizeof *(list))

/* Whether a name or what it is inside of is listed: "a.b.c", "a.b" or "a". */
static bool is_below_listed(struct tc_text name) {
    for (;;) {
        if (LISTED(name, names))
            return true;
        const char *dot = name.length ? memrchr(name.bytes, '.', name.length) : NULL;
        if (!dot)
            return false;
        name.length = (size_t)(dot - name.bytes);
    }
}

/* What follows a name's first dot; empty where it has none. */
static struct tc_text behind_dot(struct tc_text name) {
    const char *dot = name.length ? memchr(name.bytes, '.', name.length) : NULL;
    size_t skipped = dot ? (size_t)(dot - name.bytes) + 1 : name.length;
    return (struct tc_text){name.bytes + skipped, name.length - skipped};
}

/* The name in Python 3: in old pickles it replaces Python 2's names of modules. */
static struct tc_text modern(struct tc_text name, char *space, size_t size) {
    static const struct {
        const char *old;
        const char *new;
    } modules[] = {{"__builtin__", "builtins"},
                   {"copy_reg", "copyreg"},
                   {"StringIO", "io"},
                   {"cStringIO", "io"},
                   {"UserDict", "collections"},
                   {"UserList", "collections"},
                   {"UserString", "collections"},
                   {"_abcoll", "collections.abc"},
                   {"repr", "reprlib"},
                   {"test.test_support", "test.support"},
                   {"ConfigParser", "configparser"}};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        struct tc_text old = tc_text_of(modules[i].old);
        if (!tc_text_starts(name, old) || name.length <= old.length ||
            name.bytes[old.length] != '.')
            continue;
        int length = snprintf(
            space, size, "%s%.*s", modules[i].new,
            tc_text_shown((struct tc_text){name.bytes + old.length, name.length - old.length}, 900),
            name.bytes + old.length);
        return (struct tc_text){space, (size_t)length};
    }
    return name;
}

/* Whether it is a special attribute: __class__, __globals__ and so on. */
static bool is_special(struct tc_text part) {
    return part.length > 4 && tc_text_starts(part, TC_TEXT("__")) &&
           tc_text_ends(part, TC_TEXT("__"));
}

/* A name may reach anything by attributes: "torch.os.system" is "os.system", and
 * "str.__class__.__base__" leads everywhere. */
bool pickle_is_dangerous(struct tc_text name) {
    char space[1024];
    /* A name that only running the pickle would show, or too long for a name. */
    if (tc_text_starts(name, TC_TEXT("?")) || name.length > MAX_NAME)
        return true;
    name = modern(name, space, sizeof space);
    bool builtin = tc_text_starts(name, TC_TEXT("builtins."));
    if (is_below_listed(name))
        return true;
    for (struct tc_text rest = behind_dot(name); rest.length; rest = behind_dot(rest)) {
        const char *dot = memchr(rest.bytes, '.', rest.length);
        struct tc_text first = {rest.bytes, dot ? (size_t)(dot - rest.bytes) : rest.length};
        if ((builtin ? LISTED(first, builtins) : dot && LISTED(first, names)) || is_special(first))
            return true;
    }
    return false;
}

static bool is_letter(uint32_t c) {
    return (c | 0x20) - 'a' < 26u || c == '_' || c >= 0xA1;
}

bool pickle_is_importable(struct tc_text name) {
    bool start = true;
    size_t parts = 1;
    for (size_t at = 0; at < name.length;) {
        uint32_t c = 0;
        size_t length = tc_utf8_length(name.bytes + at, name.length - at, &c);
        bool digit = c - '0' < 10u;
        if (length == 0 || (start ? !is_letter(c) : !is_letter(c) && !digit && c != '.'))
            return false;
        start = c == '.';
        parts += start;
        at += length;
    }
    return !start && parts > 1;
}
