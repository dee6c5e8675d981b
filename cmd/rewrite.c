#include "cmd/rewrite.h"

#include "core/base/notes.h"
#include "core/format/backend.h"

/* Below this size of all tensors the time of a copy does not matter, and a file stays as short as
 * it can be. */
#define LEAST_SHARED (UINT64_C(1) << 20)

bool rewrite_check(const struct tc_reader *file, const char *instead, struct tc_error *error) {
    const struct tc_backend *format = file->shard_backend ? file->shard_backend : file->backend;
    if (!(format->caps & TC_CAN_WRITE))
        tc_fail(error, TC_UNSUPPORTED, "read-only", "%s is read, not written", format->name);
    else if (file->beyond || tc_notes_count(&file->notes, TC_LOSS, TC_KINDS)) {
        bool members = tc_notes_count(&file->notes, TC_LOSS, TC_KIND_SKIPPED) ||
                       tc_notes_count(&file->notes, TC_LOSS, TC_KIND_MEMBER);
        tc_fail(error, TC_UNSUPPORTED, "beyond",
                "the file would lose what it has beside tensors: %s",
                file->beyond ? file->beyond
                : members    ? "members that are no tensors"
                             : "what the warnings name");
        tc_error_hint(error, "%s", instead);
    }
    return error->class == TC_OK ? true : tc_error_in_file(error, file->input->path);
}

uint64_t rewrite_align(const struct tc_reader *file, const struct tc_plan_options *options) {
    const struct tc_backend *format = file->shard_backend ? file->shard_backend : file->backend;
    bool seen = options->write.compress || options->write.checksum;
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->table.count && bytes < LEAST_SHARED; i++)
        bytes += file->table.tensors[i].nbytes;
    return format->shares_blocks && !seen && bytes >= LEAST_SHARED ? TC_ALIGN_SHARE : 0;
}

void rewrite_keep(const struct tc_reader *file, bool keep_given, struct tc_plan_options *options) {
    if (!keep_given && file->sidecar)
        options->keep_metadata = TC_KEEP_SIDECAR;
    options->write.compress = file->compressed ? TC_COMPRESS_DEFAULT : 0;
    options->write.checksum = file->checksum;
    options->write.companion = file->companion_count > 0;
}
