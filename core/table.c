#include "core/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/checked.h"
#include "core/sodium.h"

static bool pairs_grow(struct tc_metadata *metadata, struct tc_arena *arena,
                       struct tc_error *error) {
    if (metadata->count < metadata->capacity)
        return true;
    size_t capacity = metadata->capacity ? metadata->capacity * 2 : 4;
    struct tc_pair *pairs = tc_arena_array(arena, capacity, sizeof *pairs, error);
    if (!pairs)
        return false;
    if (metadata->count)
        memcpy(pairs, metadata->pairs, metadata->count * sizeof *pairs);
    metadata->pairs = pairs;
    metadata->capacity = capacity;
    return true;
}

bool tc_metadata_add(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error) {
    if (!pairs_grow(metadata, arena, error))
        return false;
    metadata->pairs[metadata->count++] = (struct tc_pair){key, value};
    return true;
}

static int pair_compare(const void *a, const void *b) {
    return tc_text_compare(((const struct tc_pair *)a)->key, ((const struct tc_pair *)b)->key);
}

bool tc_metadata_sort(struct tc_metadata *metadata, struct tc_error *error) {
    if (metadata->count < 2)
        return true;
    qsort(metadata->pairs, metadata->count, sizeof *metadata->pairs, pair_compare);
    for (size_t i = 1; i < metadata->count; i++)
        if (tc_text_equal(metadata->pairs[i - 1].key, metadata->pairs[i].key))
            return tc_fail(error, TC_INVALID, "duplicate-key", "metadata key \"%.*s\" occurs twice",
                           tc_text_shown(metadata->pairs[i].key, 200),
                           metadata->pairs[i].key.bytes);
    return true;
}

/* The first place whose key is not below `key`. */
static size_t pair_place(const struct tc_metadata *metadata, struct tc_text key) {
    size_t low = 0;
    size_t high = metadata->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tc_text_compare(metadata->pairs[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool pair_is_at(const struct tc_metadata *metadata, size_t place, struct tc_text key) {
    return place < metadata->count && tc_text_equal(metadata->pairs[place].key, key);
}

const struct tc_text *tc_metadata_find(const struct tc_metadata *metadata, struct tc_text key) {
    if (!metadata)
        return NULL;
    size_t place = pair_place(metadata, key);
    return pair_is_at(metadata, place, key) ? &metadata->pairs[place].value : NULL;
}

bool tc_metadata_set(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error) {
    size_t place = pair_place(metadata, key);
    if (!pair_is_at(metadata, place, key)) {
        if (!pairs_grow(metadata, arena, error))
            return false;
        memmove(metadata->pairs + place + 1, metadata->pairs + place,
                (metadata->count - place) * sizeof *metadata->pairs);
        metadata->count++;
        metadata->pairs[place].key = key;
    }
    metadata->pairs[place].value = value;
    return true;
}

struct tc_metadata *tc_metadata_copy(const struct tc_metadata *from, struct tc_arena *arena,
                                     struct tc_error *error) {
    size_t conflicts;
    struct tc_metadata *copy = tc_arena_alloc(arena, sizeof *copy, error);
    if (!copy || (from && !tc_metadata_merge(copy, from, arena, &conflicts, error)))
        return NULL;
    return copy;
}

bool tc_metadata_merge(struct tc_metadata *into, const struct tc_metadata *from,
                       struct tc_arena *arena, size_t *conflicts, struct tc_error *error) {
    *conflicts = 0;
    if (from->count == 0)
        return true;
    struct tc_metadata merged = {.capacity = into->count + from->count};
    merged.pairs = tc_arena_array(arena, merged.capacity, sizeof *merged.pairs, error);
    if (!merged.pairs)
        return false;
    size_t i = 0;
    size_t j = 0;
    while (i < into->count || j < from->count) {
        int order = i == into->count   ? 1
                    : j == from->count ? -1
                                       : tc_text_compare(into->pairs[i].key, from->pairs[j].key);
        if (order == 0)
            *conflicts += !tc_text_equal(into->pairs[i].value, from->pairs[j].value);
        merged.pairs[merged.count++] = order <= 0 ? into->pairs[i] : from->pairs[j];
        i += order <= 0;
        j += order >= 0;
    }
    *into = merged;
    return true;
}

struct joined {
    struct tc_pair pair;
    size_t source; /* 0: what was there; else 1 + the map's number */
};

static int joined_compare(const void *a, const void *b) {
    const struct joined *x = a;
    const struct joined *y = b;
    int order = tc_text_compare(x->pair.key, y->pair.key);
    return order ? order : (x->source > y->source) - (x->source < y->source);
}

static void list_pairs(struct joined *list, size_t *used, const struct tc_metadata *metadata,
                       size_t source) {
    for (size_t i = 0; i < metadata->count; i++)
        list[(*used)++] = (struct joined){metadata->pairs[i], source};
}

/* Of sorted pairs the first of each key; where there are more than one. */
static void keep_first(struct tc_metadata *into, const struct joined *list, size_t count,
                       size_t *conflicts) {
    for (size_t i = 0; i < count; i++) {
        const struct tc_pair *last = into->count ? &into->pairs[into->count - 1] : NULL;
        if (!last || !tc_text_equal(last->key, list[i].pair.key))
            into->pairs[into->count++] = list[i].pair;
        else
            conflicts[list[i].source - 1] += !tc_text_equal(last->value, list[i].pair.value);
    }
}

bool tc_metadata_join(struct tc_metadata *into, const struct tc_metadata *const *from, size_t count,
                      struct tc_arena *arena, size_t *conflicts, struct tc_error *error) {
    struct tc_arena scratch; /* bounded as the arena is, and gone when this is done */
    uint64_t total = into->count;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        conflicts[i] = 0;
        total += from[i]->count;
    }
    if (total == into->count)
        return true;
    tc_arena_init(&scratch, arena->budget);
    struct joined *list = tc_arena_array(&scratch, total, sizeof *list, error);
    bool ok = list != NULL;
    if (ok) {
        list_pairs(list, &used, into, 0);
        for (size_t i = 0; i < count; i++)
            list_pairs(list, &used, from[i], i + 1);
        qsort(list, used, sizeof *list, joined_compare);
        size_t keys = 0;
        for (size_t i = 0; i < used; i++)
            keys += i == 0 || !tc_text_equal(list[i - 1].pair.key, list[i].pair.key);
        struct tc_metadata joined = {.capacity = keys};
        joined.pairs = tc_arena_array(arena, keys, sizeof *joined.pairs, error);
        ok = joined.pairs != NULL;
        if (ok) {
            keep_first(&joined, list, used, conflicts);
            *into = joined;
        }
    }
    tc_arena_release(&scratch);
    return ok;
}

void tc_metadata_remove(struct tc_metadata *metadata, struct tc_text key) {
    size_t place = pair_place(metadata, key);
    if (!pair_is_at(metadata, place, key))
        return;
    metadata->count--;
    memmove(metadata->pairs + place, metadata->pairs + place + 1,
            (metadata->count - place) * sizeof *metadata->pairs);
}

void tc_metadata_remove_prefix(struct tc_metadata *metadata, struct tc_text prefix) {
    size_t kept = 0;
    for (size_t i = 0; i < metadata->count; i++)
        if (!tc_text_starts(metadata->pairs[i].key, prefix))
            metadata->pairs[kept++] = metadata->pairs[i];
    metadata->count = kept;
}

void tc_table_init(struct tc_table *table, struct tc_arena *arena, uint64_t max_tensors) {
    *table = (struct tc_table){.arena = arena, .max_tensors = max_tensors};
    /* A secret key: names chosen to collide would make the index a list. It
     * never shows in any output. Without entropy a fixed key still works. */
    if (getrandom(table->hash_key, sizeof table->hash_key, GRND_NONBLOCK) < 0)
        memset(table->hash_key, 0x5A, sizeof table->hash_key);
}

void tc_table_release(struct tc_table *table) {
    free(table->tensors);
    free(table->slots);
    table->tensors = NULL;
    table->slots = NULL;
    table->count = table->capacity = table->slot_count = 0;
}

static size_t slot_of(const struct tc_table *table, struct tc_text name) {
    uint64_t hash = tc_shorthash(table->hash_key, name.bytes, name.length);
    size_t mask = table->slot_count - 1;
    size_t slot = (size_t)hash & mask;
    while (table->slots[slot] && !tc_text_equal(table->tensors[table->slots[slot] - 1].name, name))
        slot = (slot + 1) & mask;
    return slot;
}

static void index_all(struct tc_table *table) {
    memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++)
        table->slots[slot_of(table, table->tensors[i].name)] = (uint32_t)(i + 1);
}

static bool table_grow(struct tc_table *table, struct tc_error *error) {
    size_t capacity = table->capacity ? table->capacity + table->capacity / 2 : 16;
    if (!tc_arena_charge(table->arena, (capacity - table->capacity) * sizeof *table->tensors,
                         error))
        return false;
    struct tc_tensor *tensors = reallocarray(table->tensors, capacity, sizeof *tensors);
    if (!tensors)
        return tc_fail_memory(error);
    table->tensors = tensors;
    table->capacity = capacity;
    if (capacity * 3 / 2 <= table->slot_count)
        return true;
    size_t slot_count = table->slot_count ? table->slot_count * 2 : 32;
    if (!tc_arena_charge(table->arena, (slot_count - table->slot_count) * sizeof *table->slots,
                         error))
        return false;
    uint32_t *slots = reallocarray(table->slots, slot_count, sizeof *slots);
    if (!slots)
        return tc_fail_memory(error);
    table->slots = slots;
    table->slot_count = slot_count;
    index_all(table);
    return true;
}

bool tc_name_check(struct tc_text name, struct tc_error *error) {
    if (name.length > TC_MAX_NAME_BYTES) {
        tc_fail(error, TC_UNSAFE, "name-limit", "a tensor's name is too long (%zu bytes, limit %u)",
                name.length, TC_MAX_NAME_BYTES);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    if (name.length && memchr(name.bytes, '\0', name.length))
        return tc_fail(error, TC_INVALID, "name-nul", "a tensor's name holds a NUL character");
    if (!tc_utf8_valid(name))
        return tc_fail(error, TC_INVALID, "name-utf8", "a tensor's name is not valid UTF-8");
    return true;
}

static bool fail_duplicate(struct tc_text name, struct tc_error *error) {
    tc_fail(error, TC_INVALID, "duplicate-name", "the name occurs twice");
    return tc_error_in_tensor(error, name.bytes, name.length);
}

bool tc_table_add(struct tc_table *table, const struct tc_tensor *tensor, struct tc_error *error) {
    if (!tc_name_check(tensor->name, error))
        return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    if (table->count >= table->max_tensors || table->count >= UINT32_MAX - 1) {
        tc_fail(error, TC_UNSAFE, "tensor-limit", "more than %llu tensors",
                (unsigned long long)table->max_tensors);
        return tc_error_hint(error, "raise the limit with --max-tensors if you trust this file");
    }
    if (table->count == table->capacity && !table_grow(table, error))
        return false;
    size_t slot = slot_of(table, tensor->name);
    if (table->slots[slot])
        return fail_duplicate(tensor->name, error);
    table->tensors[table->count] = *tensor;
    table->slots[slot] = (uint32_t)++table->count;
    return true;
}

bool tc_table_rename(struct tc_table *table, const struct tc_text *names, struct tc_error *error) {
    if (table->count)
        memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++) {
        if (!tc_name_check(names[i], error))
            return tc_error_in_tensor(error, names[i].bytes, names[i].length);
        size_t slot = slot_of(table, names[i]);
        if (table->slots[slot])
            return fail_duplicate(names[i], error);
        table->tensors[i].name = names[i];
        table->slots[slot] = (uint32_t)(i + 1);
    }
    return true;
}

struct tc_tensor *tc_table_find(const struct tc_table *table, struct tc_text name) {
    if (table->count == 0)
        return NULL;
    uint32_t position = table->slots[slot_of(table, name)];
    return position ? &table->tensors[position - 1] : NULL;
}

static int offset_compare(const void *a, const void *b, void *tensors) {
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    uint64_t x = ((const struct tc_tensor *)tensors)[i].offset;
    uint64_t y = ((const struct tc_tensor *)tensors)[j].offset;
    if (x != y)
        return x < y ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Moves tensors so that place i holds what was at order[i], along the cycles
 * of the permutation: no second copy of a large table. Destroys order. */
static void permute(struct tc_tensor *tensors, uint32_t *order, size_t count) {
    for (size_t start = 0; start < count; start++) {
        if (order[start] == UINT32_MAX)
            continue;
        struct tc_tensor first = tensors[start];
        size_t at = start;
        for (;;) {
            size_t from = order[at];
            order[at] = UINT32_MAX;
            if (from == start)
                break;
            tensors[at] = tensors[from];
            at = from;
        }
        tensors[at] = first;
    }
}

bool tc_table_hint(const struct tc_table *table, struct tc_text name, struct tc_error *error,
                   const char *otherwise) {
    struct tc_near near;
    tc_near_init(&near, name);
    for (size_t i = 0; i < table->count; i++)
        tc_near_try(&near, table->tensors[i].name);
    return tc_near_hint(&near, error, otherwise);
}

bool tc_table_sort(struct tc_table *table, struct tc_error *error) {
    size_t sorted = 1;
    while (sorted < table->count &&
           table->tensors[sorted - 1].offset <= table->tensors[sorted].offset)
        sorted++;
    if (sorted >= table->count)
        return true;
    uint32_t *order = malloc(table->count * sizeof *order);
    if (!order)
        return tc_fail_memory(error);
    for (size_t i = 0; i < table->count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, table->count, sizeof *order, offset_compare, table->tensors);
    permute(table->tensors, order, table->count);
    free(order);
    index_all(table);
    return true;
}

void tc_table_tie(struct tc_table *table, size_t first, size_t other) {
    struct tc_tensor *tensor = &table->tensors[first];
    if (!tensor->tie)
        tensor->tie = (uint32_t)first + 1;
    table->tensors[other].tie = tensor->tie;
}

size_t tc_table_source(const struct tc_table *table, size_t position) {
    uint32_t tie = table->tensors[position].tie;
    return tie ? tie - 1 : position;
}

bool tc_table_is_sequential(const struct tc_table *table) {
    for (size_t i = 0; i < table->count; i++)
        if (table->tensors[i].sequential)
            return true;
    return false;
}

bool tc_shape_equal(const uint64_t *a, unsigned a_rank, const uint64_t *b, unsigned b_rank) {
    return a_rank == b_rank && (a_rank == 0 || memcmp(a, b, a_rank * sizeof *a) == 0);
}

bool tc_shape_measure(enum tc_dtype dtype, const uint64_t *shape, unsigned rank, uint64_t *count,
                      uint64_t *nbytes, struct tc_error *error) {
    uint64_t product = 1;
    bool zero = false;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] > INT64_MAX)
            return tc_fail(error, TC_INVALID, "shape-overflow", "a dimension is too large (%llu)",
                           (unsigned long long)shape[i]);
        if (shape[i] == 0)
            zero = true;
        else if (!tc_mul(product, shape[i], &product))
            goto overflow;
    }
    if (tc_dtype_packed(dtype) && !zero) {
        if (product > UINT64_MAX / 8)
            goto overflow;
        if (!tc_dtype_nbytes(dtype, product, &bytes))
            return tc_fail(error, TC_INVALID, "packed-shape",
                           "%llu elements of %s do not fill whole bytes",
                           (unsigned long long)product, tc_dtype_name(dtype));
    } else if (!tc_mul(product, (tc_dtype_bits(dtype) + 7) / 8, &bytes)) {
        goto overflow;
    }
    if (bytes > INT64_MAX)
        goto overflow;
    *count = zero ? 0 : product;
    *nbytes = zero ? 0 : bytes;
    return true;
overflow:
    return tc_fail(error, TC_INVALID, "shape-overflow", "the size of its shape overflows 64 bits");
}

void tc_shape_print(struct tc_buffer *buffer, const uint64_t *shape, unsigned rank) {
    tc_buffer_add(buffer, "[", 1);
    for (unsigned i = 0; i < rank; i++) {
        if (i)
            tc_buffer_add(buffer, ",", 1);
        tc_buffer_add_number(buffer, shape[i]);
    }
    tc_buffer_add(buffer, "]", 1);
}

static const struct tc_sparse_layout layouts[] = {
    {"coo", {"indices", "values", "shape"}, 3},
    {"csr", {"crow_indices", "col_indices", "values", "shape"}, 4},
    {"csc", {"ccol_indices", "row_indices", "values", "shape"}, 4},
    {"bsr", {"crow_indices", "col_indices", "values", "shape"}, 4},
    {"bsc", {"ccol_indices", "row_indices", "values", "shape"}, 4},
};

const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (tc_text_equal(name, tc_text_of(layouts[i].name)))
            return &layouts[i];
    return NULL;
}

static const struct tc_text *role_of(const struct tc_tensor *tensor, struct tc_text parent) {
    const struct tc_text *of = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_parent"));
    if (!of || !tc_text_equal(*of, parent))
        return NULL;
    return tc_metadata_find(tensor->metadata, TC_TEXT("sparse_role"));
}

/* The part of a sparse tensor in this role, or NULL. */
static const struct tc_tensor *find_part(const struct tc_table *table, struct tc_text parent,
                                         const char *role) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, parent);
    tc_buffer_addf(&name, ".%s", role);
    const struct tc_tensor *part =
        name.failed ? NULL : tc_table_find(table, (struct tc_text){name.bytes, name.length});
    tc_buffer_release(&name);
    const struct tc_text *found = part ? role_of(part, parent) : NULL;
    return found && tc_text_equal(*found, tc_text_of(role)) ? part : NULL;
}

const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index) {
    const struct tc_sparse_layout *layout = tc_sparse_layout(sparse->layout);
    return layout && index < layout->parts ? find_part(table, sparse->parent, layout->roles[index])
                                           : NULL;
}

bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse) {
    const struct tc_text *parent = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_parent"));
    const struct tc_text *role = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_role"));
    const struct tc_text *named = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_layout"));
    if (!parent || !role)
        return false;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct tc_sparse_layout *layout = &layouts[i];
        if (named && !tc_text_equal(*named, tc_text_of(layout->name)))
            continue;
        bool mine = false;
        bool complete = true;
        for (unsigned r = 0; r < layout->parts && complete; r++) {
            mine |= tc_text_equal(*role, tc_text_of(layout->roles[r]));
            complete = find_part(table, *parent, layout->roles[r]) != NULL;
        }
        if (mine && complete) {
            *sparse = (struct tc_sparse){*parent, *role, tc_text_of(layout->name)};
            return true;
        }
    }
    return false;
}

struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena, const char *layout,
                                       struct tc_text parent, const char *role,
                                       struct tc_error *error) {
    struct tc_metadata *metadata = tc_arena_alloc(arena, sizeof *metadata, error);
    bool ok =
        metadata &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_layout"), tc_text_of(layout), error) &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_parent"), parent, error) &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_role"), tc_text_of(role), error);
    return ok ? metadata : NULL;
}
