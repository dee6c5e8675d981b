#include "core/plan/dtype_policy.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/notes.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "core/tensor/cast.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"

void tc_policy_release(struct tc_policy *policy) {
    for (size_t i = 0; i < policy->count; i++)
        tc_regex_release(&policy->rules[i].regex);
    free(policy->rules);
    *policy = (struct tc_policy){0};
}

bool tc_policy_add(struct tc_policy *policy, const char *rule, struct tc_error *error) {
    const char *equals = strrchr(rule, '=');
    const char *name = equals ? equals + 1 : rule;
    enum tc_dtype dtype = tc_dtype_named(tc_text_of(name));
    if (dtype == TC_NONE || tc_dtype_packed(dtype)) {
        tc_fail(error, TC_USAGE, "dtype", "not a dtype to convert to: %s", name);
        return tc_dtype_hint(tc_text_of(dtype == TC_NONE ? name : ""), error,
                             "tconv formats lists the dtypes; 'REGEX=DTYPE' is for the "
                             "tensors whose names match");
    }
    struct tc_dtype_rule *rules = reallocarray(policy->rules, policy->count + 1, sizeof *rules);
    if (!rules)
        return tc_fail_memory(error);
    policy->rules = rules;
    struct tc_dtype_rule *added = &rules[policy->count];
    *added = (struct tc_dtype_rule){.text = rule, .everything = !equals, .dtype = dtype};
    if (equals && !tc_regex_compile(&added->regex, (struct tc_text){rule, (size_t)(equals - rule)},
                                    false, error))
        return false;
    policy->count++;
    return true;
}

enum family { TRUTHS, INTEGERS, FLOATS, COMPLEX, PACKED };

static enum family family_of(enum tc_dtype dtype) {
    if (tc_dtype_packed(dtype) && !tc_dtype_is_block(dtype))
        return PACKED;
    if (dtype == TC_BOOL)
        return TRUTHS;
    if (tc_dtype_is_complex(dtype))
        return COMPLEX;
    return tc_dtype_is_integer(dtype) ? INTEGERS : FLOATS;
}

static bool find_rule(const struct tc_policy *policy, struct tc_text name, enum tc_dtype from,
                      enum tc_dtype *dtype, struct tc_error *error) {
    *dtype = TC_NONE;
    for (size_t i = 0; policy && i < policy->count; i++) {
        struct tc_dtype_rule *rule = &policy->rules[i];
        bool matches = rule->everything && family_of(rule->dtype) == family_of(from);
        if (!rule->everything && !tc_regex_matches(&rule->regex, name, &matches, error))
            return false;
        if (matches) {
            rule->used = true;
            *dtype = rule->dtype;
            return true;
        }
    }
    return true;
}

/* The dtype the tensor had before an earlier conversion changed it. */
static enum tc_dtype source_dtype(const struct tc_item *item) {
    const struct tc_text *text = tc_metadata_find(item->metadata, TC_TEXT(TC_SOURCE_DTYPE_KEY));
    return text ? tc_dtype_find(*text) : TC_NONE;
}

enum tc_dtype tc_policy_first_dtype(const struct tc_item *item) {
    enum tc_dtype first = source_dtype(item);
    return first != TC_NONE && tc_cast_lossless(first, item->dtype) ? first
                                                                    : (enum tc_dtype)item->dtype;
}

/* Whether a tensor is to get back the dtype that it had first: where the user says so, and in a
 * checkpoint that gets back its nesting, if the format that it comes from had no place for it. */
static bool wants_restored(const struct tc_plan *plan, const struct tc_item *item,
                           enum tc_dtype first) {
    const struct tc_policy *policy = plan->options->policy;
    const struct tc_reader *reader = item->reader;
    const struct tc_backend *format =
        reader->shard_backend ? reader->shard_backend : reader->backend;
    return first != TC_NONE &&
           ((policy && policy->restore) || (plan->resumes && !(format->dtypes & TC_SET(first))));
}

static bool measure(struct tc_plan *plan, struct tc_item *item, struct tc_error *error) {
    enum tc_dtype from = item->tensor->dtype;
    enum tc_dtype to = item->dtype;
    uint64_t count;
    item->nbytes = item->taken;
    if (from == to)
        return true;
    if (!tc_shape_measure(to, item->shape, item->rank, &count, &item->nbytes, error))
        return false;
    if (tc_dtype_is_block(from) &&
        !tc_plan_note(plan, TC_CHANGE, TC_KIND_DEQUANTISED, item->name, error,
                      "%s dequantised to %s", tc_dtype_name(from), tc_dtype_name(to)))
        return false;
    if (tc_dtype_is_block(from) && !item->lossy)
        return true;
    if (!item->lossy && !item->restored)
        return tc_plan_note(plan, TC_CHANGE, TC_KIND_DTYPE, item->name, error,
                            "%s stored as %s, without loss", tc_dtype_name(from),
                            tc_dtype_name(to));
    item->report = tc_arena_alloc(&plan->arena, sizeof *item->report, error);
    if (!item->report)
        return false;
    if (item->restored)
        return tc_plan_note(plan, TC_CHANGE, TC_KIND_DTYPE, item->name, error,
                            "%s restored to %s, without loss", tc_dtype_name(from),
                            tc_dtype_name(to));
    return tc_plan_note(plan, TC_LOSS, TC_KIND_DTYPE, item->name, error,
                        "%s stored as %s, with loss", tc_dtype_name(from), tc_dtype_name(to));
}

/* Records the dtype that the tensor had first in its metadata, or removes the record
 * where it has that dtype again. */
static bool note_source(struct tc_plan *plan, struct tc_item *item, struct tc_error *error) {
    unsigned caps = plan->target->caps;
    bool kept = caps & (TC_CAN_FILE_METADATA | TC_CAN_TENSOR_METADATA) ||
                plan->options->keep_metadata == TC_KEEP_SIDECAR;
    enum tc_dtype first = source_dtype(item);
    /* What was quantised can't be quantised again to the same bytes. */
    if (item->dtype == item->tensor->dtype || !kept || tc_dtype_is_block(item->tensor->dtype) ||
        plan->options->keep_metadata == TC_KEEP_DROP)
        return true;
    struct tc_metadata *metadata = tc_metadata_copy(item->metadata, &plan->arena, error);
    if (!metadata)
        return false;
    tc_metadata_remove(metadata, TC_TEXT(TC_SOURCE_DTYPE_KEY));
    /* After several conversions in a row, the first dtype is the one to restore. */
    enum tc_dtype note = first != TC_NONE ? first : (enum tc_dtype)item->tensor->dtype;
    if (note != item->dtype && !item->lossy &&
        !tc_metadata_set(metadata, &plan->arena, TC_TEXT(TC_SOURCE_DTYPE_KEY),
                         tc_text_of(tc_dtype_name(note)), error))
        return false;
    item->metadata = metadata;
    return true;
}

static bool refuse_lossy(enum tc_dtype from, enum tc_dtype to, struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, "lossy", "%s to %s may lose values", tc_dtype_name(from),
            tc_dtype_name(to));
    return tc_error_hint(error, "allow it with --lossy");
}

static bool refuse_dtype(const struct tc_plan *plan, const struct tc_item *item,
                         struct tc_error *error) {
    enum tc_dtype from = item->tensor->dtype;
    tc_fail(error, TC_UNSUPPORTED, "dtype", "%s cannot hold %s without loss", plan->target->name,
            tc_dtype_name(from));
    if (family_of(from) != PACKED)
        tc_error_hint(error, "choose another dtype, with loss: --lossy --dtype '^NAME$=%s'",
                      from == TC_C128 ? "C64" : "F64");
    return false;
}

bool tc_policy_dequantised(const struct tc_plan *plan, struct tc_text name, enum tc_dtype usual,
                           enum tc_dtype *dtype, struct tc_error *error) {
    const struct tc_policy *policy = plan->options->policy;
    enum tc_dtype asked;
    *dtype = usual;
    if (!find_rule(policy, name, usual, &asked, error))
        return false;
    if (asked == TC_NONE || asked == usual)
        return true;
    /* F32 has the product before its last rounding; what is wider is made of that. */
    if (tc_cast_lossless(TC_F32, asked)) {
        *dtype = TC_F32;
        return true;
    }
    *dtype = asked == TC_F16 || asked == TC_BF16 ? asked : TC_F32;
    return policy->lossy || refuse_lossy(TC_F32, asked, error);
}

bool tc_policy_apply(struct tc_plan *plan, struct tc_item *item, struct tc_error *error) {
    const struct tc_policy *policy = plan->options->policy;
    tc_dtype_set held = plan->target->dtypes;
    enum tc_dtype from = item->tensor->dtype;
    enum tc_dtype to;
    if (!find_rule(policy, item->tensor->name, from, &to, error))
        return false;
    if (to != TC_NONE) {
        if (!(held & TC_SET(to)))
            return tc_fail(error, TC_UNSUPPORTED, "dtype", "%s cannot hold %s", plan->target->name,
                           tc_dtype_name(to));
        if (!tc_cast_exists(from, to) && from != to)
            return tc_fail(error, TC_UNSUPPORTED, "dtype", "%s cannot be converted to %s",
                           tc_dtype_name(from), tc_dtype_name(to));
        item->lossy = !tc_cast_lossless(from, to);
        if (item->lossy && !policy->lossy)
            return refuse_lossy(from, to, error);
    } else {
        enum tc_dtype first = source_dtype(item);
        item->restored = wants_restored(plan, item, first) && first != from &&
                         held & TC_SET(first) && tc_cast_lossless(first, from) &&
                         tc_cast_exists(from, first);
        to = item->restored ? first : tc_dtype_promote(from, held);
        if (to == TC_NONE || (!item->restored && !tc_cast_lossless(from, to)))
            return refuse_dtype(plan, item, error);
    }
    item->dtype = (uint8_t)to;
    return measure(plan, item, error) && note_source(plan, item, error);
}

bool tc_policy_note_unused(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_policy *policy = plan->options->policy;
    struct tc_text none = {0};
    bool restored = false;
    for (size_t i = 0; policy && i < policy->count; i++) {
        const struct tc_dtype_rule *rule = &policy->rules[i];
        if (!rule->used && !tc_plan_note(plan, TC_WARNING, TC_KIND_SELECTION, none, error,
                                         "--dtype '%s' is for no tensor that is there", rule->text))
            return false;
    }
    for (size_t i = 0; i < plan->count && !restored; i++)
        restored = plan->items[i].restored;
    return !policy || !policy->restore || restored ||
           tc_plan_note(
               plan, TC_WARNING, TC_KIND_SELECTION, none, error,
               "--restore-dtype has nothing to restore: no tensor says what it was before");
}

bool tc_policy_check(const struct tc_plan *plan, const struct tc_item *item,
                     struct tc_error *error) {
    const struct tc_policy *policy = plan->options->policy;
    const struct tc_cast_report *report = item->report;
    if (!report)
        return true;
    if (item->restored && report->inexact) {
        tc_fail(error, TC_UNSUPPORTED, "restore",
                "its values are not those of %s any more; it was changed since",
                tc_dtype_name(item->dtype));
        tc_error_hint(error, policy && policy->restore
                                 ? "leave --restore-dtype out, or convert it with --lossy --dtype"
                                 : "leave it as it is with --tree=never, or convert it with "
                                   "--lossy --dtype");
    } else if (family_of(item->dtype) == INTEGERS && !(policy && policy->saturate) &&
               (report->overflow || report->nan_made)) {
        tc_fail(error, TC_UNSUPPORTED, "range", "a value is %s, which %s cannot hold",
                report->nan_made ? "NaN" : "out of range", tc_dtype_name(item->dtype));
        tc_error_hint(error, "--saturate takes the nearest value there is, and 0 for NaN");
    } else {
        return true;
    }
    return tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
}
