/*
 * Which dtype a tensor is written in. By default it is the tensor's own where the
 * target can hold that, else a wider one that keeps every value. The user may ask
 * for another dtype with --dtype; --lossy must allow what may lose values.
 *
 * Where the target holds metadata, a tensor whose dtype changed keeps its original
 * dtype as metadata, and --restore-dtype goes back to it. A checkpoint that keeps its nesting does
 * so by itself where the format that it is read from has no such dtype.
 */
#ifndef TCONV_CORE_PLAN_DTYPE_POLICY_H
#define TCONV_CORE_PLAN_DTYPE_POLICY_H

#include "core/base/error.h"
#include "core/base/regex.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"

struct tc_plan;
struct tc_item;

struct tc_dtype_rule {
    struct tc_regex regex;
    const char *text; /* as the user wrote it; not owned */
    bool everything;  /* a dtype without an expression: for every tensor of its family */
    bool used;        /* it applied to a tensor */
    enum tc_dtype dtype;
};

struct tc_policy {
    struct tc_dtype_rule *rules; /* the first that matches counts */
    size_t count;
    bool lossy;
    bool saturate;
    bool restore;
};

void tc_policy_release(struct tc_policy *policy);
/* "BF16", or "REGEX=BF16". A floating-point dtype without an expression applies to
 * floating-point tensors, an integer dtype to integer tensors, and so on. */
bool tc_policy_add(struct tc_policy *policy, const char *rule, struct tc_error *error);

/* Sets an item's dtype and size, and adds to the ledger. */
bool tc_policy_apply(struct tc_plan *plan, struct tc_item *item, struct tc_error *error);
/* The dtype that an item had first, where its own holds all values of that; else its own. */
enum tc_dtype tc_policy_first_dtype(const struct tc_item *item);
/* The dtype in which a weight that is dequantised is computed: `usual`, that of the program which
 * it comes from, or the one that the user asks for. Fails where that needs --lossy. */
bool tc_policy_dequantised(const struct tc_plan *plan, struct tc_text name, enum tc_dtype usual,
                           enum tc_dtype *dtype, struct tc_error *error);
/* Adds a warning for each rule that applied to no tensor, and where --restore-dtype
 * restored none. */
bool tc_policy_note_unused(struct tc_plan *plan, struct tc_error *error);
/* Fails where the user does not allow what casting did to the item so far. */
bool tc_policy_check(const struct tc_plan *plan, const struct tc_item *item,
                     struct tc_error *error);

#endif
