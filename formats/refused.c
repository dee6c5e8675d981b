#include "formats/refused.h"

#include <stdlib.h>
#include <string.h>

/* That something is a pickle goes before what else was left out. */
static bool keep_first(struct refused *refused, struct tc_text name, const struct tc_error *reason,
                       struct tc_error *error) {
    if (refused->first && refused->first->class >= reason->class)
        return true;
    if (!refused->first && !(refused->first = malloc(sizeof *refused->first)))
        return tc_fail_memory(error);
    *refused->first = *reason;
    tc_error_in_tensor(refused->first, name.bytes, name.length);
    return true;
}

bool refused_add(struct refused *refused, struct tc_reader *reader, struct tc_text name,
                 struct tc_error *error) {
    bool pickle = error->reason == TC_REASON_PICKLE;
    bool wanted = tc_reader_wants(reader, name);
    if (wanted && error->class != TC_UNSUPPORTED && !pickle)
        return tc_error_in_tensor(error, name.bytes, name.length);
    struct tc_error *reason = malloc(sizeof *reason);
    if (!reason)
        return tc_fail_memory(error);
    *reason = *error;
    *error = (struct tc_error){0};
    bool ok = !wanted || (keep_first(refused, name, reason, error) &&
                          tc_reader_skip(reader, name, pickle ? TC_SKIP_PICKLE : TC_SKIP_VALUE,
                                         error, "%s", reason->message));
    free(reason);
    return ok;
}

bool refused_finish(const struct refused *refused, const struct tc_reader *reader,
                    struct tc_error *error) {
    if (reader->table.count || !refused->first)
        return true;
    *error = *refused->first;
    return false;
}

void refused_release(struct refused *refused) {
    free(refused->first);
    refused->first = NULL;
}
