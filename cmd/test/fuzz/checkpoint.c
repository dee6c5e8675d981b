/*
 * The fuzz target of checkpoints in several files: the input's parts (parts.h) are files of a
 * folder, distributed checkpoints of torch or DeepSpeed's. Parts called FILE!MEMBER are put into a
 * zip of that name with right checksums, else those would keep most changes from the readers.
 */
#include <stdio.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "formats/registry.h"
#include "formats/test/make_zip.h"

#define MODEL "mp_rank_00_model_states.pt"
#define TABLE ".metadata"

/* Writes the archive that this part is the first member of. */
static void write_archive(const struct part *parts, size_t count, size_t first, size_t file) {
    struct test_member members[PARTS_MOST + 2];
    char names[PARTS_MOST][PART_NAME + 16];
    char name[PART_NAME + 1] = {0};
    size_t added = 0;
    struct tc_buffer zip = {0};
    memcpy(name, parts[first].name, file);
    for (size_t i = first; i < count; i++) {
        if (strncmp(parts[i].name, parts[first].name, file + 1) != 0)
            continue;
        snprintf(names[added], sizeof names[added], "archive/%s", parts[i].name + file + 1);
        members[added] = (struct test_member){names[added], parts[i].bytes, parts[i].length, false};
        added++;
    }
    members[added++] = (struct test_member){"archive/version", "3\n", 2, false};
    members[added++] = (struct test_member){"archive/byteorder", "little", 6, false};
    FUZZ_CHECK(test_make_zip(&zip, members, added), "the archive can't be made");
    fuzz_write(name, zip.bytes, zip.length);
    tc_buffer_release(&zip);
}

static void write_part(const struct part *parts, size_t count, size_t i) {
    const char *mark = strchr(parts[i].name, '!');
    size_t file = mark ? (size_t)(mark - parts[i].name) : strlen(parts[i].name);
    if (!tc_path_is_plain((struct tc_text){parts[i].name, file}))
        return;
    for (size_t before = 0; mark && before < i; before++)
        if (strncmp(parts[before].name, parts[i].name, file + 1) == 0)
            return; /* it is in the archive already */
    if (mark)
        write_archive(parts, count, i, file);
    else
        fuzz_write(parts[i].name, parts[i].bytes, parts[i].length);
}

void fuzz_checkpoint(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    size_t count = parts_split(bytes, length, parts);
    fuzz_empty_folder();
    for (size_t i = 0; i < count; i++)
        write_part(parts, count, i);
    struct tc_error error = {0};
    struct tc_error other = {0};
    fuzz_digest_and_verify(fuzz_path(TABLE), tc_registry_named("dcp"), &fuzz_options, &error);
    fuzz_restart_clock();
    fuzz_digest_and_verify(fuzz_path(MODEL), tc_registry_named("zero"), &fuzz_options, &other);
    fuzz_restart_clock();
    struct tc_error third = {0};
    fuzz_digest_and_verify(fuzz_path("zero_pp_rank_0_" MODEL), tc_registry_named("zero"),
                           &fuzz_options, &third);
}
