/*
 * The fuzz target of schemas: the input is one, and a file of tensors is checked against it. What
 * the file's own schema says must hold of the file.
 */
#include "core/inspect/schema.h"

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/samples.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "formats/registry.h"

/* Whether the tensors are as the schema wants them; false also where that can't be said. */
static bool holds(const char *path, bool *loaded) {
    struct tc_error error = {0};
    struct tc_schema schema;
    *loaded = tc_schema_load(&schema, path, &error);
    fuzz_check_outcome(*loaded, &error);
    bool ok = false;
    if (*loaded) {
        struct tc_findings findings;
        tc_findings_init(&findings);
        struct tc_reader *reader = tc_registry_open(sample_named(), NULL, &fuzz_options, &error);
        FUZZ_CHECK(reader, "the sample does not open: %s", error.message);
        ok = tc_schema_check(&schema, reader, &findings, &error);
        fuzz_check_outcome(ok, &error);
        ok = ok && findings.count == 0;
        tc_reader_close(reader);
        tc_findings_release(&findings);
    }
    tc_schema_release(&schema);
    return ok;
}

static void check_own(void) {
    struct tc_error error = {0};
    struct tc_buffer text = {0};
    bool loaded;
    struct tc_reader *reader = tc_registry_open(sample_named(), NULL, &fuzz_options, &error);
    FUZZ_CHECK(reader, "the sample does not open: %s", error.message);
    tc_schema_write(&text, &reader->table);
    tc_reader_close(reader);
    FUZZ_CHECK(holds(fuzz_file((const unsigned char *)text.bytes, text.length), &loaded) && loaded,
               "a file's own schema does not hold");
    tc_buffer_release(&text);
}

void fuzz_schema(const unsigned char *bytes, size_t length) {
    static bool checked;
    bool loaded;
    if (!checked)
        check_own();
    checked = true;
    holds(fuzz_file(bytes, length), &loaded);
}
