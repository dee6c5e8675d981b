/* What the pickle machine makes of names and calls. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/test/pickle_run.h"

Test(pickle, globals_are_names) {
    expect(P("ccollections\nOrderedDict\n."), "collections.OrderedDict");
    expect(P("\214\13collections\214\13OrderedDict\223."), "collections.OrderedDict");
    expect(P("c__builtin__\nset\n."), "__builtin__.set");
    expect(P("ctorch\nFloatStorage\n."), "torch.FloatStorage");
    expect(P("ctorch.cuda\nFloatStorage\n."), "torch.cuda.FloatStorage");
    struct run run;
    run_begin(&run,
              P("(ctorch\nfloat8_e5m2\nctorch.cuda\nHalfStorage\nctorch.storage\n"
                "UntypedStorage\nctorch\nper_channel_affine\nctorch\nSize\nt."),
              false);
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    static const struct {
        enum pickle_global global;
        unsigned value;
    } expected[] = {{PICKLE_DTYPE, TC_F8_E5M2},
                    {PICKLE_STORAGE_CLASS, TC_F16},
                    {PICKLE_STORAGE_CLASS, TC_NONE},
                    {PICKLE_QSCHEME, 1},
                    {PICKLE_SIZE, 0}};
    cr_assert_eq(run.root->count, 5);
    for (size_t i = 0; i < 5; i++) {
        cr_assert_eq(run.root->items[i]->global, expected[i].global);
        cr_assert_eq(run.root->items[i]->value, expected[i].value);
    }
    run_end(&run);
    static const char *const unknown[] = {
        "cos\nsystem\n.",
        "cposix\nsystem\n.",
        "c__builtin__\neval\n.",
        "cbuiltins\ngetattr\n.",
        "ctorch\nload\n.",
        "ctorch._utils\n_rebuild_tensor_v9\n.",
        "ctorch._utils\n\n.",
        "c\nset\n.",
        "c__torch__\nModule\n.",
        "ctorch.jit\nScriptModule\n.",
        "ccollections\nOrderedDict.x\n.",
        "ctorch.jit._pickle\nbuild_intlist\n.",
        "ctorch.cuda\nfloat32\n.",
        "ccollections.OrderedDict\n__reduce__\n.",
        "cBuiltins\nset\n.",
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        refused(unknown[i], strlen(unknown[i]), TC_UNSAFE, "not on the list");
    refused(P("\214\2os\214\6system\223."), TC_UNSAFE, "\"os.system\"");
    refused(P("\214\2osK\1\223."), TC_INVALID, "no string");
    refused(P("c\377\nset\n."), TC_INVALID, "not valid UTF-8");
    refused(P("\202\1."), TC_UNSAFE, "extension 1");
    refused(P("\203\1\2."), TC_UNSAFE, "extension 513");
    refused(P("\204\1\0\0\0."), TC_UNSAFE, "extension 1");
    char line[5000];
    memset(line, 'a', sizeof line);
    line[0] = 'c';
    memcpy(line + 4990, "\nset\n.", 6);
    refused(line, 4996, TC_UNSAFE, "lines");
}

Test(pickle, calls_that_make_data) {
    expect(P("ccollections\nOrderedDict\n)R."), "{}");
    expect(P("ccollections\nOrderedDict\n]]K\1aK\2aa\205R."), "{1: 2}");
    expect(P("ccollections\nOrderedDict\n(K\1K\2\206l\205R."), "{1: 2}");
    expect(P("ccollections\nCounter\n}K\1K\2s\205R."), "{1: 2}");
    expect(P("ccollections\ndefaultdict\nc__builtin__\nlist\n\205R."), "{}");
    expect(P("ccollections\ndefaultdict\nN}K\1K\2s\206R."), "{1: 2}");
    expect(P("c__builtin__\nset\n]K\1a\205R."), "<1>");
    expect(P("cbuiltins\nfrozenset\n)R."), "<>");
    expect(P("cbuiltins\nlist\n)\201."), "[]");
    expect(P("cbuiltins\ndict\n)R."), "{}");
    expect(P("ctorch\nSize\n(K\2K\3l\205R."), "(2, 3)");
    expect(P("ctorch\nSize\n(K\2K\3t\205R."), "(2, 3)");
    expect(P("c_codecs\nencode\nX\3\0\0\0a\303\277X\6\0\0\0latin1\206R."), "b'a\\xff'");
    expect(P("c_codecs\nencode\nX\0\0\0\0X\6\0\0\0latin1\206R."), "b''");
    expect(P("cbuiltins\nbytearray\n)R."), "b''");
    expect(P("cbuiltins\nbytearray\nC\1a\205R."), "b'a'");
    expect(P("cbuiltins\nbytearray\nX\1\0\0\0aX\7\0\0\0latin-1\206R."), "b'a'");
    /* Others are noted, for whoever reads them. */
    expect(P("cbuiltins\ncomplex\nG?\360\0\0\0\0\0\0G\0\0\0\0\0\0\0\0\206R."),
           "builtins.complex(1f, 0f)");
    expect(P("ctorch\ndevice\nX\3\0\0\0cpu\205R."), "torch.device('cpu')");
    expect(P("ctorch._utils\n_rebuild_parameter\nN\210N\207R."),
           "torch._utils._rebuild_parameter(None, True, None)");
    static const char *const wrong[] = {
        "ccollections\nOrderedDict\nK\1\205R.",
        "ccollections\nOrderedDict\n]K\1a\205R.",
        "ccollections\nOrderedDict\n]]K\1aa\205R.",
        "ccollections\nOrderedDict\n]]\206R.",
        "ccollections\ndefaultdict\nK\1\205R.",
        "cbuiltins\nset\nK\1\205R.",
        "cbuiltins\nset\n]]\206R.",
        "ctorch\nSize\n)R.",
        "ctorch\nSize\nK\1\205R.",
        "ctorch\nSize\n]Na\205R.",
        "c_codecs\nencode\nVa\nVutf8\n\206R.",
        "c_codecs\nencode\nV\\u0100\nVlatin1\n\206R.",
        "c_codecs\nencode\nVa\n\205R.",
        "c_codecs\nencode\nK\1Vlatin1\n\206R.",
        "cbuiltins\nbytearray\nK\1\205R.",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i], strlen(wrong[i]), TC_INVALID, "arguments that it does not take");
}

/* Where the real class does something else with its arguments, or its own state, than keep
 * them, the file is refused. */
Test(pickle, data_is_as_the_real_classes_make_it) {
    expect(P("cbuiltins\nlist\n)\201."), "[]");
    refused(P("cbuiltins\nlist\n(K\1\205t\201."), TC_INVALID, "is made with arguments");
    refused(P("ccollections\nOrderedDict\n}\205\201."), TC_INVALID, "is made with arguments");
    expect(P("cbuiltins\nfrozenset\nK\1\205\205\201."), "<1>");
    expect(P("ccollections\ndeque\n(](K\1K\2eK\2tR."), "[1, 2]");
    refused(P("ccollections\ndeque\n(](K\1K\2eK\1tR."), TC_INVALID, "does not take");
    refused(P("ccollections\ndeque\n)K\1\206R(K\1K\2e."), TC_INVALID, "more items");
    refused(P("ccollections\ndeque\n)J\377\377\377\377\206R."), TC_INVALID, "does not take");
    expect(P("ccollections\nCounter\n}K\1K\2s\205R."), "{1: 2}");
    refused(P("ccollections\nCounter\n]K\1K\2\206a\205R."), TC_INVALID, "does not take");
    refused(P("ccollections\ndefaultdict\n)R}b."), TC_UNSAFE, "has none");
    refused(P("cbuiltins\nlist\n\217\205R."), TC_INVALID, "does not take");
    refused(P("cargparse\nNamespace\nN\205R."), TC_INVALID, "does not take");
    refused(P("ccopyreg\n_reconstructor\n(cbuiltins\nset\ncbuiltins\nobject\nNtR."), TC_INVALID,
            "does not take");
    refused(P("ccopyreg\n_reconstructor\n(ccollections\nOrderedDict\n"
              "ccollections\nOrderedDict\n}tR."),
            TC_INVALID, "does not take");
}

Test(pickle, objects_of_protocol_0) {
#define RECONSTRUCTOR "ccopyreg\n_reconstructor\n("
    expect(P(RECONSTRUCTOR "ccollections\nOrderedDict\ncbuiltins\ndict\n}K\1NstR."), "{1: None}");
    expect(P(RECONSTRUCTOR "cargparse\nNamespace\ncbuiltins\nobject\nNtR."),
           "new argparse.Namespace()");
    expect_mode(P(RECONSTRUCTOR "cm\nf\ncbuiltins\nobject\nNtR."), PICKLE_INERT, false,
                "new m.f()");
    expect_mode(P(RECONSTRUCTOR "cm\nf\ncbuiltins\ndict\n}K\1NstR."), PICKLE_INERT, false,
                "new m.f()&{1: None}");
}

/* What Python takes for one key or member is there once, with the last value. */
Test(pickle, equal_keys_are_one) {
    static const struct {
        const char *items; /* two of them */
        size_t length;
        bool equal;
    } pairs[] = {
        {P("K\1\210"), true},
        {P("K\1G\77\360\0\0\0\0\0\0"), true},
        {P("F0.5\nF0.5\n"), true},
        {P("F1e300\nF1e300\n"), true},
        {P("F1e18\nL1000000000000000000\n"), true},
        {P("Fnan\nFnan\n"), false},
        {P("Va\nU\1a"), true},
        {P("Va\nC\1a"), false},
        {P("K\1\205\210\205"), true},
        {P("K\1\205K\2\205"), false},
        {P("X\3\0\0\0\355\240\200X\6\0\0\0\\ud800"), false},
        {P("X\3\0\0\0\355\240\200V\\ud800\n"), true},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char bytes[64] = "(";
        struct run run;
        memcpy(bytes + 1, pairs[i].items, pairs[i].length);
        memcpy(bytes + 1 + pairs[i].length, "\221.", 2);
        run_begin(&run, bytes, pairs[i].length + 3, false);
        cr_assert(pickle_load(&run.pickle, &run.root), "%zu: %s", i, run.error.message);
        cr_assert(pickle_settle(run.root, &run.arena, &run.error));
        cr_expect_eq(run.root->count, pairs[i].equal ? 1 : 2, "pair %zu", i);
        run_end(&run);
    }
}

Test(pickle, paths_are_as_pathlib_shows_them) {
    static const struct {
        const char *parts;
        const char *path;
    } paths[] = {
        {"", "'.'"},           {"V\n", "'.'"},      {"Va\nVb\n", "'a/b'"}, {"Va//b/./\n", "'a/b'"},
        {"Va\nV/b\n", "'/b'"}, {"V//a\n", "'//a'"}, {"V///a\n", "'/a'"},   {"V/\nVa\n", "'/a'"},
        {"V./..\n", "'..'"},
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char bytes[64];
        int length = snprintf(bytes, sizeof bytes, "cpathlib\nPosixPath\n(%stR.", paths[i].parts);
        expect(bytes, (size_t)length, paths[i].path);
    }
    refused(P("cpathlib\nPosixPath\nX\3\0\0\0\355\240\200\205R."), TC_INVALID, "does not take");
}

/* What Python can't hash is no key, and frozen sets are none here either. */
Test(pickle, keys_and_members_have_a_hash) {
    static const char *const keys[] = {"]",
                                       "}",
                                       "\217",
                                       "(\221",
                                       "]\205",
                                       "K\1}\206\205",
                                       "cargparse\nNamespace\n)R",
                                       "cbuiltins\nbytearray\n)R"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char bytes[64];
        int length = snprintf(bytes, sizeof bytes, "}%sNs.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a dict's key that can be none");
        length = snprintf(bytes, sizeof bytes, "(%s\221.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a set's member that can be none");
        length = snprintf(bytes, sizeof bytes, "\217(%s\220.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a set's member that can be none");
    }
    refused(P("(\221(N\220."), TC_INVALID, "frozenset");
    expect(P("}K\1K\2\206Ns."), "{(1, 2): None}");
}

Test(pickle, truth_values_are_no_numbers) {
    refused(P("I+1\n."), TC_INVALID, "a truth value for some");
    refused(P("I-0\n."), TC_INVALID, "a truth value for some");
    expect(P("L+1\n."), "1");
    refused(P("I12L\n."), TC_INVALID, "a number that is none");
    expect(P("I+2\n."), "2");
    expect(P("I-1\n."), "-1");
}

Test(pickle, only_the_word_is_infinite) {
    expect(P("Finf\n."), "inff");
    expect(P("F-Infinity\n."), "-inff");
    refused(P("F1e999\n."), TC_INVALID, "too large");
    refused(P("F-1e999\n."), TC_INVALID, "too large");
    expect(P("F1e-999\n."), "0f");
}

Test(pickle, a_line_ends_in_its_frame) {
    expect(P("\200\4\225\5\0\0\0\0\0\0\0Vid\n."), "'id'");
    refused(P("\200\4\225\3\0\0\0\0\0\0\0Vid\n."), TC_INVALID, "crosses its frame");
}

Test(pickle, nothing_else_is_called) {
    refused(P("]]R."), TC_UNSAFE, "no known function");
    refused(P("K\1)R."), TC_UNSAFE, "no known function");
    refused(P("ccollections\nOrderedDict\n]R."), TC_INVALID, "no tuple");
    refused(P("ccollections\nOrderedDict\nNR."), TC_INVALID, "no tuple");
    refused(P("ctorch\nfloat32\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("ctorch\nFloatStorage\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("cbuiltins\nint\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("(ccollections\nOrderedDict\no."), TC_UNSAFE, "an object of a class");
    refused(P("(icollections\nOrderedDict\n."), TC_UNSAFE, "an object of a class");
    refused(P("(ios\nsystem\n."), TC_UNSAFE, "os.system");
    refused(P("(o."), TC_INVALID, "no class");
    refused(P("ccollections\nOrderedDict\n)}\222."), TC_UNSAFE, "keyword");
    refused(P("Pid\n."), TC_UNSAFE, "persistent id of protocol 0");
    refused(P("NQ."), TC_INVALID, "persistent id");
    refused(P("\227."), TC_UNSUPPORTED, "buffers");
    refused(P("N\230."), TC_UNSUPPORTED, "buffers");
    refused(P("\230."), TC_INVALID, "nothing on the stack");
    refused(P("R."), TC_INVALID, "nothing on the stack");
    refused(P(")R."), TC_INVALID, "nothing on the stack");
    refused(P("ccollections\nOrderedDict\n()R."), TC_INVALID, "nothing on the stack");
}

Test(pickle, state_goes_to_what_has_some) {
    expect(P("cnumpy\ndtype\nVf4\n\205R(K\3V<\ntb."), "numpy.dtype('f4')|(3, '<')");
    expect(P("cnumpy.core.multiarray\n_reconstruct\n)R(K\1tb."),
           "numpy.core.multiarray._reconstruct()|(1)");
    expect(P("ccollections\nOrderedDict\n)R}Va\nK\1sb."), "{}"); /* attributes of a dict */
    refused(P("ccollections\nOrderedDict\n)RN}\206b."), TC_UNSAFE,
            "the state of a value that has none");
    refused(P("}}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("]}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("K\1}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("}K\1b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("ccollections\nOrderedDict\n}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("ctorch._utils\n_rebuild_parameter\n)R}b."), TC_UNSAFE,
            "the state of a value that has none");
    refused(P("Nb."), TC_INVALID, "nothing on the stack");
}

Test(pickle, inert_objects_hold_what_is_put_into_them) {
    static const struct {
        const char *bytes;
        const char *expected;
    } cases[] = {
        {"cmy\nNet\n.", "my.Net"},
        {"cmy\nNet\n)R.", "new my.Net()"},
        {"cmy\nNet\n)\201.", "new my.Net()"},
        {"cmy\nNet\nK\1\205\201}Va\nK\2sb.", "new my.Net(1)|{'a': 2}"},
        {"cmy\nList\n)\201K\1a.", "new my.List()&[1]"},
        {"cmy\nList\n)\201(K\1K\2e.", "new my.List()&[1, 2]"},
        {"cmy\nDict\n)\201K\1K\2s(K\3K\4u.", "new my.Dict()&{1: 2, 3: 4}"},
        {"cmy\nSet\n)\201(K\1\220.", "new my.Set()&<1>"},
        {"cmy\nNet\n)}\222.", "new my.Net({})"},
        {"(imy\nNet\n.", "new my.Net()"},
        {"(K\1imy\nNet\n.", "new my.Net(1)"},
        {"(cmy\nNet\nK\1o.", "new my.Net(1)"},
        {"ctorch\nfloat32\n)R.", "new torch.float32()"},
        {"ccollections\nOrderedDict\n)R.", "{}"},
        {"ctorch._utils\n_rebuild_nested_tensor\n)R.", "new torch._utils._rebuild_nested_tensor()"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_mode(cases[i].bytes, strlen(cases[i].bytes), PICKLE_INERT, false, cases[i].expected);
    refused_mode(P("cmy\nList\n)\201K\1aK\1K\2s."), PICKLE_INERT, TC_INVALID, "no dict");
    refused_mode(P("cmy\nNet\nK\1a."), PICKLE_INERT, TC_INVALID, "no list");
}

Test(pickle, a_scan_goes_on) {
    static const struct {
        const char *bytes;
        const char *expected;
    } cases[] = {
        {"cos\nsystem\nVls\n\205R.", "new os.system('ls')"},
        {"\202\1.", "copyreg.extension"},
        {"cmy\nname\n)RVx\n\223.", "?.?"}, /* a name that only running it would tell */
        {"Pid\n.", "#0"},
        {"NQ.", "#0"},
        {"\227.", "b''"},
        {"N\230.", "None"},
        {"]}b.", "[]"},
        {"cos\nsystem\n)R)R.", "new new os.system()()"},
        {"h\1.", "'?'"}, /* a memo entry that is not there; what comes behind is told */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_mode(cases[i].bytes, strlen(cases[i].bytes), PICKLE_SCAN, false, cases[i].expected);
    refused_mode(P("N"), PICKLE_SCAN, TC_INVALID, "cut short");
    refused_mode(P("]K\1K\2s."), PICKLE_SCAN, TC_INVALID, "no dict");
    refused_mode(P("K\1K\2\223."), PICKLE_SCAN, TC_INVALID, "no string");
}

/* Python's strings may have surrogates by themselves, and write them as if they
 * were characters. */
Test(pickle, lone_surrogates_are_escaped_and_said) {
    static const struct {
        const char *bytes;
        const char *text;
    } cases[] = {{"X\5\0\0\0a\355\240\200b.", "a\\ud800b"},
                 {"\214\6\355\240\275\355\270\200.", "\\ud83d\\ude00"},
                 {"Va\\udfff\n.", "a\\udfff"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        size_t length = i == 0 ? 11 : strlen(cases[i].bytes);
        run_begin(&run, cases[i].bytes, length, false);
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        cr_assert_eq(run.root->kind, PICKLE_TEXT);
        cr_assert(run.root->surrogates);
        cr_assert(tc_text_equal(pickle_text(run.root), tc_text_of(cases[i].text)), "%s",
                  run.root->text);
        run_end(&run);
    }
    expect(P("V\\\\ud800\n."), "'\\x5c\\x5cud800'"); /* escaped: no surrogate */
    refused(P("X\2\0\0\0\355\240."), TC_INVALID, "not valid UTF-8");
    refused(P("X\3\0\0\0\355\240A."), TC_INVALID, "not valid UTF-8");
}

Test(pickle, classes_of_torchscript) {
    expect_mode(P("c__torch__.a.b\nNet\n)\201}Vx\nK\1sb."), PICKLE_STRICT, true,
                "new __torch__.a.b.Net()|{'x': 1}");
    expect_mode(P("ctorch.jit._pickle\nbuild_intlist\n]K\1a\205R."), PICKLE_STRICT, true, "[1]");
    expect_mode(P("ctorch.jit._pickle\nrestore_type_tag\n}VDict\n\206R."), PICKLE_STRICT, true,
                "{}");
    struct run run;
    run_begin(&run, P("c__torch__\nNet\n)R."), false);
    run.pickle.script = true;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    cr_assert(strstr(run.error.message, "calls a class of TorchScript"), "%s", run.error.message);
    run_end(&run);
    run_begin(&run, P("c__torch__x\nNet\n."), false);
    run.pickle.script = true;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    run_end(&run);
}
