/*
 * Scans what the table of a distributed checkpoint leads to: ranges of the files beside it. torch
 * loads each as a whole file, wherever it lies: also inside of another item, where it looks like
 * numbers.
 */

#include <stdlib.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/dcp/dcp.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"

/* Items of one file, one after the other, are no longer than the file. Those that lie in each other
 * are looked at up to twice that, and so much. */
#define MORE_BYTES (UINT64_C(16) << 20)

static int by_place(const void *a, const void *b) {
    const struct dcp_item *x = a;
    const struct dcp_item *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return (int)x->packed - (int)y->packed;
}

/* The state of the walk over the items, which are sorted. */
struct walk {
    const struct scan_view *view;
    struct scan_source *source; /* the file of the last item; NULL: it can't be opened */
    struct tc_text name;        /* that file's */
    uint64_t left;              /* how many bytes of it are still looked at */
};

static bool open_items(struct walk *walk, struct tc_text name, struct tc_error *error) {
    const char *copy = tc_arena_copy(&walk->view->scan->arena, name.bytes, name.length, error);
    scan_source_drop(walk->source);
    walk->source = NULL;
    if (!copy || !scan_open_beside(walk->view, name, &walk->source, error))
        return false;
    walk->name = (struct tc_text){copy, name.length};
    walk->left = walk->source ? 2 * walk->source->input->size + MORE_BYTES : 0;
    return true;
}

static bool add_item(struct walk *walk, const struct dcp_item *item, struct tc_error *error) {
    struct scan *scan = walk->view->scan;
    if (!tc_range_within(item->offset, item->length, walk->source->input->size)) {
        scan_note(scan, "truncated", "an item reaches past the end of its file");
        return true;
    }
    if (item->length > walk->left) {
        scan_note_limit(scan, "bytes in items that lie in each other", NULL);
        return true;
    }
    walk->left -= item->length;
    struct scan_region region = {.source = walk->source,
                                 .offset = item->offset,
                                 .length = item->length,
                                 .name = walk->name,
                                 .role = SCAN_FILE,
                                 .depth = walk->view->region->depth + 1,
                                 .packing = item->packed ? SCAN_ZSTD : SCAN_PLAIN,
                                 /* No item leads to other files. */
                                 .archived = true};
    walk->source->users++;
    return scan_push_region(scan, region, error);
}

/* An item that nothing is in is not loaded. */
static bool add_items(const struct scan_view *view, struct dcp *dcp, struct tc_error *error) {
    struct walk walk = {.view = view};
    bool ok = true;
    qsort(dcp->items, dcp->item_count, sizeof *dcp->items, by_place);
    for (size_t i = 0; i < dcp->item_count && ok; i++) {
        const struct dcp_item *item = &dcp->items[i];
        bool first = i == 0;
        if (first || item->file != item[-1].file)
            ok = open_items(&walk, dcp->files.entries[item->file].name, error);
        bool again = !first && by_place(item, item - 1) == 0;
        if (ok && walk.source && item->length && !again)
            ok = add_item(&walk, item, error);
    }
    scan_source_drop(walk.source);
    return ok;
}

bool scan_checkpoint(const struct scan_view *view, struct tc_error *error) {
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    struct dcp dcp;
    bool ok = true;
    if (dcp_list_items(&dcp, view->reader, damage))
        ok = add_items(view, &dcp, error);
    else if (damage->reason == TC_REASON_OUTSIDE)
        ok = scan_find(view, SCAN_DANGEROUS, "shard-path", dcp.outside, 0,
                       "the table names a file outside its folder", error);
    else
        ok = scan_note_broken(view->scan, damage, error);
    dcp_list_release(&dcp);
    free(damage);
    return ok;
}
