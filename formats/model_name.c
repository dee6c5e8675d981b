#include "formats/model_name.h"

#include <string.h>
#include <strings.h>

#include "formats/registry.h"

#define INDEX ".index"
#define JSON ".json"

static const struct {
    const char *stem;
    enum model_family family;
} families[] = {
    {"model", MODEL_FAMILY_TRANSFORMERS},
    {"pytorch_model", MODEL_FAMILY_TRANSFORMERS},
    {"tf_model", MODEL_FAMILY_TRANSFORMERS},
    {"flax_model", MODEL_FAMILY_TRANSFORMERS},
    {"rust_model", MODEL_FAMILY_TRANSFORMERS},
    {"consolidated", MODEL_FAMILY_TRANSFORMERS},
    {"diffusion_pytorch_model", MODEL_FAMILY_DIFFUSERS},
    {"diffusion_flax_model", MODEL_FAMILY_DIFFUSERS},
    {"adapter_model", MODEL_FAMILY_ADAPTER},
};

static enum model_family family_of(struct tc_text stem) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (tc_text_equal(stem, tc_text_of(families[i].stem)))
            return families[i].family;
    return MODEL_FAMILY_NONE;
}

/* Removes an ending in any case; something must be left before it. */
static bool strip(struct tc_text *name, struct tc_text ending) {
    if (name->length <= ending.length ||
        strncasecmp(name->bytes + name->length - ending.length, ending.bytes, ending.length) != 0)
        return false;
    name->length -= ending.length;
    return true;
}

/* Removes ".WORD" from the end, where something is left before it. */
static bool strip_word(struct tc_text *name, struct tc_text *word) {
    size_t dot = name->length;
    while (dot > 0 && name->bytes[dot - 1] != '.')
        dot--;
    if (dot < 2 || dot == name->length)
        return false;
    *word = (struct tc_text){name->bytes + dot, name->length - dot};
    name->length = dot - 1;
    return true;
}

/* Removes digits from the end; at most nine, so that they fit. */
static bool strip_number(struct tc_text *name, uint32_t *number) {
    size_t from = name->length;
    while (from > 0 && name->bytes[from - 1] >= '0' && name->bytes[from - 1] <= '9')
        from--;
    if (from == name->length || name->length - from > 9)
        return false;
    *number = 0;
    for (size_t i = from; i < name->length; i++)
        *number = *number * 10 + (uint32_t)(name->bytes[i] - '0');
    name->length = from;
    return true;
}

/* Removes "-N-of-M" from the end. */
static bool strip_shard(struct tc_text *name, uint32_t *number, uint32_t *total) {
    struct tc_text rest = *name;
    if (!strip_number(&rest, total) || !strip(&rest, TC_TEXT("-of-")) ||
        !strip_number(&rest, number) || !strip(&rest, TC_TEXT("-")))
        return false;
    *name = rest;
    return true;
}

/* Removes "shard-N-" from the start. */
static bool strip_rank(struct tc_text *name) {
    const struct tc_text prefix = TC_TEXT("shard-");
    size_t at = prefix.length;
    if (!tc_text_starts(*name, prefix))
        return false;
    while (at < name->length && name->bytes[at] >= '0' && name->bytes[at] <= '9')
        at++;
    if (at == prefix.length || at + 1 >= name->length || name->bytes[at] != '-')
        return false;
    name->bytes += at + 1;
    name->length -= at + 1;
    return true;
}

/* Removes the extension of a format that tconv knows, the longest that fits. */
static const struct tc_backend *strip_extension(struct tc_text *name, struct tc_text *extension) {
    const struct tc_backend *found = NULL;
    struct tc_text best = *name;
    for (size_t i = 0; tc_registry[i]; i++)
        for (const char *const *known = tc_registry[i]->extensions; *known; known++) {
            struct tc_text rest = *name;
            if (strip(&rest, tc_text_of(*known)) && rest.length < best.length) {
                best = rest;
                found = tc_registry[i];
            }
        }
    *extension = (struct tc_text){name->bytes + best.length, name->length - best.length};
    *name = best;
    return found;
}

/* Removes the extension of weights that tconv does not read: Keras and Flax. */
static bool strip_foreign(struct tc_text *name, struct tc_text *extension) {
    static const char *const known[] = {".h5", ".msgpack", ".keras"};
    struct tc_text whole = *name;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strip(name, tc_text_of(known[i]))) {
            *extension = (struct tc_text){whole.bytes + name->length, whole.length - name->length};
            return true;
        }
    return false;
}

/* Removes ".index.json" or ".index.VARIANT.json". */
static bool strip_index(struct tc_text *name, struct tc_text *variant) {
    struct tc_text rest = *name;
    struct tc_text word;
    if (!strip(&rest, TC_TEXT(JSON)))
        return false;
    if (strip(&rest, TC_TEXT(INDEX))) {
        *name = rest;
        return true;
    }
    if (!strip_word(&rest, &word) || !strip(&rest, TC_TEXT(INDEX)))
        return false;
    *variant = word;
    *name = rest;
    return true;
}

static bool is_number(struct tc_text word) {
    for (size_t i = 0; i < word.length; i++)
        if (word.bytes[i] < '0' || word.bytes[i] > '9')
            return false;
    return true;
}

static void take_variant(struct model_name *parsed, struct tc_text wanted) {
    struct tc_text rest = parsed->stem;
    struct tc_text word;
    uint32_t number;
    uint32_t total;
    if (parsed->variant.bytes || !strip_word(&rest, &word))
        return;
    struct tc_text stem = rest;
    if (!parsed->is_shard)
        strip_shard(&stem, &number, &total);
    /* A number is no variant: consolidated.00.pth and consolidated.01.pth are slices of one model.
     */
    if ((family_of(stem) && !is_number(word)) || (wanted.bytes && tc_text_equal(word, wanted))) {
        parsed->variant = word;
        parsed->stem = rest;
    }
}

struct model_name model_name_parse(struct tc_text name, struct tc_text variant) {
    struct model_name parsed = {.stem = name};
    parsed.is_index = strip_index(&parsed.stem, &parsed.variant);
    parsed.backend = strip_extension(&parsed.stem, &parsed.extension);
    parsed.is_weights =
        parsed.backend || strip_foreign(&parsed.stem, &parsed.extension) || parsed.is_index;
    /* An index that does not say what its shards are is one all the same. */
    if (parsed.is_index && !parsed.backend)
        parsed.backend = tc_registry_for_path("x" INDEX JSON);
    if (!parsed.is_index)
        parsed.is_shard = strip_shard(&parsed.stem, &parsed.number, &parsed.total);
    take_variant(&parsed, variant);
    if (!parsed.is_index && !parsed.is_shard)
        parsed.is_shard = strip_shard(&parsed.stem, &parsed.number, &parsed.total);
    parsed.is_piece = parsed.is_shard && strip_rank(&parsed.stem);
    parsed.family = family_of(parsed.stem);
    return parsed;
}

bool model_name_is_training(struct tc_text name) {
    static const char *const starts[] = {"training_args", "optimizer", "scheduler",
                                         "rng_state",     "scaler",    "random_states"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (tc_text_starts(name, tc_text_of(starts[i])))
            return true;
    return false;
}

bool model_name_same_weights(const struct model_name *a, const struct model_name *b) {
    return (a->family && a->family == b->family) || tc_text_equal(a->stem, b->stem);
}

void model_name_converted(const struct model_name *name, const char *stem,
                          const struct tc_backend *target, struct tc_buffer *converted) {
    static const char *const stems[] = {[MODEL_FAMILY_TRANSFORMERS] = "model",
                                        [MODEL_FAMILY_DIFFUSERS] = "diffusion_pytorch_model",
                                        [MODEL_FAMILY_ADAPTER] = "adapter_model"};
    bool torch = target == &tc_backend_pt;
    if (stem)
        tc_buffer_add_string(converted, stem);
    else if (name->family)
        tc_buffer_add_string(converted, torch && name->family == MODEL_FAMILY_TRANSFORMERS
                                            ? "pytorch_model"
                                            : stems[name->family]);
    else
        tc_buffer_add_text(converted, name->stem);
    if (name->variant.bytes) {
        tc_buffer_add_string(converted, ".");
        tc_buffer_add_text(converted, name->variant);
    }
    if (torch && name->family)
        tc_buffer_add_string(converted, ".bin");
    else if (target == name->backend && name->extension.length)
        tc_buffer_add_text(converted, name->extension);
    else
        tc_buffer_add_string(converted, target->extensions[0]);
}
