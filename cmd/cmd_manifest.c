/* The JSON sidecar of deathtensors, of a file of any format. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/receipt.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/table.h"

/* The version of the deathtensors package whose manifests these equal byte for byte. */
#define PACKAGE_VERSION "0.3.0"

struct manifest {
    struct common common;
    struct tc_publish_options publish;
};

/* What the package calls each dtype; for those that it does not know, torch's name. */
static const struct {
    const char *torch;
    const char *numpy; /* NULL: numpy has none */
} words[TC_DTYPES] = {
    [TC_BOOL] = {"torch.bool", "|b1"},
    [TC_U8] = {"torch.uint8", "|u1"},
    [TC_I8] = {"torch.int8", "|i1"},
    [TC_U16] = {"torch.uint16", "<u2"},
    [TC_I16] = {"torch.int16", "<i2"},
    [TC_U32] = {"torch.uint32", "<u4"},
    [TC_I32] = {"torch.int32", "<i4"},
    [TC_U64] = {"torch.uint64", "<u8"},
    [TC_I64] = {"torch.int64", "<i8"},
    [TC_F16] = {"torch.float16", "<f2"},
    [TC_BF16] = {"torch.bfloat16", "<f2"}, /* as the package has it: of the same size */
    [TC_F32] = {"torch.float32", "<f4"},
    [TC_F64] = {"torch.float64", "<f8"},
    [TC_C64] = {"torch.complex64", "<c8"},
    [TC_C128] = {"torch.complex128", "<c16"},
    [TC_C32] = {"torch.complex32", NULL},
    [TC_F8_E4M3] = {"torch.float8_e4m3fn", NULL},
    [TC_F8_E5M2] = {"torch.float8_e5m2", NULL},
    [TC_F8_E4M3FNUZ] = {"torch.float8_e4m3fnuz", NULL},
    [TC_F8_E5M2FNUZ] = {"torch.float8_e5m2fnuz", NULL},
    [TC_F8_E8M0] = {"torch.float8_e8m0fnu", NULL},
    [TC_F4] = {"torch.float4_e2m1fn_x2", NULL},
};

static void add_word(struct tc_json_writer *json, const char *key, const char *word) {
    if (word)
        tc_json_add_string(json, key, word);
    else
        tc_json_add_null(json, key);
}

static void add_tensor(struct tc_json_writer *json, const struct tc_tensor *tensor,
                       uint64_t offset) {
    const uint64_t offsets[2] = {offset, offset + tensor->nbytes};
    tc_json_add_key(json, tensor->name);
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", tensor->name);
    add_word(json, "dtype", tc_dtype_name((enum tc_dtype)tensor->dtype));
    add_word(json, "torch_dtype", words[tensor->dtype].torch);
    add_word(json, "numpy_dtype", words[tensor->dtype].numpy);
    tc_json_add_numbers(json, "shape", tensor->shape, tensor->rank);
    tc_json_add_numbers(json, "data_offsets", offsets, 2);
    tc_json_add_number(json, "nbytes", tensor->nbytes);
    tc_metadata_write(json, "metadata", tensor->metadata);
    tc_json_close(json);
}

/*
 * The offsets of a deathtensors file are its own. For any other format they are
 * those that the tensors would have in such a file: in their order, without gaps,
 * which in safetensors is where they are. A tensor that shares another's data has
 * the offsets of the other.
 */
static bool add_tensors(struct tc_json_writer *json, const struct tc_reader *reader,
                        struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    uint64_t *offsets = calloc(table->count + 1, sizeof *offsets);
    if (!offsets)
        return tc_fail_memory(error);
    uint64_t end = 0;
    tc_json_open_object(json, "tensors");
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        size_t source = tc_table_source(table, i);
        bool alias = source != i;
        offsets[i] = alias ? offsets[source] : reader->data_offsets ? tensor->offset : end;
        end += alias ? 0 : tensor->nbytes;
        add_tensor(json, tensor, offsets[i]);
    }
    tc_json_close(json);
    free(offsets);
    return true;
}

static bool print(struct tc_buffer *out, const struct tc_reader *reader, struct tc_error *error) {
    bool given;
    int64_t date = (int64_t)reader->input->modified.tv_sec;
    if (!common_source_date(&given, &date, error))
        return false;
    /* As json.dump(…, indent=2) prints. */
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_ASCII, .style = TC_JSON_INDENTED};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "deathtensors_version", PACKAGE_VERSION);
    tc_json_add_number(&json, "format_version", 1);
    tc_json_add_string(&json, "magic", "DTLEGION");
    tc_metadata_write(&json, "global_metadata", &reader->table.metadata);
    if (!add_tensors(&json, reader, error))
        return false;
    tc_json_add_date(&json, "written_at", date, "+00:00");
    tc_json_close(&json);
    return tc_buffer_ok(out, error);
}

static bool write_manifest(const struct manifest *manifest, const struct tc_reader *reader,
                           const char *path, struct tc_error *error) {
    struct tc_buffer text = {0};
    struct tc_publish publish;
    const char *name = tc_path_name(path);
    bool ok = tc_publish_begin(&publish, path, false, manifest->publish, error) &&
              tc_reader_check_target(reader, &publish, name, error) &&
              print(&text, reader, error) && tc_publish_text(&publish, name, &text, error) &&
              tc_publish_commit(&publish, error);
    tc_publish_end(&publish);
    tc_buffer_release(&text);
    return ok;
}

static bool run(const struct manifest *manifest, const struct arguments *arguments,
                struct tc_error *error) {
    if (arguments->count < 1 || arguments->count > 2)
        return tc_fail(error, TC_USAGE, "usage", "a file is needed, and at most one output");
    const char *path = arguments->names[0];
    struct tc_buffer beside = {0};
    if (arguments->count == 1 && strcmp(path, "-") == 0)
        return tc_fail(error, TC_USAGE, "usage", "what comes from a pipe needs an output");
    tc_buffer_addf(&beside, "%s.json", path);
    const char *output = arguments->count == 2 ? arguments->names[1] : beside.bytes;
    struct sandbox sandbox = common_sandbox(&manifest->common);
    sandbox_add_output(&sandbox, output);
    bool ok = tc_buffer_ok(&beside, error) && sandbox_enter(&sandbox, &path, 1, error);
    struct tc_reader *reader = ok ? common_open(&manifest->common, path, error) : NULL;
    ok = reader && write_manifest(manifest, reader, output, error);
    tc_reader_close(reader);
    tc_buffer_release(&beside);
    return ok;
}

int cmd_manifest(int argc, char **argv) {
    struct manifest manifest = {.common = COMMON_DEFAULTS};
    struct option_table table;
    const struct option rows[] = {
        FLAG_OPTION("no-clobber", &manifest.publish.no_clobber,
                    .help = "an output that exists is an error"),
        FLAG_OPTION("no-sync", &manifest.publish.no_sync, .help = "do not wait for the disk"),
    };
    options_init(&table);
    options_add(&table, "Writing:", rows, OPTION_COUNT(rows));
    common_add_options(&table, &manifest.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && manifest.common.help)
        help_print(
            manifest.common.help, "tconv manifest [options] FILE [OUT]",
            "Writes the table of tensors and the metadata as deathtensors' JSON sidecar.\n"
            "It goes to FILE.json or OUT (- is standard output). Its time is the file's own,\n"
            "or that of SOURCE_DATE_EPOCH: the same file gives the same manifest.",
            &table);
    else if (ok)
        ok = run(&manifest, &arguments, &error);
    arguments_release(&arguments);
    options_release(&table);
    return ok ? 0 : report_error(&error, manifest.common.json);
}
