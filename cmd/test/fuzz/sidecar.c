/* The fuzz target of sidecars: the input is one, of files that have names and of one that has only
 * numbers. */

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/samples.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/registry.h"

static void check_metadata(const struct tc_metadata *metadata) {
    for (size_t i = 0; metadata && i < metadata->count; i++)
        FUZZ_CHECK(tc_utf8_valid(metadata->pairs[i].key) && tc_utf8_valid(metadata->pairs[i].value),
                   "metadata is no UTF-8");
}

static void read_sidecar(const char *path, const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_reader *reader = tc_registry_open(path, NULL, &fuzz_options, &error);
    FUZZ_CHECK(reader, "the sample does not open: %s", error.message);
    bool ok = tc_sidecar_read(reader, (const char *)bytes, length, &error);
    fuzz_check_outcome(ok, &error);
    check_metadata(&reader->table.metadata);
    for (size_t i = 0; ok && i < reader->table.count; i++) {
        check_metadata(reader->table.tensors[i].metadata);
        FUZZ_CHECK(tc_table_find(&reader->table, reader->table.tensors[i].name) ==
                       &reader->table.tensors[i],
                   "a tensor is not found by its name");
    }
    tc_reader_close(reader);
}

void fuzz_sidecar(const unsigned char *bytes, size_t length) {
    read_sidecar(sample_named(), bytes, length);
    read_sidecar(sample_numbered(), bytes, length);
}
