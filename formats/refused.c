#include "formats/refused.h"

#include <stdlib.h>
#include <string.h>

/* A higher class replaces a lower one: that a value is a pickle (TC_UNSAFE) matters
 * more than that another is not supported. */
static bool keep_worst(struct refused *refused, struct tc_text name, const struct tc_error *reason,
                       struct tc_error *error) {
    if (refused->worst && refused->worst->class >= reason->class)
        return true;
    if (!refused->worst && !(refused->worst = malloc(sizeof *refused->worst)))
        return tc_fail_memory(error);
    *refused->worst = *reason;
    tc_error_in_tensor(refused->worst, name.bytes, name.length);
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
    bool ok = !wanted || (keep_worst(refused, name, reason, error) &&
                          tc_reader_skip(reader, name, pickle ? TC_SKIP_PICKLE : TC_SKIP_VALUE,
                                         error, "%s", reason->message));
    free(reason);
    return ok;
}

bool refused_finish(const struct refused *refused, const struct tc_reader *reader,
                    struct tc_error *error) {
    if (reader->table.count || !refused->worst)
        return true;
    *error = *refused->worst;
    return false;
}

void refused_release(struct refused *refused) {
    free(refused->worst);
    refused->worst = NULL;
}
