/*
 * Which dtype a tensor is written in. By default the target's own rule:
 * as it is, or promoted without loss. The user may ask for another, tensor by
 * tensor; what may lose values must be allowed by name (lossy).
 *
 * Where the target can say so, a tensor whose dtype changed keeps the one it
 * had as metadata, and `restore` goes back to it.
 */
#ifndef TCONV_CORE_PLAN_DTYPE_POLICY_H
#define TCONV_CORE_PLAN_DTYPE_POLICY_H

#include "core/base/error.h"
#include "core/base/regex.h"
#include "core/tensor/dtype.h"

struct tc_plan;
struct tc_item;

struct tc_dtype_rule {
    struct tc_regex regex;
    const char *text; /* as the user wrote it, and the user's */
    bool everything;  /* a bare dtype: every tensor of its family */
    bool used;        /* it decided about a tensor */
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
/* "BF16", or "REGEX=BF16". A bare floating-point dtype is for tensors that
 * hold such numbers, a bare integer dtype for integers, and so on. */
bool tc_policy_add(struct tc_policy *policy, const char *rule, struct tc_error *error);

/* Decides about an item: its dtype, size, and what the ledger says of it. */
bool tc_policy_apply(struct tc_plan *plan, struct tc_item *item, struct tc_error *error);
/* A warning for each rule that decided nothing, and where nothing was restored. */
bool tc_policy_note_unused(struct tc_plan *plan, struct tc_error *error);
/* Whether what casting did to an item so far is allowed. */
bool tc_policy_check(const struct tc_plan *plan, const struct tc_item *item,
                     struct tc_error *error);

#endif
