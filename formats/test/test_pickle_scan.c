/* What the pickle machine tells those who watch it, and how it goes on in a scan. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/test/pickle_run.h"

/* Callbacks */

struct seen {
    struct tc_buffer text;
    bool refuse;
};

static bool see_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct seen *seen = context;
    show_node(&seen->text, global, 0);
    tc_buffer_addf(&seen->text, "@%llu\n", (unsigned long long)global->at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no global is wanted");
}

static bool see_call(void *context, const struct pickle_node *callable,
                     const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct seen *seen = context;
    show_node(&seen->text, callable, 0);
    show_node(&seen->text, arguments, 0);
    tc_buffer_addf(&seen->text, "@%llu\n", (unsigned long long)at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no call is wanted");
}

static bool see_id(void *context, const struct pickle_node *id, struct pickle_node **node,
                   struct tc_error *error) {
    struct seen *seen = context;
    show_node(&seen->text, id, 0);
    (*node)->index = 7;
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no id is wanted");
}

Test(pickle, callbacks_see_names_and_calls) {
    static const char bytes[] = "cos\nsystem\nVls\n\205R0\214\2my\214\3Net\223)\201.";
    struct seen seen = {0};
    struct run run;
    run_begin(&run, bytes, sizeof bytes - 1, true);
    run.pickle.mode = PICKLE_INERT;
    run.pickle.context = &seen;
    run.pickle.on_global = see_global;
    run.pickle.on_call = see_call;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "os.system@0\nos.system('ls')@16\nmy.Net@27\nmy.Net()@29\n");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

/* What is refused is seen first: a scan and a refusal tell the same names. */
Test(pickle, callbacks_come_before_refusals) {
    struct seen seen = {0};
    struct run run;
    run_begin(&run, P("cos\nsystem\n."), false);
    run.pickle.context = &seen;
    run.pickle.on_global = see_global;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "os.system@0\n");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

Test(pickle, a_callback_can_refuse) {
    static const struct {
        const char *bytes;
        const char *message;
    } cases[] = {{"ctorch\nfloat32\n.", "no global is wanted"},
                 {"]]R.", "no call is wanted"},
                 {"NQ.", "no id is wanted"}};
    for (size_t i = 0; i < 3; i++) {
        struct seen seen = {.refuse = true};
        struct run run;
        run_begin(&run, cases[i].bytes, strlen(cases[i].bytes), true);
        run.pickle.context = &seen;
        run.pickle.on_global = see_global;
        run.pickle.on_call = see_call;
        run.pickle.persistent = see_id;
        cr_assert_not(pickle_load(&run.pickle, &run.root));
        cr_assert_str_eq(run.error.message, cases[i].message);
        tc_buffer_release(&seen.text);
        run_end(&run);
    }
}

Test(pickle, a_persistent_id_becomes_what_the_callback_makes) {
    struct seen seen = {0};
    struct run run;
    run_begin(&run, P("(Va\nK\1tQq\0h\0\206."), false);
    run.pickle.context = &seen;
    run.pickle.persistent = see_id;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    expect_shown(run.root, "(#7, #7)");
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "('a', 1)");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

/* Every prefix of a pickle that has all kinds of opcodes is cut short, and no
 * byte of it is read that is not there. */
Test(pickle, cut_anywhere_it_is_invalid) {
    static const char bytes[] =
        "\200\4\225\167\0\0\0\0\0\0\0(K\1M\1\2J\1\0\0\0\212\1\5\213\1\0\0\0\5G?\360\0\0\0\0\0\0"
        "X\1\0\0\0a\214\1a\215\1\0\0\0\0\0\0\0aC\1aB\1\0\0\0aU\1aT\1\0\0\0aI1\nL1\nF1\nS'a'\nVa\n"
        "ctorch\nSize\nq\1r\2\0\0\0p3\nh\1j\1\0\0\0g1\n\224t.";
    char copy[sizeof bytes];
    memcpy(copy, bytes, sizeof bytes);
    copy[3] = (char)(sizeof bytes - 1 - 11);
    expect(copy, sizeof bytes - 1,
           "(1, 513, 1, 5, 5, 1f, 'a', 'a', 'a', b'a', b'a', s'a', s'a', 1, 1, 1f, s'a', 'a', "
           "torch.Size, torch.Size, torch.Size, torch.Size)");
    for (size_t length = 0; length < sizeof bytes - 1; length++) {
        char *cut = malloc(length + 1); /* its end is watched by ASan */
        char *exact = realloc(cut, length ? length : 1);
        memcpy(exact, copy, length);
        if (length >= 11)
            exact[3] = (char)(length - 11);
        refused(exact, length, TC_INVALID, length < 11 ? "" : "cut short");
        free(exact);
    }
}

/* A scan goes on where one of Python's machines does. What it finds is told to
 * these. */

static bool see_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                       struct tc_error *error) {
    struct seen *seen = context;
    tc_buffer_addf(&seen->text, "%s: %.*s@%llu\n", what, (int)name.length, name.bytes,
                   (unsigned long long)at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no misuse is wanted");
}

static bool see_name(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct seen *seen = context;
    (void)error;
    tc_buffer_addf(&seen->text, "%.*s ", (int)global->length, global->text);
    return true;
}

static void scan_begin(struct run *run, struct seen *seen, const void *bytes, size_t length,
                       bool file) {
    *seen = (struct seen){0};
    run_begin(run, bytes, length, file);
    run->pickle.mode = PICKLE_SCAN;
    run->pickle.context = seen;
}

static void scan_names(const void *bytes, size_t length, const char *expected) {
    for (int file = 0; file < 2; file++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, bytes, length, file);
        run.pickle.on_global = see_name;
        pickle_load(&run.pickle, &run.root);
        tc_buffer_add(&seen.text, "", 1);
        cr_assert_str_eq(seen.text.bytes, expected);
        cr_assert_eq(run.pickle.named, expected[0] != 0);
        tc_buffer_release(&seen.text);
        run_end(&run);
    }
}

Test(pickle, a_scan_reads_numbers_as_python_does) {
    static const char *const taken[] = {
        "I0x10\n",  "I 1\n",        "I1_0\n",     "I+1\n",     "I010\n",  "I0b1\n",
        "I1 \n",    "L0x10L\n",     "L1_0L\n",    "L 1L\n",    "F1_0\n",  "F 1\n",
        "FNaN\n",   "F-Infinity\n", "F1e999\n",   "Np+1\n",    "Np 1\n",  "Np1_0\n",
        "Np0007\n", "Np-0\n",       "S'\\777'\n", "V\\\\u1\n", "U\1\377", "\213\1\10\0\0",
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct tc_buffer bytes = {0};
        bool longer = taken[i][0] == '\213';
        tc_buffer_add(&bytes, taken[i], longer ? 5 : strlen(taken[i]));
        for (int n = 0; longer && n < 0x801; n++)
            tc_buffer_add(&bytes, "x", 1);
        tc_buffer_add_string(&bytes, "0cm\nn\n.");
        scan_names(bytes.bytes, bytes.length, "m.n ");
        tc_buffer_release(&bytes);
    }
    static const char *const stop[] = {"I1__0\n", "I_1\n",   "I08\n",   "I0x\n",        "I\n",
                                       "I1x\n",   "L010L\n", "F0x1\n",  "F\n",          "Np-1\n",
                                       "Np0x1\n", "S'a\n",   "V\\u1\n", "X\1\0\0\0\377"};
    for (size_t i = 0; i < sizeof stop / sizeof *stop; i++) {
        struct tc_buffer bytes = {0};
        tc_buffer_add(&bytes, stop[i], stop[i][0] == 'X' ? 6 : strlen(stop[i]));
        tc_buffer_add_string(&bytes, "0cm\nn\n.");
        scan_names(bytes.bytes, bytes.length, "");
        tc_buffer_release(&bytes);
    }
    scan_names(P("I\0x\n0cm\nn\n."), "m.n ");
    scan_names(P("I1\0x\n0cm\nn\n."), "m.n ");
}

/* From memory Python's machine passes over a frame's end, from a file it loses
 * the rest of the frame: both readings count. */
Test(pickle, a_scan_reads_frames_in_both_ways) {
    scan_names(P("\225\3\0\0\0\0\0\0\0X\4\0\0\0\0\0cm\nn\n."), "m.n ");
    scan_names(P("\225\3\0\0\0\0\0\0\0cosa\nb\n."), "osa.b a.b ");
    scan_names(P("\225\2\0\0\0\0\0\0\0Ncm\nn\n."), "m.n ");
    scan_names(P("\225\377\0\0\0\0\0\0\0cm\nn\n."), "m.n ");
    scan_names(P("\225\13\0\0\0\0\0\0\0\225\2\0\0\0\0\0\0\0NNcm\nn\n."), "m.n ");
    struct run run;
    struct seen seen;
    scan_begin(&run, &seen, P("\225\4\0\0\0\0\0\0\0N.NNN."), true);
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.pickle.at, 11);
    cr_assert_eq(run.pickle.also_at, 13); /* a file's reader is behind the frame */
    cr_assert(run.pickle.tolerated);
    run_end(&run);
}

Test(pickle, a_scan_takes_what_a_file_ends_with_for_a_line) {
    scan_names(P("cos\nsystemX"), "os.system ");
    scan_names(P("cos\n"), "");
    scan_names(P("\200\7cm\nn\n."), "m.n "); /* an odd protocol */
    scan_names(P("N\200\2cm\nn\n."), "m.n ");
}

/* pickle.py takes the end of the file for a name, too, and imports the module. */
Test(pickle, a_scan_of_a_file_takes_a_missing_line_for_an_empty_one) {
    static const char *const ends[] = {"Ncos\n", "Ncosx", "(ios\n"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct seen seen;
            struct run run;
            scan_begin(&run, &seen, ends[i], strlen(ends[i]), false);
            run.pickle.on_global = see_name;
            run.pickle.whole = whole;
            cr_assert_not(pickle_load(&run.pickle, &run.root));
            tc_buffer_add(&seen.text, "", 1);
            cr_expect_str_eq(seen.text.bytes, whole ? "os. " : "", "%s", ends[i]);
            tc_buffer_release(&seen.text);
            run_end(&run);
        }
}

/* Python's lists take truth values and slices as indices. */
Test(pickle, a_scan_sets_items_of_lists) {
    scan_names(P("]Na\211Nscm\nn\n."), "m.n ");
    scan_names(P("]cm\nf\n)RNscm\nn\n."), "m.f m.n ");
    scan_names(P("]Na\210Nscm\nn\n."), "");
    /* 2,000 bytes that are zero are 0. */
    char longer[2100] = "]Na\213\320\7";
    static const char rest[] = "Nscm\nn\n.";
    memcpy(longer + 8 + 2000, rest, sizeof rest - 1);
    scan_names(longer, 8 + 2000 + sizeof rest - 1, "m.n ");
}

Test(pickle, an_unpickler_that_goes_on_keeps_its_memo) {
    struct seen seen;
    struct run run;
    scan_begin(&run, &seen, P("Vm\nq\0.h\0Vn\n\223."), false);
    run.pickle.on_global = see_name;
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert(pickle_load(&run.pickle, &run.root));
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "m.n ");
    cr_assert(run.pickle.tolerated);
    tc_buffer_release(&seen.text);
    run_end(&run);
}

#define STORAGE "(Vstorage\nctorch\nFloatStorage\nVk\nVcpu\nK\1tQ"
#define SIZES "K\0K\1\205K\1\205"
#define HOOKS "ccollections\nOrderedDict\n)R"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211" HOOKS "tR"
#define DTYPE(descr, state) "cnumpy\ndtype\n(V" descr "\n\211\210tR(" state "tb"
#define F4 DTYPE("f4", "K\3V<\nNNNJ\377\377\377\377J\377\377\377\377K\0")
#define OBJECTS DTYPE("O8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\77")
#define RECONSTRUCT "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\205C\1btR"

/* What honest files do with the names of the list. */
Test(pickle, honest_use_is_no_misuse) {
    static const struct {
        const char *bytes;
        size_t length;
    } honest[] = {
        {P(TENSOR ".")},
        {P("ctorch._utils\n_rebuild_parameter\n(" TENSOR "\210" HOOKS "tR.")},
        {P("ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\210" HOOKS
           "}Vmine\nK\1stR.")},
        {P("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
           "ctorch.nn.parameter\nParameter\n(" STORAGE SIZES "\211" HOOKS "t}tR.")},
        {P(RECONSTRUCT "(K\1K\1\205" F4 "\211C\4abcdtb.")},
        {P(RECONSTRUCT "(K\1K\1\205" OBJECTS "\211]Natb.")},
        {P("cnumpy.core.multiarray\nscalar\n" F4 "C\4abcd\206R.")},
        {P(DTYPE("V4", "K\3V|\nN(Va\nt}Va\n(" F4 "K\0tsK\4K\1K\20") ".")},
        {P(DTYPE("U3", "K\3V<\nNNNK\14K\4K\10") ".")},
        {P("ccollections\ndefaultdict\ncbuiltins\nlist\n\205R.")},
        {P(HOOKS "}V_metadata\n}sb.")},
        {P("cargparse\nNamespace\n)\201}Vlr\nK\1sb.")},
        {P("ccopy_reg\n_reconstructor\n(cargparse\nNamespace\nc__builtin__\nobject\nNtR}Va\nNsb.")},
        {P("ctypes\nSimpleNamespace\n)R}Va\nNsb.")},
        {P("clightning.fabric.utilities.data\nAttributeDict\n)\201(Vlr\nK\1u.")},
        {P("ccollections\ndeque\n]K\2\206R(K\1K\2e.")},
        {P("cpathlib\nPosixPath\n(V/\nVa\ntR.")},
        {P("ctorch.torch_version\nTorchVersion\nV2.1\n\205\201.")},
    };
    for (size_t i = 0; i < sizeof honest / sizeof *honest; i++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, honest[i].bytes, honest[i].length, false);
        run.pickle.on_misuse = see_misuse;
        cr_assert(pickle_load(&run.pickle, &run.root), "%zu: %s", i, run.error.message);
        cr_assert_eq(seen.text.length, 0, "%zu: %.*s", i, (int)seen.text.length, seen.text.bytes);
        cr_assert_null(run.pickle.tolerated);
        run_end(&run);
    }
}

/* What no honest file does with them. */
static const struct {
    const char *bytes;
    size_t length;
    const char *words;
} wrong[] = {
    {P("ccollections\nOrderedDict\n}Va\nK\1sb."), "state of a value that has none"},
    {P("ctorch._utils\n_rebuild_tensor_v2\nN}\206b."), "state of a value that has none"},
    {P("}}b."), "state of a value that has none"},
    {P(TENSOR "}b."), "state of a value that has none"},
    {P(HOOKS "}V__setstate__\nNsb."), "names that Python calls"},
    {P(HOOKS "}V__reduce_ex__\nNsb."), "names that Python calls"},
    {P(HOOKS "}Vextend\nNsb."), "names that Python calls"},
    {P(HOOKS "N}\206b."), "names that Python calls"},
    {P("cargparse\nNamespace\n)\201}V__del__\nNsb."), "names that Python calls"},
    {P("clightning.fabric.utilities.data\nAttributeDict\n)\201V__setstate__\nNs."),
     "a name that Python calls"},
    {P("ctorch._utils\n_rebuild_tensor_v2\n)R."), "arguments that it does not take"},
    {P("ctorch._utils\n_rebuild_tensor_v2\n]R."), "arguments that are no tuple"},
    {P("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211}K\1NstR."),
     "arguments that it does not take"},
    {P("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211}q\0tRh\0K\1Ns."),
     "hooks of a tensor are added later"},
    {P("ctorch._tensor\n_rebuild_from_type_v2\n(c_codecs\nencode\nctorch\nTensor\n)}tR."),
     "arguments that it does not take"},
    {P("c_codecs\nencode\nVa\nVrot13\n\206R."), "arguments that it does not take"},
    {P("cbuiltins\nbytearray\nK\1\205R."), "arguments that it does not take"},
    {P("ccollections\ndefaultdict\ncnumpy\ndtype\n\205R."), "arguments that it does not take"},
    {P("ctorch\nFloatStorage\nK\1\205R."), "arguments that it does not take"},
    {P("ctorch\nfloat32\n)\201."), "what is no class"},
    {P("cnumpy\nndarray\n)\201."), "what is no class"},
    {P("ccollections\nOrderedDict\n)}K\1Ns\222."), "keyword arguments"},
    {P("ccollections\nOrderedDict\nNa."), "items that it does not take"},
    {P(TENSOR "K\1K\2s."), "items that it does not take"},
    {P(TENSOR "(K\1\220."), "items that it does not take"},
    {P("Pid\n."), "not that of a storage"},
    {P("NQ."), "not that of a storage"},
    {P("(Vmodule\nctorch\nTensor\nVf\nVs\ntQ."), "not that of a storage"},
    {P("(Vstorage\ncmy\nStorage\nVk\nVcpu\nK\1tQ."), "not that of a storage"},
    {P("cnumpy\ndtype\n(Vf4,O\n\211\210tR."), "a dtype of no kind"},
    {P(DTYPE("O8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\0") "."), "a state that numpy"},
    {P(DTYPE("f8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\77") "."), "a state that numpy"},
    {P(DTYPE("V8", "K\3V|\nN(Va\nt}Va\n(" OBJECTS "K\0tsK\10K\1K\20") "."), "a state that numpy"},
    {P(DTYPE("V4", "K\3V|\nN(Va\nt}Va\n(" F4 "K\2tsK\4K\1K\20") "."), "a state that numpy"},
    {P(DTYPE("V4", "K\3V|\n" F4 "K\2\206NNK\4K\1K\0") "."), "a state that numpy"},
    {P(F4 "(K\3V<\nNNNJ\377\377\377\377J\377\377\377\377K\0tb."), "a state that numpy"},
    {P(RECONSTRUCT "(K\1K\2\205" F4 "\211C\4abcdtb."), "an array has a state"},
    {P(RECONSTRUCT "(K\1K\1\205" OBJECTS "\211C\10abcdefghtb."), "an array has a state"},
    {P("cnumpy.core.multiarray\nscalar\n" OBJECTS "C\1a\206R."), "arguments that it does not take"},
    {P("cnumpy.core.multiarray\n_reconstruct\n(ctorch\nTensor\nK\0\205C\1btR."),
     "arguments that it does not take"},
};

Test(pickle, other_use_is_misuse) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, wrong[i].bytes, wrong[i].length, false);
        run.pickle.on_misuse = see_misuse;
        pickle_load(&run.pickle, &run.root);
        tc_buffer_add(&seen.text, "", 1);
        cr_assert(strstr(seen.text.bytes, wrong[i].words), "%zu: \"%s\" is not \"%s\"; %s", i,
                  seen.text.bytes, wrong[i].words, run.error.message);
        tc_buffer_release(&seen.text);
        run_end(&run);
        /* Without anybody to tell it to, it is no clean pickle either. */
        scan_begin(&run, &seen, wrong[i].bytes, wrong[i].length, false);
        bool ok = pickle_load(&run.pickle, &run.root);
        cr_assert(!ok || run.pickle.tolerated, "%zu", i);
        run_end(&run);
    }
}

Test(pickle, plain_containers_are_data) {
    expect(P("ccollections\ndeque\n(K\1K\2lK\5\206R."), "[1, 2]");
    expect(P("cpathlib\nPosixPath\n(V/\nVa\nVb\ntR."), "'/a/b'");
    expect(P("ctorch.torch_version\nTorchVersion\nV2.1\n\205\201."), "'2.1'");
    expect(P("clightning.fabric.utilities.data\nAttributeDict\n)\201Vlr\nK\1s."), "{'lr': 1}");
    expect(P("cargparse\nNamespace\n)\201}Vlr\nK\1sb."), "new argparse.Namespace()|{'lr': 1}");
    expect(P("ccopyreg\n_reconstructor\n(cargparse\nNamespace\ncbuiltins\nobject\nNtR."),
           "new argparse.Namespace()");
    refused(P("ccopyreg\n_reconstructor\n(ctorch\nfloat32\ncbuiltins\nobject\nNtR."), TC_INVALID,
            "arguments that it does not take");
    refused(P("cjoblib.numpy_pickle\nNumpyArrayWrapper\n."), TC_UNSAFE, "not on the list");
    refused(P("ctorch.storage\n_load_from_bytes\n."), TC_UNSAFE, "dangerous");
}

#define WRAPPER                                                                                    \
    "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\201}(Vsubclass\ncnumpy\nndarray\nVshape\nK\2\205"  \
    "Vorder\nVC\nVdtype\n" F4 "Vnumpy_array_alignment_bytes\nK\20ub"

/* joblib's arrays stand behind their wrapper, in the stream. Any other loader
 * takes them for opcodes. */
Test(pickle, arrays_of_joblib) {
    struct run run;
    run_begin(&run, P("]" WRAPPER "\3\377\377\377abcdefgha."), true);
    run.pickle.joblib = true;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    const struct pickle_node *object = pickle_item(run.root, 0);
    cr_assert_eq(object->kind, PICKLE_OBJECT);
    cr_assert_eq(object->callable->global, PICKLE_JOBLIB_ARRAY);
    cr_assert_eq(object->content->length, 8);
    cr_assert_eq(object->content->offset, run.pickle.end - 10);
    run_end(&run);
    scan_names(P(WRAPPER "\0abcdefgh."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype ");
    scan_names(P(WRAPPER "\60cm\nn\nNN."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype "
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype m.n ");
    scan_names(P(WRAPPER
                 "Ncm\nn\n..0123456789012345678901234567890123456789012345678901234567890123"
                 "456789012345."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype "
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype m.n ");
}

Test(pickle, names_that_can_be_imported) {
    static const char *const names[] = {"os.system", "a.b", "_x.Y_1", "torch.nn.Linear",
                                        "m\303\244.n"};
    static const char *const none[] = {"os",    "",       ".a",        "a.",          "a..b",
                                       "1a.b",  "a.1",    "a b.c",     "os\r.system", "a.b\1",
                                       "a-b.c", "\377.a", "\302\200.a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(pickle_is_importable(tc_text_of(names[i])), "%s", names[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        cr_assert_not(pickle_is_importable(tc_text_of(none[i])), "%s", none[i]);
}

Test(pickle, names_that_are_dangerous) {
    static const char *const names[] = {"os.system",
                                        "posix.system",
                                        "builtins.eval",
                                        "__builtin__.reduce",
                                        "builtins.getattr",
                                        "torch.os.system",
                                        "numpy.f2py.x",
                                        "subprocess.Popen",
                                        "copy_reg.add_extension",
                                        "StringIO.open",
                                        "functools.partial",
                                        "a.__class__.b",
                                        "?.?",
                                        "collections.OrderedDict.__init__",
                                        "torch.load",
                                        "nt.system"};
    static const char *const others[] = {"builtins.slice",
                                         "builtins.bytearray",
                                         "builtins.range",
                                         "my.Net",
                                         "osmnx.graph",
                                         "collections.OrderedDict",
                                         "__torch__.___torch_mangle_0.Net",
                                         "torch.nn.Linear",
                                         "uuid.UUID",
                                         "datetime.datetime",
                                         "builtins.print",
                                         "system.os"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(pickle_is_dangerous(tc_text_of(names[i])), "%s", names[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert_not(pickle_is_dangerous(tc_text_of(others[i])), "%s", others[i]);
}

/* A budget that several machines share is one. */
Test(pickle, machines_share_a_budget) {
    struct pickle_budget budget = {0};
    limits.pickle = 8;
    for (int i = 0; i < 3; i++) {
        struct run run;
        run_begin(&run, P("K\1."), false);
        run.pickle.budget = &budget;
        cr_assert_eq(pickle_load(&run.pickle, &run.root), i < 2);
        cr_assert_eq(run.error.class, i < 2 ? TC_OK : TC_UNSAFE);
        run_end(&run);
    }
    cr_assert_eq(budget.steps, 6);
    budget = (struct pickle_budget){.items = UINT64_C(64) << 20};
    struct run run;
    run_begin(&run, P("]Na."), false);
    run.pickle.budget = &budget;
    limits.pickle = 100;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_str_eq(run.error.code, "pickle-limit");
    run_end(&run);
}

/* What a machine takes from the system it gives back to the arena's count. */
Test(pickle, memory_of_the_machine_is_charged_and_given_back) {
    struct run run;
    struct tc_buffer bytes = {0};
    for (int i = 0; i < 5000; i++)
        tc_buffer_add(&bytes, "(N\224", 3);
    run_begin(&run, bytes.bytes, bytes.length, false);
    run.pickle.mode = PICKLE_SCAN;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_geq(run.pickle.charged, 5000 * (8 + 8 + 8));
    uint64_t before = run.arena.used;
    uint64_t charged = run.pickle.charged;
    pickle_release(&run.pickle);
    cr_assert_eq(run.arena.used, before - charged);
    run_end(&run);
    tc_buffer_release(&bytes);
}
