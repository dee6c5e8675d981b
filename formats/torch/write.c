#include "formats/torch/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/name_map.h"
#include "core/format/reader.h"
#include "core/io/chunk_pipe.h"
#include "core/plan/kept_metadata.h"
#include "core/plan/ties.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/pickle/opcodes.h"

#define ROOT "archive/"
/* The pickle's protocol, that of torch.save. */
#define PROTOCOL 2
/* How many pairs one SETITEMS puts into a dict, as in Python's pickler. */
#define BATCH 1000
#define MAX_MEMO 64

/* How torch names each dtype, as globals of a pickle: older dtypes have a class of
 * storage; newer ones have an untyped storage and a dtype. */
static const struct torch_type {
    const char *storage; /* NULL: untyped */
    const char *dtype;
} types[TC_DTYPES] = {
    [TC_BOOL] = {.storage = "torch\nBoolStorage"},
    [TC_U8] = {.storage = "torch\nByteStorage"},
    [TC_I8] = {.storage = "torch\nCharStorage"},
    [TC_I16] = {.storage = "torch\nShortStorage"},
    [TC_I32] = {.storage = "torch\nIntStorage"},
    [TC_I64] = {.storage = "torch\nLongStorage"},
    [TC_F16] = {.storage = "torch\nHalfStorage"},
    [TC_BF16] = {.storage = "torch\nBFloat16Storage"},
    [TC_F32] = {.storage = "torch\nFloatStorage"},
    [TC_F64] = {.storage = "torch\nDoubleStorage"},
    [TC_C64] = {.storage = "torch\nComplexFloatStorage"},
    [TC_C128] = {.storage = "torch\nComplexDoubleStorage"},
    [TC_U16] = {.dtype = "torch\nuint16"},
    [TC_U32] = {.dtype = "torch\nuint32"},
    [TC_U64] = {.dtype = "torch\nuint64"},
    [TC_C32] = {.dtype = "torch\ncomplex32"},
    [TC_F8_E4M3] = {.dtype = "torch\nfloat8_e4m3fn"},
    [TC_F8_E5M2] = {.dtype = "torch\nfloat8_e5m2"},
    [TC_F8_E4M3FNUZ] = {.dtype = "torch\nfloat8_e4m3fnuz"},
    [TC_F8_E5M2FNUZ] = {.dtype = "torch\nfloat8_e5m2fnuz"},
    [TC_F8_E8M0] = {.dtype = "torch\nfloat8_e8m0fnu"},
    [TC_F4] = {.dtype = "torch\nfloat4_e2m1fn_x2"},
};

/* A sparse tensor, with the positions of its tensors in the output file. */
struct sparse_group {
    const struct tc_sparse_layout *layout;
    struct tc_text parent;
    size_t parts[4];
};

/* How an item is written. */
struct torch_slot {
    uint64_t number;                  /* of its storage */
    const struct sparse_group *group; /* the sparse tensor it belongs to; NULL: none */
    bool silent;                      /* it has no storage: the shape of a sparse tensor */
};

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
                       const struct tc_item *item, struct sparse_group *group) {
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

/* Sets the group of each item that belongs to a sparse tensor. */
static bool find_groups(const struct tc_item *items, size_t count, struct tc_arena *arena,
                        struct torch_slot *slots, struct tc_error *error) {
    struct tc_name_map names;
    if (!has_groups(items, count))
        return true;
    tc_name_map_init(&names, arena);
    bool ok = index_names(items, count, &names, error);
    for (size_t i = 0; i < count && ok; i++) {
        struct sparse_group found;
        if (slots[i].group || !find_group(items, &names, &items[i], &found))
            continue;
        struct sparse_group *group = tc_arena_alloc(arena, sizeof *group, error);
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
static bool stands_at(const struct sparse_group *group, size_t position) {
    for (unsigned p = 0; group && p < group->layout->parts; p++)
        if (group->parts[p] < position)
            return false;
    return true;
}

bool torch_write_listed(const struct tc_plan *plan, const struct tc_output_file *file,
                        struct tc_arena *arena, struct tc_text *names, struct tc_error *error) {
    const struct tc_item *items = plan->items + file->first;
    struct torch_slot *slots = tc_arena_array(arena, file->count, sizeof *slots, error);
    if (!slots || !find_groups(items, file->count, arena, slots, error))
        return false;
    for (size_t i = 0; i < file->count; i++) {
        const struct sparse_group *group = slots[i].group;
        names[i] = !group                ? items[i].name
                   : stands_at(group, i) ? group->parent
                                         : (struct tc_text){NULL, 0};
    }
    return true;
}

/* The pickle */

struct pickler {
    struct tc_writer *writer;
    const struct tc_item *items;
    const struct torch_slot *slots;
    struct tc_buffer text;
    bool script;
    const char *memo[MAX_MEMO]; /* texts and globals that were written, by memo key */
    unsigned memo_count;
};

static void add_byte(struct pickler *pickler, unsigned byte) {
    tc_buffer_add(&pickler->text, &(char){(char)byte}, 1);
}

static void add_little(struct pickler *pickler, uint64_t value, unsigned bytes) {
    unsigned char field[8];
    tc_store(field, value, bytes);
    tc_buffer_add(&pickler->text, field, bytes);
}

static void add_integer(struct pickler *pickler, uint64_t value) {
    if (value <= UINT8_MAX) {
        add_byte(pickler, OP_BININT1);
        add_little(pickler, value, 1);
    } else if (value <= UINT16_MAX) {
        add_byte(pickler, OP_BININT2);
        add_little(pickler, value, 2);
    } else if (value <= INT32_MAX) {
        add_byte(pickler, OP_BININT);
        add_little(pickler, value, 4);
    } else {
        /* libtorch accepts LONG1 only with eight bytes. */
        add_byte(pickler, OP_LONG1);
        add_byte(pickler, 8);
        add_little(pickler, value, 8);
    }
}

static void add_text(struct pickler *pickler, struct tc_text text) {
    add_byte(pickler, OP_BINUNICODE);
    add_little(pickler, text.length, 4);
    tc_buffer_add_text(&pickler->text, text);
}

/* Writes a global, given as "module\nname". */
static void add_global(struct pickler *pickler, const char *global) {
    add_byte(pickler, OP_GLOBAL);
    tc_buffer_addf(&pickler->text, "%s\n", global);
}

/* Writes a text or global the first time, and later refers to it by the memo. A global
 * has a newline in it. */
static void add_shared(struct pickler *pickler, const char *text) {
    for (unsigned i = 0; i < pickler->memo_count; i++)
        if (strcmp(pickler->memo[i], text) == 0) {
            add_byte(pickler, OP_BINGET);
            add_byte(pickler, i);
            return;
        }
    if (strchr(text, '\n'))
        add_global(pickler, text);
    else
        add_text(pickler, tc_text_of(text));
    if (pickler->memo_count == MAX_MEMO)
        return;
    add_byte(pickler, OP_BINPUT);
    add_byte(pickler, pickler->memo_count);
    pickler->memo[pickler->memo_count++] = text;
}

static void begin_tuple(struct pickler *pickler, size_t count) {
    if (count > 3)
        add_byte(pickler, OP_MARK);
}

static void end_tuple(struct pickler *pickler, size_t count) {
    static const unsigned char short_ones[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    add_byte(pickler, count <= 3 ? short_ones[count] : OP_TUPLE);
}

static void add_sizes(struct pickler *pickler, const uint64_t *sizes, size_t count) {
    begin_tuple(pickler, count);
    for (size_t i = 0; i < count; i++)
        add_integer(pickler, sizes[i]);
    end_tuple(pickler, count);
}

/* Sizes and strides as torch has them, which counts pairs of F4 elements. */
static void sizes_in_torch(const struct tc_item *item, uint64_t *sizes, uint64_t *strides) {
    uint64_t stride = 1;
    for (unsigned i = item->rank; i > 0; i--) {
        sizes[i - 1] = item->shape[i - 1] / (item->dtype == TC_F4 && i == item->rank ? 2 : 1);
        strides[i - 1] = stride;
        stride *= sizes[i - 1] ? sizes[i - 1] : 1;
    }
}

/* Writes the persistent id of a storage: ("storage", class, key, "cpu", count). */
static void add_storage(struct pickler *pickler, const struct tc_item *item, uint64_t number) {
    const struct torch_type *type = &types[item->dtype];
    char key[24];
    snprintf(key, sizeof key, "%llu", (unsigned long long)number);
    add_byte(pickler, OP_MARK);
    add_shared(pickler, "storage");
    add_shared(pickler, type->storage ? type->storage : "torch.storage\nUntypedStorage");
    add_text(pickler, tc_text_of(key));
    add_shared(pickler, "cpu");
    add_integer(pickler,
                type->storage ? item->nbytes / (tc_dtype_bits(item->dtype) / 8) : item->nbytes);
    add_byte(pickler, OP_TUPLE);
    add_byte(pickler, OP_BINPERSID);
}

static void add_empty_dict(struct pickler *pickler) {
    add_shared(pickler, "collections\nOrderedDict");
    add_byte(pickler, OP_EMPTY_TUPLE);
    add_byte(pickler, OP_REDUCE);
}

static void add_dense(struct pickler *pickler, size_t index) {
    const struct tc_item *item = &pickler->items[index];
    const struct tc_item *kept = item;
    const struct torch_type *type = &types[item->dtype];
    uint64_t sizes[TC_MAX_RANK] = {0};
    uint64_t strides[TC_MAX_RANK] = {0};
    if (item->tied)
        kept = tc_ties_kept(pickler->writer->plan, item);
    sizes_in_torch(item, sizes, strides);
    add_shared(pickler, type->storage ? "torch._utils\n_rebuild_tensor_v2"
                                      : "torch._utils\n_rebuild_tensor_v3");
    add_byte(pickler, OP_MARK);
    add_storage(pickler, item, pickler->slots[kept - pickler->items].number);
    add_integer(pickler, 0);
    add_sizes(pickler, sizes, item->rank);
    add_sizes(pickler, strides, item->rank);
    add_byte(pickler, OP_NEWFALSE); /* requires no gradient */
    add_empty_dict(pickler);        /* has no hooks */
    if (!type->storage)
        add_shared(pickler, type->dtype);
    add_byte(pickler, OP_TUPLE);
    add_byte(pickler, OP_REDUCE);
}

/* Writes a sparse tensor. The pickle has its shape, so that the shape's values are read
 * before any data is written. */
static bool add_sparse(struct pickler *pickler, const struct sparse_group *group,
                       struct tc_error *error) {
    unsigned last = group->layout->parts - 1;
    const struct tc_item *item = &pickler->items[group->parts[last]];
    unsigned char bytes[TC_MAX_RANK * 8];
    uint64_t sizes[TC_MAX_RANK] = {0};
    if (!tc_reader_read(item->reader, item->tensor, item->skip, bytes, item->nbytes, error))
        return false;
    for (size_t i = 0; i < item->nbytes / 8; i++) {
        sizes[i] = tc_load(bytes + i * 8, 8);
        if (sizes[i] <= INT64_MAX)
            continue;
        tc_fail(error, TC_INVALID, "sparse", "a sparse tensor has a negative dimension");
        return tc_error_in_tensor(error, group->parent.bytes, group->parent.length);
    }
    struct tc_buffer layout = {0};
    tc_buffer_addf(&layout, "torch.sparse_%s", group->layout->name);
    const char *kept =
        tc_buffer_ok(&layout, error)
            ? tc_arena_copy(&pickler->writer->arena, layout.bytes, layout.length, error)
            : NULL;
    tc_buffer_release(&layout);
    if (!kept)
        return false;
    add_shared(pickler, "torch._utils\n_rebuild_sparse_tensor");
    add_shared(pickler, "torch.serialization\n_get_layout");
    add_shared(pickler, kept);
    add_byte(pickler, OP_TUPLE1);
    add_byte(pickler, OP_REDUCE);
    begin_tuple(pickler, last + 1);
    for (unsigned i = 0; i < last; i++)
        add_dense(pickler, group->parts[i]);
    add_sizes(pickler, sizes, item->nbytes / 8);
    end_tuple(pickler, last + 1);
    add_byte(pickler, OP_TUPLE2);
    add_byte(pickler, OP_REDUCE);
    return true;
}

/* Writes a name. In TorchScript "." would separate attributes: tch writes "|" for it. */
static void add_key(struct pickler *pickler, struct tc_text name) {
    size_t start = pickler->text.length + 5;
    add_text(pickler, name);
    for (size_t i = start; pickler->script && i < pickler->text.length; i++)
        if (pickler->text.bytes[i] == '.')
            pickler->text.bytes[i] = '|';
}

static bool add_items(struct pickler *pickler, struct tc_error *error) {
    size_t batch = 0;
    for (size_t i = 0; i < pickler->writer->file->count; i++) {
        const struct sparse_group *group = pickler->slots[i].group;
        if (!stands_at(group, i))
            continue;
        if (batch == 0)
            add_byte(pickler, OP_MARK);
        add_key(pickler, group ? group->parent : pickler->items[i].name);
        if (!group)
            add_dense(pickler, i);
        else if (!add_sparse(pickler, group, error))
            return false;
        batch = (batch + 1) % BATCH;
        if (batch == 0)
            add_byte(pickler, OP_SETITEMS);
    }
    if (batch)
        add_byte(pickler, OP_SETITEMS);
    return tc_buffer_ok(&pickler->text, error);
}

static bool make_pickle(struct pickler *pickler, struct tc_error *error) {
    add_byte(pickler, OP_PROTO);
    add_byte(pickler, PROTOCOL);
    if (pickler->script) {
        add_global(pickler, "__torch__\nModule");
        add_byte(pickler, OP_EMPTY_TUPLE);
        add_byte(pickler, OP_NEWOBJ);
        add_byte(pickler, OP_EMPTY_DICT);
    } else
        add_empty_dict(pickler);
    if (!add_items(pickler, error))
        return false;
    if (pickler->script)
        add_byte(pickler, OP_BUILD);
    add_byte(pickler, OP_STOP);
    return tc_buffer_ok(&pickler->text, error);
}

/* The archive */

static bool add_member(struct torch_writer *torch, const char *name, const void *bytes,
                       size_t length, struct tc_error *error) {
    return zip_member_begin(&torch->zip, tc_text_of(name), length, error) &&
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
 * about sparse tensors is left out, since the pickle says that itself. */
static bool add_metadata(struct tc_writer *writer, struct torch_writer *torch,
                         struct tc_error *error) {
    size_t count = writer->file->count;
    struct tc_item *items = tc_arena_array(&writer->arena, count, sizeof *items, error);
    if (!items)
        return false;
    bool any = writer->file->metadata.count > 0;
    for (size_t i = 0; i < count; i++) {
        items[i] = writer->plan->items[writer->file->first + i];
        if (torch->slots[i].group) {
            struct tc_metadata *rest = tc_metadata_copy(items[i].metadata, &writer->arena, error);
            if (!rest)
                return false;
            tc_metadata_remove_prefix(rest, TC_SPARSE_KEYS);
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
    writer->sees_bytes = true; /* for the CRC */
    zip_writer_init(&torch->zip, writer->out, 0);
    torch->slots = tc_arena_array(&writer->arena, count, sizeof *torch->slots, error);
    const struct tc_item *items = writer->plan->items + writer->file->first;
    if (!torch->slots ||
        (!script && !find_groups(items, count, &writer->arena, torch->slots, error)))
        return false;
    /* The shape of a sparse tensor is written with a storage if another tensor shares
     * its data. */
    for (size_t i = 0; i < count; i++)
        if (items[i].tied)
            torch->slots[tc_ties_kept(writer->plan, &items[i]) - items].silent = false;
    for (size_t i = 0; i < count; i++)
        if (!items[i].tied && !torch->slots[i].silent)
            torch->slots[i].number = number++;
    struct pickler *pickler = tc_arena_alloc(&writer->arena, sizeof *pickler, error);
    if (!pickler)
        return false;
    *pickler =
        (struct pickler){.writer = writer, .items = items, .slots = torch->slots, .script = script};
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
    return zip_member_begin(&torch->zip, tc_text_of(name), item->nbytes, error);
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
    struct tc_chunk *chunk;
    enum tc_next next = TC_NEXT_FAILED;
    while (ok && (next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        ok = slot->silent || zip_member_write(&torch->zip, chunk->bytes, chunk->length, error);
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
