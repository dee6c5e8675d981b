/* Pickles in bytes: what they name, and where bytes hold some. */
#include "formats/scan_bytes.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FINDINGS 100000u
/* Pickles in bytes of pickles. */
#define MAX_DEPTH 4u

void scan_init(struct scan *scan, const struct tc_format_options *options) {
    *scan = (struct scan){.options = options, .broken = calloc(1, sizeof *scan->broken)};
    tc_arena_init(&scan->arena, options->limits.memory);
}

void scan_release(struct scan *scan) {
    tc_arena_release(&scan->arena);
    free(scan->findings);
    free(scan->broken);
    *scan = (struct scan){0};
}

static bool add_finding(struct scan *scan, struct scan_finding finding, struct tc_error *error) {
    scan->unsafe |= !finding.allowed;
    /* The unsafe ones matter most. */
    if (scan->count >= MAX_FINDINGS && finding.allowed) {
        scan->left_out++;
        return true;
    }
    if (scan->count >= 2 * MAX_FINDINGS) {
        scan->left_out++;
        return true;
    }
    if (scan->count == scan->capacity) {
        size_t capacity = scan->capacity ? scan->capacity * 2 : 64;
        struct scan_finding *findings = reallocarray(scan->findings, capacity, sizeof *findings);
        if (!findings)
            return tc_fail_memory(error);
        scan->findings = findings;
        scan->capacity = capacity;
    }
    /* The machine's own arena may go before the finding is told. */
    finding.name.bytes =
        tc_arena_copy(&scan->arena, finding.name.bytes, finding.name.length, error);
    if (!finding.name.bytes)
        return false;
    finding.member = scan->member;
    finding.relative = scan->relative;
    finding.dangerous = !finding.allowed && pickle_is_dangerous(finding.name);
    scan->findings[scan->count++] = finding;
    return true;
}

bool scan_on_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    bool allowed = global->global != PICKLE_UNKNOWN && global->global != PICKLE_KNOWN_UNSUPPORTED;
    return add_finding(context,
                       (struct scan_finding){
                           .name = pickle_text(global), .offset = global->at, .allowed = allowed},
                       error);
}

bool scan_looks_like_pickle(const unsigned char *bytes, size_t length) {
    return length >= 2 && bytes[0] == 0x80 && bytes[1] <= 5;
}

static bool scan_memory(struct scan *scan, const unsigned char *bytes, uint64_t length,
                        struct tc_error *error);

bool scan_on_call(void *context, const struct pickle_node *callable,
                  const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct scan *scan = context;
    bool global = callable->kind == PICKLE_GLOBAL;
    bool allowed = global && callable->global != PICKLE_UNKNOWN &&
                   callable->global != PICKLE_KNOWN_UNSUPPORTED;
    struct scan_finding finding = {.name = global ? pickle_text(callable)
                                                  : TC_TEXT("? (what a call gave)"),
                                   .offset = at,
                                   .call = true,
                                   .allowed = allowed};
    if (!add_finding(scan, finding, error))
        return false;
    /* What a loader would be given: a pickle in a pickle. */
    for (size_t i = 0; !allowed && scan->depth < MAX_DEPTH && pickle_item(arguments, i); i++) {
        const struct pickle_node *bytes = pickle_item(arguments, i);
        if (bytes->kind == PICKLE_BYTES && bytes->text &&
            scan_looks_like_pickle((const unsigned char *)bytes->text, bytes->length) &&
            !scan_memory(scan, (const unsigned char *)bytes->text, bytes->length, error))
            return false;
    }
    return true;
}

/* The first thing that is wrong is kept; looking goes on where it can. */
void scan_note_broken(struct scan *scan, const struct tc_error *error) {
    if (scan->broken->class == TC_OK)
        *scan->broken = *error;
}

static void machine_init(struct scan *scan, struct pickle *pickle, struct tc_error *error) {
    pickle_init(pickle, &scan->arena, &scan->options->limits, error);
    pickle->mode = PICKLE_SCAN;
    pickle->script = scan->script;
    pickle->context = scan;
    pickle->on_global = scan_on_global;
    pickle->on_call = scan_on_call;
}

/* Pickles in a row, up to `most`, or as long as another seems to start. */
static bool scan_row(struct scan *scan, struct pickle *pickle, size_t most,
                     struct tc_error *error) {
    struct tc_error *broken = calloc(1, sizeof *broken);
    struct pickle_node *node;
    if (!broken)
        return tc_fail_memory(error);
    pickle->error = broken;
    for (size_t i = 0; i < most && pickle->at < pickle->end; i++) {
        if (!pickle_load(pickle, &node))
            break;
        scan->pickles++;
    }
    if (pickle->odd && broken->class == TC_OK)
        tc_fail(broken, TC_INVALID, "pickle", "%s", pickle->odd);
    bool failed = broken->class == TC_IO;
    if (failed)
        *error = *broken;
    else if (broken->class != TC_OK)
        scan_note_broken(scan, broken);
    free(broken);
    return !failed;
}

static bool scan_memory(struct scan *scan, const unsigned char *bytes, uint64_t length,
                        struct tc_error *error) {
    struct pickle pickle;
    bool relative = scan->relative;
    machine_init(scan, &pickle, error);
    pickle.memory = bytes;
    pickle.end = length;
    scan->relative = true;
    scan->depth++;
    bool ok = scan_row(scan, &pickle, SIZE_MAX, error);
    scan->depth--;
    scan->relative = relative;
    pickle_release(&pickle);
    return ok;
}

bool scan_range(struct scan *scan, struct tc_input *input, uint64_t at, uint64_t end, size_t most,
                struct tc_error *error) {
    struct pickle pickle;
    machine_init(scan, &pickle, error);
    pickle.input = input;
    pickle.at = at;
    pickle.end = end;
    bool ok = scan_row(scan, &pickle, most, error);
    pickle_release(&pickle);
    return ok;
}

/* Whether an array's header says that it holds objects, and where their pickle
 * starts. Anything that could be read so counts. */
bool scan_holds_objects(const unsigned char *bytes, size_t length, uint64_t *pickle) {
    if (length < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return false;
    bool wide = bytes[6] >= 2;
    uint64_t header = bytes[8] | (uint64_t)bytes[9] << 8;
    if (wide)
        header |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    uint64_t start = wide ? 12 : 10;
    uint64_t shown = header < length - start ? header : length - start;
    *pickle = start + header;
    return memmem(bytes + start, shown, "O", 1) != NULL;
}

bool scan_name_is_pickle(struct tc_text name) {
    static const char *const endings[] = {".pkl",  ".pickle", ".p",   ".dat", ".data", ".joblib",
                                          ".dill", ".pt",     ".pth", ".bin", ".ckpt"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (tc_text_ends(name, tc_text_of(endings[i])))
            return true;
    return false;
}

/* Protocols 0 and 1 start with no mark of their own; their first opcodes are
 * letters. A try costs little: the machine stops at the first that is none. */
static bool might_be_old_pickle(const unsigned char *bytes, size_t length) {
    return length >= 2 && strchr("(cid]}lVSXNIFL", bytes[0]) != NULL && bytes[0];
}

static bool scan_bytes(struct scan *scan, struct tc_input *input, uint64_t at,
                       const unsigned char *bytes, uint64_t length, struct tc_error *error) {
    return input ? scan_range(scan, input, at, at + length, SIZE_MAX, error)
                 : scan_memory(scan, bytes, length, error);
}

/* "module.name" of letters, digits, underscores and dots: what Python could
 * import. */
static bool is_identifier(struct tc_text name) {
    for (size_t i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.bytes[i];
        unsigned char lower = c | 0x20;
        if (!(lower >= 'a' && lower <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '.' &&
            c < 0x80)
            return false;
    }
    return name.length > 2;
}

/* What may be a pickle or just text: where it is none after all, it breaks
 * nothing, and only names that could be imported count. */
bool scan_try(struct scan *scan, struct tc_input *input, uint64_t at, const unsigned char *bytes,
              uint64_t length, struct tc_error *error) {
    struct tc_error *before = malloc(sizeof *before);
    if (!before)
        return tc_fail_memory(error);
    *before = *scan->broken;
    size_t pickles = scan->pickles;
    size_t first = scan->count;
    bool unsafe = scan->unsafe;
    bool ok = scan_bytes(scan, input, at, bytes, length, error);
    if (scan->pickles == pickles) {
        size_t kept = first;
        scan->unsafe = unsafe;
        for (size_t i = first; i < scan->count; i++)
            if (is_identifier(scan->findings[i].name)) {
                scan->unsafe |= !scan->findings[i].allowed;
                scan->findings[kept++] = scan->findings[i];
            }
        scan->count = kept;
        if (scan->unsafe == unsafe)
            *scan->broken = *before;
    }
    free(before);
    return ok;
}

/* A member, or a whole file: `input` at `at`, or `bytes`. */
bool scan_content(struct scan *scan, struct tc_input *input, uint64_t at,
                  const unsigned char *bytes, uint64_t length, enum named named,
                  struct tc_error *error) {
    unsigned char head[512];
    size_t shown = length < sizeof head ? length : sizeof head;
    uint64_t pickle;
    if (bytes)
        memcpy(head, bytes, shown);
    else if (!tc_input_read(input, at, head, shown, error))
        return false;
    if (scan_holds_objects(head, shown, &pickle)) {
        if (pickle < length)
            return scan_bytes(scan, input, at + pickle, bytes ? bytes + pickle : NULL,
                              length - pickle, error);
        return true;
    }
    if (named == PICKLE_NAMED || (scan_looks_like_pickle(head, shown) && named != STORAGE_NAMED))
        return scan_bytes(scan, input, at, bytes, length, error);
    if (scan_looks_like_pickle(head, shown))
        return scan_try(scan, input, at, bytes, length, error);
    if (shown >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        struct tc_error nested = {0};
        tc_fail(&nested, TC_UNSUPPORTED, "nested-zip", "a zip inside a zip is not looked into");
        scan_note_broken(scan, &nested);
        return true;
    }
    if (!might_be_old_pickle(head, shown))
        return true;
    return scan_try(scan, input, at, bytes, length, error);
}
