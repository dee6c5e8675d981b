#include "formats/torch/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/io/chunk_pipe.h"
#include "core/plan/kept_metadata.h"
#include "core/plan/layout.h"
#include "core/plan/ties.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/pickle/opcodes.h"
#include "formats/torch/pickler.h"
#include "formats/torch/write_tree.h"

#define ROOT "archive/"
/* The pickle's protocol, that of torch.save. */
#define PROTOCOL 2
/* How many pairs one SETITEMS puts into a dict, as in Python's pickler. */
#define BATCH 1000

/* Sparse groups */

static const struct tc_sparse_layout *find_layout(const struct tc_metadata *metadata) {
    const struct tc_text *name = tc_metadata_find(metadata, TC_SPARSE_LAYOUT);
    if (!tc_sparse_parent(metadata))
        return NULL;
    /* In deathtensors a sparse tensor without a layout's name is COO. */
    return name ? tc_sparse_layout(*name) : &tc_sparse_layouts[TC_SPARSE_COO];
}

static bool index_names(const struct tc_item *items, size_t count, struct tc_name_map *names,
                        struct tc_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!tc_name_map_add(names, items[i].name, (uint32_t)i, error))
            return false;
    return true;
}

/* Whether an item can be this part of a sparse tensor in torch. */
static bool fits_part(const struct tc_item *item, const struct tc_sparse_layout *layout,
                      unsigned part) {
    const struct tc_text *own = tc_metadata_find(item->metadata, TC_SPARSE_ROLE);
    unsigned values = layout->parts - 2;
    if (!own || !tc_text_equal(*own, tc_text_of(layout->roles[part])))
        return false;
    if (part > values) /* the shape */
        return item->dtype == TC_I64 && item->tensor->dtype == TC_I64 && item->rank == 1 &&
               item->nbytes <= TC_MAX_RANK * 8;
    if (part == values)
        return true;
    return layout->compressed ? item->dtype == TC_I64 || item->dtype == TC_I32
                              : item->dtype == TC_I64 && item->rank == 2;
}

/* Finds the sparse tensor that an item belongs to; false where there is none, or torch
 * can't hold it. */
static bool find_group(const struct tc_item *items, const struct tc_name_map *names,
                       const struct tc_item *item, struct torch_group *group) {
    const struct tc_text *parent = tc_sparse_parent(item->metadata);
    group->layout = find_layout(item->metadata);
    if (!group->layout || parent->length == 0 || tc_name_map_find(names, *parent))
        return false;
    group->parent = *parent;
    for (unsigned i = 0; i < group->layout->parts; i++) {
        struct tc_buffer name = {0};
        tc_buffer_add_text(&name, *parent);
        tc_buffer_addf(&name, ".%s", group->layout->roles[i]);
        const uint32_t *found =
            name.failed ? NULL : tc_name_map_find(names, (struct tc_text){name.bytes, name.length});
        tc_buffer_release(&name);
        const struct tc_text *other = found ? tc_sparse_parent(items[*found].metadata) : NULL;
        if (!other || !tc_text_equal(*other, *parent) ||
            !fits_part(&items[*found], group->layout, i))
            return false;
        group->parts[i] = *found;
    }
    return true;
}

static bool has_groups(const struct tc_item *items, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (find_layout(items[i].metadata))
            return true;
    return false;
}

/* Sets the group of each item that belongs to a sparse tensor. Quantised tensors stay as
 * they are in shards, whose index must list all tensors. */
static bool find_groups(const struct tc_plan *plan, const struct tc_item *items, size_t count,
                        struct tc_arena *arena, struct torch_slot *slots, struct tc_error *error) {
    struct tc_name_map names;
    bool quantised = !plan->in_shards && torch_has_quantised(items, count);
    if (!has_groups(items, count) && !quantised)
        return true;
    tc_name_map_init(&names, arena);
    bool ok = index_names(items, count, &names, error) &&
              (!quantised || torch_find_quantised(items, count, &names, arena, slots, error));
    for (size_t i = 0; i < count && ok; i++) {
        struct torch_group found = {0};
        if (slots[i].group || !find_group(items, &names, &items[i], &found))
            continue;
        struct torch_group *group = tc_arena_alloc(arena, sizeof *group, error);
        if (!(ok = group != NULL))
            break;
        *group = found;
        for (unsigned p = 0; p < group->layout->parts; p++)
            slots[group->parts[p]].group = group;
        slots[group->parts[group->layout->parts - 1]].silent = true;
    }
    tc_name_map_release(&names);
    return ok;
}

/* Whether a sparse tensor is written at this position: at that of its first part. */
static bool stands_at(const struct torch_group *group, size_t position) {
    for (unsigned p = 0; group && p < group->layout->parts; p++)
        if (group->parts[p] < position)
            return false;
    return true;
}

bool torch_write_listed(const struct tc_plan *plan, const struct tc_output_file *file,
                        struct tc_arena *arena, struct tc_text *names, struct tc_error *error) {
    const struct tc_item *items = plan->items + file->first;
    struct torch_slot *slots = tc_arena_array(arena, file->count, sizeof *slots, error);
    if (!slots || !find_groups(plan, items, file->count, arena, slots, error))
        return false;
    for (size_t i = 0; i < file->count; i++) {
        const struct torch_group *group = slots[i].group;
        names[i] = !group                ? items[i].name
                   : stands_at(group, i) ? group->parent
                                         : (struct tc_text){NULL, 0};
    }
    return true;
}

/* The pickle */

/* Writes a name. In TorchScript "." would separate attributes: tch writes "|" for it. */
static void add_key(struct torch_pickler *pickler, struct tc_text name) {
    size_t start = pickler->text.length + 5;
    pickler_text(pickler, name);
    for (size_t i = start; pickler->script && i < pickler->text.length; i++)
        if (pickler->text.bytes[i] == '.')
            pickler->text.bytes[i] = '|';
}

static bool add_items(struct torch_pickler *pickler, struct tc_error *error) {
    size_t batch = 0;
    for (size_t i = 0; i < pickler->writer->file->count; i++) {
        const struct torch_group *group = pickler->slots[i].group;
        if (!stands_at(group, i) || pickler->slots[i].part)
            continue;
        if (batch == 0)
            pickler_byte(pickler, OP_MARK);
        add_key(pickler, group ? group->parent : pickler->items[i].name);
        if (!group && pickler->slots[i].quantised)
            pickler_quantised(pickler, i);
        else if (!group)
            pickler_dense(pickler, i);
        else if (!pickler_sparse(pickler, group, error))
            return false;
        batch = (batch + 1) % BATCH;
        if (batch == 0)
            pickler_byte(pickler, OP_SETITEMS);
    }
    if (batch)
        pickler_byte(pickler, OP_SETITEMS);
    return tc_buffer_ok(&pickler->text, error);
}

static bool make_pickle(struct torch_pickler *pickler, struct tc_error *error) {
    pickler_byte(pickler, OP_PROTO);
    pickler_byte(pickler, PROTOCOL);
    if (pickler->writer->plan->nests) {
        const struct torch_writer *torch = pickler->writer->state;
        bool ok = torch_write_tree(pickler, torch->places, error);
        pickler_byte(pickler, OP_STOP);
        return ok && tc_buffer_ok(&pickler->text, error);
    }
    if (pickler->script) {
        pickler_global(pickler, "__torch__\nModule");
        pickler_byte(pickler, OP_EMPTY_TUPLE);
        pickler_byte(pickler, OP_NEWOBJ);
        pickler_byte(pickler, OP_EMPTY_DICT);
    } else
        pickler_empty_dict(pickler);
    if (!add_items(pickler, error))
        return false;
    if (pickler->script)
        pickler_byte(pickler, OP_BUILD);
    pickler_byte(pickler, OP_STOP);
    return tc_buffer_ok(&pickler->text, error);
}

/* The archive */

static bool add_member(struct torch_writer *torch, const char *name, const void *bytes,
                       size_t length, struct tc_error *error) {
    return zip_member_begin(&torch->zip, tc_text_of(name), length, 0, error) &&
           zip_member_write(&torch->zip, bytes, length, error) &&
           zip_member_end(&torch->zip, error);
}

/* Appends a string literal of TorchScript's source. */
static void add_quoted(struct tc_buffer *text, struct tc_text name) {
    tc_buffer_add_string(text, "\"");
    for (size_t i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.bytes[i];
        if (c == '"' || c == '\\')
            tc_buffer_addf(text, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            tc_buffer_addf(text, "\\%03o", c);
        else
            tc_buffer_add(text, c == '.' ? "|" : name.bytes + i, 1);
    }
    tc_buffer_add_string(text, "\"");
}

/* Adds the source of the module's class, which libtorch needs: every tensor is a
 * parameter of it. */
static bool add_source(struct tc_writer *writer, struct torch_writer *torch,
                       struct tc_error *error) {
    const struct tc_item *items = writer->plan->items + writer->file->first;
    struct tc_buffer text = {0};
    tc_buffer_add_string(&text, "class Module(Module):\n  __parameters__ = [");
    for (size_t i = 0; i < writer->file->count; i++) {
        add_quoted(&text, items[i].name);
        tc_buffer_add_string(&text, ", ");
    }
    tc_buffer_add_string(&text, "]\n  __buffers__ = []\n  __annotations__ = []\n");
    for (size_t i = 0; i < writer->file->count; i++) {
        tc_buffer_add_string(&text, "  __annotations__[");
        add_quoted(&text, items[i].name);
        tc_buffer_add_string(&text, "] = Tensor\n");
    }
    bool ok = tc_buffer_ok(&text, error) &&
              add_member(torch, ROOT "code/__torch__.py", text.bytes, text.length, error) &&
              add_member(torch, ROOT "constants.pkl", "\x80\x02).", 4, error);
    tc_buffer_release(&text);
    return ok;
}

/* Adds metadata as a member of its own, since a state dict can't hold it. Metadata
 * about sparse and quantised tensors is left out, since the pickle says that itself. */
static bool add_metadata(struct tc_writer *writer, struct torch_writer *torch,
                         struct tc_error *error) {
    size_t count = writer->file->count;
    struct tc_item *items = tc_arena_array(&writer->arena, count, sizeof *items, error);
    if (!items)
        return false;
    bool any = writer->file->metadata.count > 0;
    for (size_t i = 0; i < count; i++) {
        items[i] = writer->plan->items[writer->file->first + i];
        if (torch->slots[i].group || torch->slots[i].quantised) {
            struct tc_metadata *rest = tc_metadata_copy(items[i].metadata, &writer->arena, error);
            if (!rest)
                return false;
            tc_metadata_remove_prefix(rest, TC_SPARSE_KEYS);
            tc_metadata_remove_prefix(rest, TC_TEXT("quant."));
            items[i].metadata = rest;
        }
        any |= items[i].metadata && items[i].metadata->count;
    }
    struct tc_buffer text = {0};
    bool ok =
        !any || (tc_sidecar_encode(&writer->file->metadata, items, count, false, &text, error) &&
                 add_member(torch, ROOT "tconv.json", text.bytes, text.length, error));
    tc_buffer_release(&text);
    return ok;
}

bool torch_write_begin(struct tc_writer *writer, bool script, struct tc_error *error) {
    struct torch_writer *torch = writer->state;
    size_t count = writer->file->count;
    uint64_t number = 0;
    writer->sees_bytes = true;
    writer->wants_crc = true;
    zip_writer_init(&torch->zip, writer->out, 0, tc_layout_step(writer->plan));
    torch->slots = tc_arena_array(&writer->arena, count, sizeof *torch->slots, error);
    const struct tc_item *items = writer->plan->items + writer->file->first;
    if (!torch->slots)
        return false;
    if (!script &&
        !(writer->plan->nests
              ? torch_write_tree_slots(writer, torch->slots, &torch->places, error)
              : find_groups(writer->plan, items, count, &writer->arena, torch->slots, error)))
        return false;
    /* What has no storage of its own, such as the shape of a sparse tensor, is written
     * with one if another tensor shares its data. */
    for (size_t i = 0; i < count; i++) {
        if (!items[i].tied || torch->slots[i].silent)
            continue;
        struct torch_slot *kept = &torch->slots[tc_ties_kept(writer->plan, &items[i]) - items];
        kept->silent = false;
        kept->strided = NULL;
    }
    for (size_t i = 0; i < count; i++)
        if (!items[i].tied && !torch->slots[i].silent)
            torch->slots[i].number = number++;
    struct torch_pickler *pickler = tc_arena_alloc(&writer->arena, sizeof *pickler, error);
    if (!pickler)
        return false;
    *pickler = (struct torch_pickler){
        .writer = writer, .items = items, .slots = torch->slots, .script = script};
    bool ok = make_pickle(pickler, error) &&
              add_member(torch, ROOT "data.pkl", pickler->text.bytes, pickler->text.length, error);
    tc_buffer_release(&pickler->text);
    torch->script = script;
    return ok && add_metadata(writer, torch, error);
}

/* Begins the member that holds an item's data, if it has one. */
static bool begin_storage(struct tc_writer *writer, size_t index, struct tc_error *error) {
    struct torch_writer *torch = writer->state;
    const struct torch_slot *slot = &torch->slots[index];
    const struct tc_item *item = &writer->plan->items[writer->file->first + index];
    if (slot->silent)
        return true;
    char *name = tc_arena_alloc(&writer->arena, sizeof ROOT + 32, error);
    if (!name)
        return false;
    snprintf(name, sizeof ROOT + 32, ROOT "data/%llu", (unsigned long long)slot->number);
    return zip_member_begin(&torch->zip, tc_text_of(name), item->nbytes, 0, error);
}

bool torch_write_leave_room(struct tc_writer *writer, size_t index, struct tc_error *error) {
    struct torch_writer *torch = writer->state;
    if (!begin_storage(writer, index, error))
        return false;
    if (torch->slots[index].silent)
        return true;
    zip_member_skip(&torch->zip, writer->plan->items[writer->file->first + index].nbytes);
    return zip_member_end(&torch->zip, error);
}

bool torch_write_put(struct tc_writer *writer, size_t index, struct tc_source *source,
                     struct tc_error *error) {
    struct torch_writer *torch = writer->state;
    const struct torch_slot *slot = &torch->slots[index];
    bool ok = begin_storage(writer, index, error);
    if (ok && slot->strided && !slot->silent)
        return torch_write_strided(&torch->zip, &writer->plan->items[writer->file->first + index],
                                   slot->strided, source, error) &&
               zip_member_end(&torch->zip, error);
    struct tc_chunk *chunk;
    enum tc_next next = TC_NEXT_FAILED;
    while (ok && (next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        ok = slot->silent || zip_member_write_chunk(&torch->zip, chunk, error);
        tc_chunk_release(chunk);
    }
    return ok && next == TC_NEXT_END && (slot->silent || zip_member_end(&torch->zip, error));
}

/* Small members come last in the directory, so that torch_zip_seen finds them at its
 * end. */
bool torch_write_finish(struct tc_writer *writer, struct tc_error *error) {
    struct torch_writer *torch = writer->state;
    bool ok = (!torch->script || add_source(writer, torch, error)) &&
              add_member(torch, ROOT "byteorder", "little", 6, error) &&
              add_member(torch, ROOT "version", "3\n", 2, error) &&
              zip_writer_finish(&torch->zip, error);
    zip_writer_release(&torch->zip);
    return ok;
}

void torch_write_abort(struct tc_writer *writer) {
    zip_writer_release(&((struct torch_writer *)writer->state)->zip);
}

bool torch_write_check(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        if (item->dtype != TC_F4 || (item->rank && item->shape[item->rank - 1] % 2 == 0))
            continue;
        tc_fail(error, TC_UNSUPPORTED, "packed-shape",
                "torch has F4 in pairs along the last dimension, which is odd here");
        return tc_error_in_tensor(error, item->name.bytes, item->name.length);
    }
    return true;
}
