/*
 * Scans the operators of ONNX models and TensorFlow graphs. Their messages are nested,
 * so they are walked with a stack of fixed depth, as by the readers.
 *
 * ONNX's own operators are harmless in any program that runs the model, and so are those
 * that onnxruntime has built in (com.microsoft). An operator of another domain is code
 * of some other program, which the file does not name.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/tensor/table.h"
#include "formats/onnx/onnx.h"
#include "formats/protobuf/wire.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"
#include "formats/tf/tensor.h"

#define MAX_DEPTH 100u
#define MAX_TEXT 4096u
/* How many operators are reported by name. With more, the file is not clean whatever
 * they are. */
#define MAX_REPORTED 1000u

enum message {
    NONE,
    /* ONNX */
    MODEL,
    GRAPH,
    NODE,
    ATTRIBUTE,
    FUNCTION,
    TRAINING,
    TENSOR,
    SPARSE,
    EXTERNAL,
    /* TensorFlow */
    SAVED_MODEL,
    META_GRAPH,
    TF_GRAPH,
    TF_NODE,
    TF_LIBRARY,
    TF_FUNCTION,
};

static const struct part {
    uint8_t whole;
    uint8_t field;
    uint8_t message;
} parts[] = {
    {MODEL, 7, GRAPH},
    {MODEL, 25, FUNCTION},
    {MODEL, 20, TRAINING},
    {TRAINING, 1, GRAPH},
    {TRAINING, 2, GRAPH},
    {GRAPH, 1, NODE},
    {GRAPH, 5, TENSOR},
    {GRAPH, 15, SPARSE},
    {SPARSE, 1, TENSOR},
    {SPARSE, 2, TENSOR},
    {NODE, 5, ATTRIBUTE},
    {ATTRIBUTE, 5, TENSOR},
    {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 10, TENSOR},
    {ATTRIBUTE, 11, GRAPH},
    {ATTRIBUTE, 22, SPARSE},
    {ATTRIBUTE, 23, SPARSE},
    {FUNCTION, 7, NODE},
    {FUNCTION, 11, ATTRIBUTE},
    {TENSOR, 13, EXTERNAL},
    {SAVED_MODEL, 2, META_GRAPH},
    {META_GRAPH, 2, TF_GRAPH},
    {TF_GRAPH, 1, TF_NODE},
    {TF_GRAPH, 2, TF_LIBRARY},
    {TF_LIBRARY, 1, TF_FUNCTION},
    {TF_FUNCTION, 3, TF_NODE},
};

static enum message message_of(enum message whole, const struct wire_field *field) {
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].whole == whole && parts[i].field == field->number && field->type == WIRE_BYTES)
            return parts[i].message;
    return NONE;
}

struct level {
    struct wire wire;
    enum message message;
    uint64_t at;
    /* Texts of a node or of an entry of a map. */
    struct tc_text name;   /* op_type or op; of an entry: key */
    struct tc_text domain; /* of an entry: value */
};

struct walk {
    const struct scan_view *view;
    struct tc_name_map reported; /* operators that were reported */
    struct tc_name_map files;    /* external data that was added */
    struct tc_error *damage;
    struct tc_error *error;
};

static const char *const onnx_domains[] = {
    "", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft",
};

/* TensorFlow's operators that run Python, or open files that the graph names. */
static const char *const tf_system[] = {
    "PyFunc",
    "PyFuncStateless",
    "EagerPyFunc",
    "ReadFile",
    "WriteFile",
    "MatchingFiles",
    "PrintV2",
    "ImmutableConst",
    "WholeFileReader",
    "WholeFileReaderV2",
    "TextLineReader",
    "TextLineReaderV2",
    "TFRecordReader",
    "TFRecordReaderV2",
    "FixedLengthRecordReader",
    "FixedLengthRecordReaderV2",
    "TextLineDataset",
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
    "CSVDataset",
    "CSVDatasetV2",
    "ExperimentalCSVDataset",
    "SqlDataset",
    "ExperimentalSqlDataset",
    "SaveDataset",
    "SaveDatasetV2",
    "LoadDataset",
    "SaveSlices",
    "Save",
    "WriteSummary",
    "CreateSummaryFileWriter",
    "CreateSummaryDbWriter",
    "DebugIdentity",
    "DebugIdentityV2",
    "DebugIdentityV3",
    "LookupTableExportV2ToFile",
    "RpcCall",
    "RpcClient",
    "RpcServer",
    "DataServiceDataset",
    "DataServiceDatasetV2",
    "DataServiceDatasetV3",
    "DataServiceDatasetV4",
    "FileSystemSetConfiguration",
};

static bool is_among(struct tc_text text, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (tc_text_equal(text, tc_text_of(list[i])))
            return true;
    return false;
}

#define AMONG(text, list) is_among(text, list, sizeof(list) / sizeof *(list))

/* Each operator once. */
static bool report(struct walk *walk, enum scan_level level, const char *code, struct tc_text name,
                   uint64_t at, const char *what) {
    struct tc_error ignored = {0};
    if (walk->reported.count >= MAX_REPORTED || !tc_utf8_valid(name) ||
        tc_name_map_find(&walk->reported, name)) {
        walk->view->scan->seen[level] = true;
        return true;
    }
    tc_name_add(&walk->reported, name, 0, MAX_REPORTED, &ignored);
    return scan_find(walk->view, level, code, name, at, what, walk->error);
}

static bool end_node(struct walk *walk, const struct level *level) {
    struct tc_arena *arena = &walk->view->reader->arena;
    bool python = tc_text_starts(level->name, TC_TEXT("PythonOp")) ||
                  tc_text_equal(level->name, TC_TEXT("ATen"));
    bool built_in = level->domain.length == 13 && python; /* com.microsoft */
    if (AMONG(level->domain, onnx_domains) && !built_in)
        return true;
    struct tc_text name = {NULL, level->domain.length + 2 + level->name.length};
    char *text = tc_arena_alloc(arena, name.length + 1, walk->error);
    if (!text)
        return false;
    if (level->domain.length)
        memcpy(text, level->domain.bytes, level->domain.length);
    memcpy(text + level->domain.length, "::", 2);
    if (level->name.length)
        memcpy(text + level->domain.length + 2, level->name.bytes, level->name.length);
    name.bytes = text;
    return report(walk, built_in ? SCAN_DANGEROUS : SCAN_PROGRAM, "onnx-operator", name, level->at,
                  built_in ? "an operator that calls Python"
                           : "an operator of a domain of its own");
}

static bool end_external(struct walk *walk, const struct level *level) {
    struct tc_error ignored = {0};
    if (!tc_text_equal(level->name, TC_TEXT("location")))
        return true;
    if (!onnx_location_is_below(level->domain))
        return report(walk, SCAN_DANGEROUS, "external-data", level->domain, level->at,
                      "the model names a file outside its folder");
    if (walk->view->region->archived || tc_name_map_find(&walk->files, level->domain) ||
        !tc_name_add(&walk->files, level->domain, 0, TC_MAX_SHARDS, &ignored))
        return true;
    return scan_add_beside(walk->view, level->domain, SCAN_DATA, walk->error);
}

static bool end_message(struct walk *walk, const struct level *level) {
    switch (level->message) {
    case NODE:
        return end_node(walk, level);
    case EXTERNAL:
        return end_external(walk, level);
    case FUNCTION:
        return report(walk, SCAN_PROGRAM, "onnx-function", level->name, level->at,
                      "a function of the model's own");
    case TF_NODE:
        return !AMONG(level->name, tf_system) ||
               report(walk, SCAN_DANGEROUS, "tensorflow-system", level->name, level->at,
                      "an operator that runs Python or reaches files");
    default:
        return true;
    }
}

/* Where the text of this field goes; NULL: it is not needed. */
static struct tc_text *text_of(struct level *level, const struct wire_field *field) {
    static const struct {
        uint8_t message;
        uint8_t name;
        uint8_t domain;
    } texts[] = {{NODE, 4, 7}, {FUNCTION, 1, 10}, {EXTERNAL, 1, 2}, {TF_NODE, 2, 0}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].message != level->message || field->type != WIRE_BYTES)
            continue;
        if (field->number == texts[i].name)
            return &level->name;
        if (field->number == texts[i].domain)
            return &level->domain;
    }
    return NULL;
}

static bool take_text(struct walk *walk, struct level *level, const struct wire_field *field) {
    struct tc_text *text = text_of(level, field);
    return !text ||
           wire_text(&level->wire, field, MAX_TEXT, &walk->view->reader->arena, text, walk->damage);
}

static bool refuse_depth(struct walk *walk) {
    tc_fail(walk->damage, TC_UNSAFE, "depth-limit", "graphs lie over %u deep in each other",
            MAX_DEPTH);
    return tc_error_hint(walk->damage, TC_FIXED_LIMIT);
}

/* Walks over the messages. False where that can't go on: damage or error say why. */
static bool run(struct walk *walk, struct wire_source *source, enum message kind) {
    struct level *levels = calloc(MAX_DEPTH, sizeof *levels);
    unsigned depth = 1;
    bool ok = levels ? true : tc_fail_memory(walk->error);
    if (ok)
        levels[0] =
            (struct level){.wire = wire_open(source, 0, source->input->size), .message = kind};
    while (ok && depth) {
        struct level *level = &levels[depth - 1];
        struct wire_field field;
        if (!wire_next(&level->wire, &field, walk->damage)) {
            ok = walk->damage->class == TC_OK && end_message(walk, level);
            depth--;
            continue;
        }
        enum message inner = message_of(level->message, &field);
        if (inner == NONE)
            ok = take_text(walk, level, &field);
        else if (depth == MAX_DEPTH)
            ok = refuse_depth(walk);
        else
            levels[depth++] = (struct level){
                .wire = wire_inside(&level->wire, &field), .message = inner, .at = field.at};
    }
    free(levels);
    return ok;
}

static bool scan_graph(const struct scan_view *view, struct wire_source *source, enum message kind,
                       bool known, struct tc_error *error) {
    struct walk walk = {.view = view, .damage = calloc(1, sizeof *walk.damage), .error = error};
    if (!walk.damage)
        return tc_fail_memory(error);
    tc_name_map_init(&walk.reported, &view->reader->arena);
    tc_name_map_init(&walk.files, &view->reader->arena);
    bool ok =
        run(&walk, source, kind) ||
        (error->class == TC_OK && (!known || scan_note_broken(view->scan, walk.damage, error)));
    tc_name_map_release(&walk.reported);
    tc_name_map_release(&walk.files);
    free(walk.damage);
    return ok;
}

bool scan_onnx(const struct scan_view *view, bool opened, struct tc_error *error) {
    struct wire_source source;
    wire_source_init(&source, view->input);
    bool ok = scan_graph(view, &source, MODEL, opened, error);
    wire_source_release(&source);
    return ok;
}

/* Whether a message has a field of bytes with the first number of the path, inside of
 * that one with the next number, and so on. */
static bool holds(struct wire wire, const unsigned *path, size_t length) {
    struct tc_error ignored = {0};
    struct wire_field field;
    bool found = false;
    while (!found && wire_next(&wire, &field, &ignored))
        found = field.number == path[0] && field.type == WIRE_BYTES &&
                (length == 1 || holds(wire_inside(&wire, &field), path + 1, length - 1));
    return found;
}

/* TensorFlow runs a saved model that lacks much of what TensorFlow itself writes: one
 * node with an operator, in the graph of one of its meta graphs, is enough. */
static bool is_saved_model(struct wire_source *source, uint64_t size) {
    static const unsigned operators[] = {2, 2, 1, 2};
    return holds(wire_open(source, 0, size), operators, sizeof operators / sizeof *operators);
}

bool scan_tensorflow(const struct scan_view *view, bool *accounted, struct tc_error *error) {
    struct wire_source source;
    struct wire_field field;
    struct tc_error ignored = {0};
    bool ok = true;
    wire_source_init(&source, view->input);
    struct wire wire = wire_open(&source, 0, view->input->size);
    bool saved = wire_next(&wire, &field, &ignored) && field.type == WIRE_VARINT;
    if (tf_graph_seen(&source) || (saved && is_saved_model(&source, view->input->size))) {
        *accounted = true;
        ok = scan_find(view, SCAN_PROGRAM, "tensorflow-graph", view->region->name, 0,
                       "a graph of TensorFlow", error) &&
             scan_graph(view, &source, saved ? SAVED_MODEL : TF_GRAPH, true, error);
    }
    wire_source_release(&source);
    return ok;
}
