#include "core/plan/plan.h"

#include <stdarg.h>
#include <stdlib.h>

#include "core/base/checked.h"

const char *tc_plan_keep(struct tc_plan *plan, struct tc_buffer *text, struct tc_error *error) {
    char *copy = tc_buffer_ok(text, error)
                     ? tc_arena_copy(&plan->arena, text->bytes, text->length, error)
                     : NULL;
    tc_buffer_release(text);
    return copy;
}

bool tc_plan_note(struct tc_plan *plan, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text tensor, struct tc_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    bool ok = tc_notes_add_list(&plan->notes, severity, kind, tensor, error, format, args);
    va_end(args);
    return ok;
}

bool tc_plan_list_places(struct tc_plan *plan, struct tc_error *error) {
    size_t places = 0;
    for (size_t r = 0; r < plan->reader_count; r++)
        places += plan->readers[r]->table.count;
    if (!plan->by_place)
        plan->by_place = tc_arena_array(&plan->arena, places, sizeof(size_t), error);
    for (size_t i = 0; plan->by_place && i < plan->count; i++)
        plan->by_place[plan->items[i].place] = i;
    return plan->by_place != NULL;
}

bool tc_plan_charge(struct tc_plan *plan, uint64_t bytes, struct tc_error *error) {
    uint64_t size = 0;
    for (size_t r = 0; r < plan->reader_count; r++)
        size += plan->readers[r]->size;
    uint64_t limit = tc_made_limit(plan->readers[0]->options->limits.made, size);
    if (tc_add(plan->made, bytes, &plan->made) && plan->made <= limit)
        return true;
    tc_fail(error, TC_UNSAFE, "size-limit",
            "the output would have over %llu bytes that the input does not have",
            (unsigned long long)limit);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

struct ordering {
    const struct tc_backend *target;
    enum tc_order order;
};

static int item_order(const void *a, const void *b, void *context) {
    const struct ordering *ordering = context;
    const struct tc_item *x = a;
    const struct tc_item *y = b;
    int result = 0;
    if (ordering->order == TC_ORDER_NAME)
        result = tc_text_compare(x->name, y->name);
    else if (ordering->order == TC_ORDER_TARGET && ordering->target->compare)
        result = ordering->target->compare(x, y);
    return result ? result : x->place < y->place ? -1 : 1;
}

void tc_plan_sort_items(const struct tc_plan *plan, struct tc_item *items, size_t count,
                        enum tc_order order) {
    struct ordering ordering = {plan->target, order};
    for (size_t i = 1; i < count; i++)
        if (item_order(&items[i - 1], &items[i], &ordering) > 0) {
            qsort_r(items, count, sizeof *items, item_order, &ordering);
            return;
        }
}

void tc_plan_release(struct tc_plan *plan) {
    tc_arena_release(&plan->arena);
    *plan = (struct tc_plan){0};
}
