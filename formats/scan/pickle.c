/* Runs pickles on the pickle machine, and reports what they name, call and misuse. */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"

/* How many strings of bytes that a file's pickles hand to loaders are looked into. */
#define MAX_NESTED 1000u

/* Whether Python could import a name: its first part, the package, is an identifier.
 * Bytes that are not a pickle have such a name between two line ends once in some
 * hundred million cases. */
static bool is_importable(struct tc_text name) {
    size_t length = 0;
    bool ascii = true;
    while (length < name.length && name.bytes[length] != '.') {
        unsigned char c = (unsigned char)name.bytes[length];
        unsigned char lower = c | 0x20;
        bool digit = c >= '0' && c <= '9';
        if (!(lower >= 'a' && lower <= 'z') && !(digit && length) && c != '_' && c < 0x80)
            return false;
        ascii = ascii && c < 0x80;
        length++;
    }
    /* Numbers look like letters of other scripts more often, so then the rest must be
     * text too. */
    for (size_t i = length; i < name.length && !ascii; i++)
        if ((unsigned char)name.bytes[i] < ' ')
            return false;
    return length >= 2;
}

static bool is_allowed(const struct pickle_node *global) {
    return global->kind == PICKLE_GLOBAL && global->global != PICKLE_UNKNOWN &&
           global->global != PICKLE_KNOWN_UNSUPPORTED;
}

static enum scan_level level_of(const struct pickle_node *global) {
    if (is_allowed(global))
        return SCAN_ALLOWED;
    bool named = global->kind == PICKLE_GLOBAL;
    return named && !pickle_is_dangerous(pickle_text(global)) ? SCAN_UNKNOWN : SCAN_DANGEROUS;
}

static bool is_extension(const struct pickle_node *global) {
    return global->kind == PICKLE_GLOBAL &&
           tc_text_equal(pickle_text(global), TC_TEXT("copyreg.extension"));
}

/* Whether it is a class without which the table of a distributed checkpoint leads to no item: torch
 * looks an item up by an index of this class, but takes any object for the place that it finds. */
static bool is_place(const struct pickle_node *global) {
    if (global->kind != PICKLE_GLOBAL)
        return false;
    struct tc_text name = pickle_text(global);
    return tc_text_equal(name, TC_TEXT("torch.distributed.checkpoint.metadata.MetadataIndex")) ||
           tc_text_equal(name, TC_TEXT("torch.distributed.checkpoint.filesystem._StorageInfo"));
}

bool scan_on_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct scan *scan = context;
    bool extension = is_extension(global);
    scan->extended |= extension;
    scan->reached |= !extension && is_importable(pickle_text(global));
    scan->places |= is_place(global);
    return scan_add_finding(scan,
                            (struct scan_finding){.kind = SCAN_IMPORT,
                                                  .level = level_of(global),
                                                  .name = pickle_text(global),
                                                  .offset = global->at},
                            error);
}

/* Adds the bytes that a pickle hands to a loader, which may be a pickle or any file. */
static bool look_inside(struct scan *scan, struct pickle_node *bytes, enum scan_role role,
                        struct tc_error *error) {
    if (!pickle_is(bytes, PICKLE_BYTES) || bytes->length < 2 || bytes->seen)
        return true;
    bytes->seen = true; /* it may be handed over many times */
    if (scan->budget.nested++ >= MAX_NESTED) {
        scan_note_limit(scan, "pickles inside pickles", NULL);
        return true;
    }
    if (bytes->text)
        return scan_add_bytes(scan, bytes->text, bytes->length, role, error);
    struct scan_view view = {.scan = scan, .region = scan->region};
    return scan_add_region(&view, bytes->offset, bytes->length, scan->region->name, role, error);
}

bool scan_on_call(void *context, const struct pickle_node *callable,
                  const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct scan *scan = context;
    bool named = callable->kind == PICKLE_GLOBAL;
    scan->extension_called |= is_extension(callable);
    struct scan_finding finding = {.kind = SCAN_CALL,
                                   .level = level_of(callable),
                                   .name = named ? pickle_text(callable)
                                                 : TC_TEXT("? (what a call gave)"),
                                   .offset = at};
    if (!scan_add_finding(scan, finding, error))
        return false;
    /* What torch's own loader of bytes loads must be as clean as a file. */
    bool loader = tc_text_equal(finding.name, TC_TEXT("torch.storage._load_from_bytes"));
    enum scan_role role = loader ? SCAN_FILE : SCAN_DATA;
    if (loader && !pickle_is(pickle_item(arguments, 0), PICKLE_BYTES))
        return scan_on_misuse(scan, "it is called with something that is no bytes", finding.name,
                              at, error);
    for (size_t i = 0; (loader || finding.level != SCAN_ALLOWED) && pickle_item(arguments, i); i++)
        if (!look_inside(scan, pickle_item(arguments, i), role, error))
            return false;
    return true;
}

bool scan_on_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                    struct tc_error *error) {
    return scan_add_finding(context,
                            (struct scan_finding){.kind = SCAN_OTHERWISE,
                                                  .level = SCAN_DANGEROUS,
                                                  .code = "pickle-misuse",
                                                  .name = name,
                                                  .what = what,
                                                  .offset = at},
                            error);
}

/* The state of the findings before a pickle, to go back to if it is none. */
struct before {
    size_t count;
    size_t left_out;
    bool seen[SCAN_DANGEROUS + 1];
};

static struct before remember(const struct scan *scan) {
    struct before before = {.count = scan->count, .left_out = scan->left_out};
    memcpy(before.seen, scan->seen, sizeof before.seen);
    return before;
}

static void forget(struct scan *scan, const struct before *before) {
    scan->count = before->count;
    scan->left_out = before->left_out;
    memcpy(scan->seen, before->seen, sizeof scan->seen);
}

/* Pickles one after the other. */
struct row {
    const struct scan_view *view;
    struct pickle pickle;
    struct tc_error *failure; /* why the row ended */
    uint64_t behind;          /* where its last pickle ends */
    size_t count;
    bool reached; /* one of them named something */
};

/* An opcode EXT1 has two bytes, which any data may have by accident. It counts only
 * where the pickle has two more signs of being one. */
static bool is_extended(const struct row *row, uint64_t start, bool stopped) {
    const struct scan *scan = row->view->scan;
    unsigned char first[2] = {0};
    struct tc_error unread = {0};
    if (!scan->extended)
        return false;
    if (row->pickle.end - start >= sizeof first &&
        !tc_input_read(row->view->input, start, first, sizeof first, &unread))
        return true;
    bool protocol = first[0] == OP_PROTO && first[1] <= PICKLE_PROTOCOL;
    return protocol + scan->extension_called + stopped >= 2;
}

/* The last one did not reach STOP: it is damaged, or not a pickle at all. */
static bool end_row(struct row *row, const struct before *before, struct tc_error *error) {
    struct scan *scan = row->view->scan;
    bool limit = row->failure->class == TC_UNSAFE;
    row->reached |= scan->reached;
    if (scan->reached || limit || row->failure->class == TC_IO)
        return scan_note_broken(scan, row->failure, error);
    forget(scan, before);
    return true;
}

/* Scans the pickles at the other place where some loaders go on (pickle.also_at). */
static bool look_elsewhere(struct row *row, struct tc_error *error) {
    struct scan *scan = row->view->scan;
    uint64_t at = row->pickle.also_at;
    if (at >= row->pickle.end)
        return true;
    if (scan->budget.nested++ >= MAX_NESTED) {
        scan_note_limit(scan, "pickles that end in different places", NULL);
        return true;
    }
    return scan_add_region(row->view, at, row->pickle.end - at, row->view->region->name, SCAN_DATA,
                           error);
}

static bool run_row(struct row *row, struct tc_error *error) {
    struct scan *scan = row->view->scan;
    struct pickle *pickle = &row->pickle;
    while (pickle->at < pickle->end) {
        struct before before = remember(scan);
        struct pickle_node *node;
        uint64_t start = pickle->at;
        scan->reached = scan->extended = scan->extension_called = false;
        bool stopped = pickle_load(pickle, &node);
        scan->reached |= is_extended(row, start, stopped);
        if (!stopped)
            return end_row(row, &before, error);
        row->behind = pickle->at;
        row->reached |= scan->reached;
        row->count++;
        if (pickle->also_at && !look_elsewhere(row, error))
            return false;
    }
    return true;
}

/* Numbers, and the first bytes of any format, may look like a short pickle by accident.
 * A pickle that names nothing can do nothing, so it only counts where the region has
 * nothing but pickles. Errors that the machine tolerated make it broken: loaders differ
 * in what they read. */
static bool judge_row(struct row *row, const struct before *before, struct tc_error *error) {
    struct scan *scan = row->view->scan;
    bool whole = row->behind == row->pickle.end && row->view->region->role != SCAN_DATA;
    struct tc_error damage = {0};
    if (!row->reached && !whole) {
        forget(scan, before);
        return true;
    }
    scan->pickles += row->count;
    if (!row->pickle.tolerated)
        return true;
    tc_fail(&damage, TC_INVALID, "pickle", "%s", row->pickle.tolerated);
    return scan_note_broken(scan, &damage, error);
}

bool scan_pickles(const struct scan_view *view, uint64_t at, uint64_t *behind,
                  struct tc_error *error) {
    struct scan *scan = view->scan;
    struct row row = {.view = view, .failure = calloc(1, sizeof *row.failure), .behind = at};
    struct before before = remember(scan);
    struct tc_arena arena;
    if (!row.failure)
        return tc_fail_memory(error);
    tc_arena_init(&arena, scan->options->limits.memory);
    pickle_init(&row.pickle, &arena, &scan->options->limits, row.failure);
    row.pickle.mode = PICKLE_SCAN;
    row.pickle.script = view->region->script;
    row.pickle.nested = true; /* scan_on_call handles such bytes */
    row.pickle.whole = view->region->role != SCAN_DATA;
    row.pickle.keys = view->region->keys;
    row.pickle.input = view->input;
    row.pickle.at = at;
    row.pickle.end = view->input->size;
    row.pickle.context = scan;
    row.pickle.on_global = scan_on_global;
    row.pickle.on_call = scan_on_call;
    row.pickle.on_misuse = scan_on_misuse;
    row.pickle.budget = &scan->budget;
    bool ok = run_row(&row, error) && judge_row(&row, &before, error);
    *behind = row.behind;
    pickle_release(&row.pickle);
    tc_arena_release(&arena);
    free(row.failure);
    return ok;
}
