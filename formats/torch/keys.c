/*
 * The names of a checkpoint's values: dict keys and list indices joined with dots. A
 * key that is neither a string nor an integer is called ?N, where N is its position in
 * the dict. Where two paths give one name, the later gets NAME~1.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

/* Names */

/* Appends text in which a lone surrogate, which the pickle machine has escaped as
 * `\\udXXX`, is replaced by "?". */
static void add_without_surrogates(struct tc_buffer *to, struct tc_text text) {
    for (size_t at = 0; at < text.length;) {
        bool half = text.length - at >= 6 && memcmp(text.bytes + at, "\\ud", 3) == 0;
        tc_buffer_add(to, half ? "?" : text.bytes + at, 1);
        at += half ? 6 : 1;
    }
}

void torch_add_key(struct torch_walk *walk, const struct pickle_node *key, uint32_t place) {
    struct tc_buffer *path = &walk->path;
    size_t start = path->length;
    if (key->kind == PICKLE_INT)
        tc_buffer_addf(path, "%lld", (long long)key->integer);
    else if (key->kind != PICKLE_TEXT && key->kind != PICKLE_LONG)
        tc_buffer_addf(path, "?%u", place);
    else if (!key->surrogates)
        tc_buffer_add_text(path, pickle_text(key));
    else {
        walk->surrogates++;
        add_without_surrogates(path, pickle_text(key));
    }
    for (size_t i = start; walk->torch->bars && i < path->length; i++)
        if (path->bytes[i] == '|')
            path->bytes[i] = '.';
}

static struct tc_text join(struct torch_walk *walk, struct tc_text name, const char *ending) {
    size_t extra = strlen(ending);
    char *joined = tc_arena_pack(torch_walk_arena(walk), name.length + extra + 1, 1, walk->error);
    if (!joined)
        return (struct tc_text){NULL, 0};
    if (name.length)
        memcpy(joined, name.bytes, name.length);
    memcpy(joined + name.length, ending, extra);
    return (struct tc_text){joined, name.length + extra};
}

static bool is_taken(const struct torch_walk *walk, struct tc_buffer *name) {
    struct tc_text text = {name->length ? name->bytes : "", name->length};
    return tc_table_find(&walk->torch->reader->table, text) ||
           tc_name_map_find(&walk->torch->groups, text);
}

static bool any_taken(const struct torch_walk *walk, struct tc_buffer *name,
                      const char *const *endings, size_t count) {
    size_t length = name->length;
    bool taken = is_taken(walk, name);
    for (size_t i = 0; i < count && !taken; i++) {
        tc_buffer_add_string(name, endings[i]);
        taken = !name->failed && is_taken(walk, name);
        name->length = length;
    }
    return taken;
}

/* The last number that was tried for a name. It is kept, so that a thousand tensors of
 * one name take a thousand tries and not a million. */
static uint32_t *find_number(struct torch_walk *walk, struct tc_name_map *numbers,
                             struct tc_text name) {
    uint32_t *number = tc_name_map_find(numbers, name);
    if (number)
        return number;
    struct tc_text copy = join(walk, name, "");
    if (!copy.bytes || !tc_name_add(numbers, copy, 0, TC_MAX_NAMES, walk->error))
        return NULL;
    return &numbers->entries[numbers->count - 1].number;
}

bool torch_take_name(struct torch_walk *walk, const char *const *endings, size_t count,
                     struct tc_text *name) {
    struct tc_text path = torch_walk_path(walk);
    struct tc_buffer tried = {0};
    tc_buffer_add_text(&tried, path);
    bool renamed = any_taken(walk, &tried, endings, count);
    if (renamed) {
        uint32_t *number = find_number(walk, &walk->torch->numbers, path);
        do {
            tried.length = path.length;
            tc_buffer_addf(&tried, "~%u", number ? ++*number : 0);
        } while (number && !tried.failed && any_taken(walk, &tried, endings, count));
        walk->renamed++;
    }
    *name = tc_buffer_ok(&tried, walk->error) && walk->error->class == TC_OK
                ? join(walk, (struct tc_text){tried.bytes, tried.length}, "")
                : (struct tc_text){NULL, 0};
    if (walk->renamed == 1 && !walk->renamed_first.bytes)
        walk->renamed_first = *name;
    tc_buffer_release(&tried);
    return name->bytes != NULL &&
           torch_note_taken(walk->torch, walk->current, *name, renamed, walk->error);
}

bool torch_keep_name(struct torch_walk *walk, struct tc_text name) {
    return tc_name_add(&walk->torch->groups, name, 0, TC_MAX_NAMES, walk->error);
}

/* Metadata */

static int compare_pairs(const void *a, const void *b) {
    const struct tc_pair *x = a;
    const struct tc_pair *y = b;
    return tc_text_compare(x->key, y->key);
}

static bool any_twice(const struct tc_metadata *metadata, struct tc_error *error, bool *twice) {
    struct tc_pair *sorted = calloc(metadata->count + 1, sizeof *sorted);
    if (!sorted)
        return tc_fail_memory(error);
    memcpy(sorted, metadata->pairs, metadata->count * sizeof *sorted);
    qsort(sorted, metadata->count, sizeof *sorted, compare_pairs);
    for (size_t i = 1; i < metadata->count && !*twice; i++)
        *twice = tc_text_equal(sorted[i - 1].key, sorted[i].key);
    free(sorted);
    return true;
}

static bool rename_pair(struct torch_walk *walk, struct tc_name_map *keys,
                        struct tc_name_map *numbers, struct tc_pair *pair) {
    struct tc_buffer tried = {0};
    bool renamed = tc_name_map_find(keys, pair->key) != NULL;
    uint32_t *number = renamed ? find_number(walk, numbers, pair->key) : NULL;
    struct tc_text text = pair->key;
    while (number && !tried.failed && tc_name_map_find(keys, text)) {
        tried.length = 0;
        tc_buffer_add_text(&tried, pair->key);
        tc_buffer_addf(&tried, "~%u", ++*number);
        text = (struct tc_text){tried.bytes, tried.length};
    }
    bool ok = tc_buffer_ok(&tried, walk->error) && (!renamed || number);
    if (ok && renamed)
        ok = (pair->key = join(walk, text, "")).bytes != NULL;
    tc_buffer_release(&tried);
    return ok && tc_name_add(keys, pair->key, 0, TC_MAX_NAMES, walk->error);
}

bool torch_settle_metadata(struct torch_walk *walk) {
    struct tc_metadata *metadata = &walk->torch->reader->table.metadata;
    walk->torch->reader->leaves = metadata->count > 0;
    bool twice = false;
    if (metadata->count < 2)
        return true;
    if (!tc_arena_charge(torch_walk_arena(walk), metadata->count * sizeof(struct tc_pair),
                         walk->error) ||
        !any_twice(metadata, walk->error, &twice))
        return false;
    if (!twice)
        return true;
    struct tc_name_map keys;
    struct tc_name_map numbers;
    tc_name_map_init(&keys, torch_walk_arena(walk));
    tc_name_map_init(&numbers, torch_walk_arena(walk));
    bool ok = true;
    for (size_t i = 0; i < metadata->count && ok; i++)
        ok = rename_pair(walk, &keys, &numbers, &metadata->pairs[i]);
    tc_name_map_release(&keys);
    tc_name_map_release(&numbers);
    return ok;
}
