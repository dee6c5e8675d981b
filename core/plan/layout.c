#include "core/plan/layout.h"

#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

/* Data starts at a multiple of this, so that every element can be read where it lies. */
#define LEAST_ALIGNMENT 8u
#define PLACES (TC_BLOCK_BYTES / LEAST_ALIGNMENT)

bool tc_layout_check(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_backend *target = plan->target;
    const struct tc_write_options *write = &plan->options->write;
    if (write->align == 0)
        return true;
    if (write->align == TC_ALIGN_SHARE) {
        if (!target->shares_blocks)
            return tc_fail(error, TC_UNSUPPORTED, "align",
                           "%s cannot be laid out to share blocks with its input", target->name);
        bool seen = (target->caps & TC_CAN_CHECKSUM && write->checksum) || write->compress;
        return !seen || tc_plan_note(plan, TC_WARNING, TC_KIND_OUTPUT, (struct tc_text){0}, error,
                                     "its %s needs every byte, so no blocks are shared",
                                     write->compress ? "compression" : "checksum");
    }
    if (write->align <= target->max_align)
        return true;
    if (!target->max_align)
        return tc_fail(error, TC_UNSUPPORTED, "align", "%s is not aligned by --align",
                       target->name);
    return tc_fail(error, TC_UNSUPPORTED, "align",
                   "%s aligns data to %llu bytes at most (got %llu)", target->name,
                   (unsigned long long)target->max_align, (unsigned long long)write->align);
}

uint64_t tc_layout_step(const struct tc_plan *plan) {
    uint64_t align = plan->options->write.align;
    return align && align != TC_ALIGN_SHARE ? align : 1;
}

/* Whether an item's bytes lie in an input as they will in the output, and where. */
static bool lies_raw(const struct tc_item *item, uint64_t *offset) {
    struct tc_extent extent;
    if (item->densify || item->dequantise || item->dtype != item->tensor->dtype ||
        !tc_reader_extent(item->reader, item->tensor, &extent) || extent.input->source)
        return false;
    *offset = extent.input->base + extent.offset + item->skip;
    return true;
}

/* The place in a block at which data must start for the most bytes to lie as in their inputs'
 * blocks; TC_BLOCK_BYTES where no start helps. */
static uint64_t best_place(const struct tc_writer *writer) {
    uint64_t bytes[PLACES] = {0};
    uint64_t best = TC_BLOCK_BYTES;
    uint64_t most = 0;
    uint64_t end = 0;
    const struct tc_item *items = writer->plan->items + writer->file->first;
    for (size_t i = 0; i < writer->file->count; i++) {
        uint64_t offset;
        if (items[i].tied)
            continue;
        if (items[i].nbytes && lies_raw(&items[i], &offset)) {
            uint64_t place = (offset - end) % TC_BLOCK_BYTES;
            uint64_t *votes = &bytes[place / LEAST_ALIGNMENT];
            if (place % LEAST_ALIGNMENT == 0 && (*votes += items[i].nbytes) > most) {
                most = *votes;
                best = place;
            }
        }
        end += items[i].nbytes;
    }
    return best;
}

uint64_t tc_layout_start(const struct tc_writer *writer, uint64_t least) {
    uint64_t align = writer->plan->options->write.align;
    if (align == 0)
        return least;
    if (align != TC_ALIGN_SHARE)
        return (least + align - 1) / align * align;
    uint64_t place = writer->sees_bytes ? TC_BLOCK_BYTES : best_place(writer);
    return place == TC_BLOCK_BYTES ? least : least + (place - least) % TC_BLOCK_BYTES;
}
