#include "core/format/block_scales.h"

#include <string.h>

/* The block of DeepSeek-V3, which later models have taken over. */
#define USUAL_BLOCK 128u
/* Elements of a block of the OCP microscaling formats, and of NVFP4. */
#define MX_BLOCK 32u
#define NV_BLOCK 16u

struct finder {
    const struct tc_block_scales *scales;
    struct tc_quant_config *config;
    struct tc_error *error;
};

bool tc_block_scales_init(struct tc_block_scales *scales, struct tc_reader *const *readers,
                          size_t count, struct tc_arena *arena, struct tc_error *error) {
    *scales = (struct tc_block_scales){.readers = readers, .count = count};
    scales->configs = tc_arena_array(arena, count, sizeof *scales->configs, error);
    scales->compressed = tc_arena_array(arena, count, sizeof *scales->compressed, error);
    if (!scales->configs || !scales->compressed)
        return false;
    for (size_t r = 0; r < count; r++) {
        const struct tc_table *table = &readers[r]->table;
        if (!tc_quant_config_read(readers[r], &scales->configs[r], arena, error))
            return false;
        scales->compressed[r] = scales->configs[r].method == TC_QUANT_COMPRESSED;
        for (size_t i = 0; i < table->count && !scales->compressed[r]; i++)
            scales->compressed[r] = tc_text_ends(table->tensors[i].name, TC_TEXT(".weight_packed"));
    }
    return true;
}

/* The tensor called STEM and ENDING, in any of the inputs. */
static struct tc_scaled_part find(const struct finder *finder, struct tc_text stem,
                                  const char *ending) {
    struct tc_scaled_part part = {0};
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, stem);
    tc_buffer_add_string(&name, ending);
    for (size_t r = 0; r < finder->scales->count && !part.tensor && !name.failed; r++) {
        part.reader = finder->scales->readers[r];
        part.tensor = tc_table_find(&part.reader->table, (struct tc_text){name.bytes, name.length});
    }
    tc_buffer_release(&name);
    return part;
}

static struct tc_text without(struct tc_text name, const char *ending) {
    return (struct tc_text){name.bytes, name.length - strlen(ending)};
}

static bool ends(struct tc_text name, const char *ending) {
    return tc_text_ends(name, tc_text_of(ending));
}

static bool fail(const struct finder *finder, struct tc_scaled_part part, const char *code,
                 const char *what) {
    tc_fail(finder->error, TC_INVALID, code, "%s", what);
    tc_error_in_tensor(finder->error, part.tensor->name.bytes, part.tensor->name.length);
    return tc_error_in_file(finder->error, part.reader->input->path);
}

static bool fail_missing(const struct finder *finder, struct tc_scaled_part weight,
                         const char *what) {
    fail(finder, weight, "missing-scale", what);
    return tc_error_hint(finder->error,
                         "does its scale lie in a file that was not given? name all of them");
}

static bool misfit(const struct finder *finder, struct tc_scaled_part scale, const char *expected) {
    struct tc_buffer text = {0};
    tc_buffer_addf(&text, "this scale does not fit its weight: %s", expected);
    fail(finder, scale, "scale-shape", text.failed ? expected : text.bytes);
    tc_buffer_release(&text);
    return false;
}

static uint64_t blocks_of(uint64_t size, uint64_t block) {
    return block ? size / block + (size % block != 0) : 1;
}

/* Whether the scale has one entry a block of the weight, whose last dimension has `columns`
 * elements; leading dimensions have blocks of their own. */
static bool is_grid(const struct tc_scaled *scaled, uint64_t columns) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    const struct tc_tensor *scale = scaled->scale.tensor;
    if (scale->rank != weight->rank || weight->rank < 2)
        return false;
    unsigned last = weight->rank - 1u;
    for (unsigned i = 0; i + 1 < last; i++)
        if (scale->shape[i] != weight->shape[i])
            return false;
    return scale->shape[last - 1] == blocks_of(weight->shape[last - 1], scaled->block[0]) &&
           scale->shape[last] == blocks_of(columns, scaled->block[1]);
}

static bool is_single(const struct tc_tensor *scale) {
    for (unsigned i = 0; i < scale->rank; i++)
        if (scale->shape[i] != 1)
            return false;
    return true;
}

static bool is_real(enum tc_dtype dtype) {
    return dtype == TC_F32 || dtype == TC_BF16 || dtype == TC_F16;
}

static bool check_grid(const struct finder *finder, const struct tc_scaled *scaled,
                       uint64_t columns) {
    struct tc_buffer text = {0};
    if (is_grid(scaled, columns))
        return true;
    const struct tc_tensor *weight = scaled->weight.tensor;
    tc_buffer_addf(&text, "one a block of %llu x %llu is expected",
                   (unsigned long long)scaled->block[0], (unsigned long long)scaled->block[1]);
    if (weight->rank >= 2)
        tc_buffer_addf(
            &text, ", [%llu,%llu] for [%llu,%llu]",
            (unsigned long long)blocks_of(weight->shape[weight->rank - 2], scaled->block[0]),
            (unsigned long long)blocks_of(columns, scaled->block[1]),
            (unsigned long long)weight->shape[weight->rank - 2], (unsigned long long)columns);
    misfit(finder, scaled->scale, text.failed ? "another shape is expected" : text.bytes);
    tc_buffer_release(&text);
    return false;
}

/* Blocks of one row by `columns` elements. */
static void row_blocks(struct tc_scaled *scaled, uint64_t columns) {
    scaled->block[0] = 1;
    scaled->block[1] = columns;
}

/* transformers and modelopt give weights the dtype that the model computes in; compressed-tensors
 * and DeepSeek's own programs give BF16. */
static void take_model_dtype(const struct finder *finder, struct tc_scaled *scaled,
                             enum tc_quant_method method) {
    if (finder->config->method == method && finder->config->dtype != TC_NONE)
        scaled->dtype = finder->config->dtype;
}

/* MXFP8: U8 exponents for 32 elements each. */
static bool take_mxfp8(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    scaled->kind = "MXFP8";
    scaled->arithmetic = TC_SCALE_EXPONENT;
    take_model_dtype(finder, scaled, TC_QUANT_MXFP8);
    take_model_dtype(finder, scaled, TC_QUANT_MODELOPT);
    row_blocks(scaled, MX_BLOCK);
    if (weight->rank && weight->shape[weight->rank - 1u] % MX_BLOCK != 0)
        return misfit(finder, scaled->scale, "rows of whole blocks of 32 are expected");
    return check_grid(finder, scaled, weight->rank ? weight->shape[weight->rank - 1u] : 0);
}

/* Whether two sizes of blocks that give the same grid divide the weight differently. */
static bool divide_differently(const struct tc_scaled *scaled, const uint64_t *one,
                               const uint64_t *other) {
    const struct tc_tensor *scale = scaled->scale.tensor;
    for (unsigned i = 0; i < 2; i++)
        if (one[i] != other[i] && scale->shape[scale->rank - 2u + i] > 1)
            return true;
    return false;
}

/* The block whose grid the scale is, of those that the config gives, or the usual one. */
static bool take_grid(const struct finder *finder, struct tc_scaled *scaled, uint64_t columns) {
    static const uint64_t usual[1][2] = {{USUAL_BLOCK, USUAL_BLOCK}};
    const struct tc_quant_config *config = finder->config;
    unsigned count = config->block_count ? config->block_count : 1;
    const uint64_t(*blocks)[2] = config->block_count ? config->blocks : usual;
    const uint64_t *found = NULL;
    for (unsigned i = 0; i < count; i++) {
        memcpy(scaled->block, blocks[i], sizeof scaled->block);
        if (!is_grid(scaled, columns))
            continue;
        if (found && divide_differently(scaled, found, blocks[i]))
            return fail(finder, scaled->scale, "ambiguous-scale",
                        "blocks of two sizes that the config gives would fit, and nobody says "
                        "which");
        found = blocks[i];
    }
    memcpy(scaled->block, found ? found : blocks[0], sizeof scaled->block);
    return check_grid(finder, scaled, columns);
}

/* N and N_scale_inv: a grid of blocks, or one scale where no size of blocks is given. */
static bool take_inverse(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    const struct tc_tensor *scale = scaled->scale.tensor;
    if (scale->dtype == TC_U8)
        return take_mxfp8(finder, scaled);
    if (!is_real(scale->dtype))
        return misfit(finder, scaled->scale, "F32, BF16 or F16 is expected");
    take_model_dtype(finder, scaled, TC_QUANT_FP8);
    if (scale->rank <= 1 && is_single(scale) && !finder->config->block_count) {
        scaled->kind = "FP8 with one scale";
        scaled->block[0] = scaled->block[1] = 0;
        return true;
    }
    scaled->kind = "FP8 blocks";
    return take_grid(finder, scaled, weight->rank ? weight->shape[weight->rank - 1u] : 0);
}

/* M.weight and M.weight_scale: compressed-tensors or modelopt. */
static bool take_scale(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    const struct tc_tensor *scale = scaled->scale.tensor;
    enum tc_quant_method method = finder->config->method;
    uint64_t columns = weight->rank ? weight->shape[weight->rank - 1u] : 0;
    if (scale->dtype == TC_U8)
        return take_mxfp8(finder, scaled);
    if (!is_real(scale->dtype))
        return misfit(finder, scaled->scale, "F32, BF16, F16 or U8 is expected");
    /* Without a config: compressed-tensors has no scales of rank 0, modelopt no others. */
    if (method == TC_QUANT_MODELOPT || (method != TC_QUANT_COMPRESSED && scale->rank == 0)) {
        scaled->kind = "FP8 with one scale (modelopt)";
        scaled->arithmetic = TC_SCALE_ROUNDS_FIRST;
        take_model_dtype(finder, scaled, TC_QUANT_MODELOPT);
        return is_single(scale) || misfit(finder, scaled->scale, "one number is expected");
    }
    scaled->arithmetic = TC_SCALE_OWN_PRODUCT;
    scaled->kind = "FP8 (compressed-tensors)";
    if (is_single(scale) && scale->rank <= 2)
        return true;
    row_blocks(scaled, 0);
    if (is_grid(scaled, columns))
        return true;
    return take_grid(finder, scaled, columns);
}

/* DeepSeek-V4: M.weight and M.scale, F8_E8M0. */
static bool take_power(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    uint64_t columns = weight->rank ? weight->shape[weight->rank - 1u] : 0;
    scaled->arithmetic = TC_SCALE_EXPONENT;
    take_model_dtype(finder, scaled, TC_QUANT_FP8);
    if (weight->dtype == TC_F8_E4M3) {
        scaled->kind = "FP8 blocks";
        return take_grid(finder, scaled, columns);
    }
    scaled->kind = "FP4 blocks";
    scaled->codes = TC_CODES_FOUR;
    row_blocks(scaled, MX_BLOCK);
    if (2 * columns % MX_BLOCK != 0 || columns > INT64_MAX / 2)
        return misfit(finder, scaled->scale, "rows of whole blocks of 32 are expected");
    return check_grid(finder, scaled, 2 * columns);
}

/* How many scales there may be for an F8 weight, and which it is. */
enum f8_scale { INVERSE, SCALE, POWER };
static bool find_f8_scale(const struct finder *finder, struct tc_scaled *scaled,
                          enum f8_scale *which, unsigned *count) {
    struct tc_text name = scaled->weight.tensor->name;
    struct tc_scaled_part found[3] = {find(finder, name, "_scale_inv")};
    if (ends(name, ".weight")) {
        found[SCALE] = find(finder, name, "_scale");
        found[POWER] = find(finder, without(name, "weight"), "scale");
        if (found[POWER].tensor && found[POWER].tensor->dtype != TC_F8_E8M0)
            found[POWER].tensor = NULL;
    }
    *count = 0;
    for (int i = INVERSE; i <= POWER; i++)
        if (found[i].tensor) {
            scaled->scale = found[i];
            *which = (enum f8_scale)i;
            ++*count;
        }
    if (*count <= 1)
        return true;
    fail(finder, scaled->weight, "ambiguous-scale",
         "two tensors could be its scales, and nobody says which");
    return tc_error_hint(finder->error, "leave one of them out with --exclude, in a first step");
}

/* Whether the config says that weights of this dtype have scales. */
static bool must_have_scale(const struct finder *finder, const struct tc_tensor *weight) {
    enum tc_quant_method method = finder->config->method;
    return weight->rank >= 2 && method != TC_QUANT_UNKNOWN && method != TC_QUANT_OTHER;
}

/* An F8 weight without a scale, which it lacks unless the config says that it is not quantised. */
static bool take_unscaled(const struct finder *finder, struct tc_scaled_part weight,
                          enum tc_scaled_role *role) {
    bool spared;
    *role = TC_ROLE_NONE;
    if (!must_have_scale(finder, weight.tensor))
        return true;
    if (!tc_quant_config_spares(finder->config, weight.tensor->name, &spared, finder->error))
        return tc_error_in_file(finder->error, weight.reader->input->path);
    if (spared)
        *role = TC_ROLE_SPARED;
    return spared || fail_missing(finder, weight,
                                  "the config says that it is quantised, but it has no scale");
}

static bool take_f8(const struct finder *finder, struct tc_scaled *scaled,
                    enum tc_scaled_role *role) {
    unsigned count;
    enum f8_scale which = INVERSE;
    if (!find_f8_scale(finder, scaled, &which, &count))
        return false;
    scaled->name = scaled->weight.tensor->name;
    if (!count)
        return take_unscaled(finder, scaled->weight, role);
    *role = TC_ROLE_WEIGHT;
    return which == INVERSE ? take_inverse(finder, scaled)
           : which == SCALE ? take_scale(finder, scaled)
                            : take_power(finder, scaled);
}

/* One number of F32 for the whole weight. */
static bool take_global(const struct finder *finder, struct tc_scaled *scaled, struct tc_text stem,
                        const char *ending) {
    scaled->global = find(finder, stem, ending);
    if (!scaled->global.tensor)
        return fail_missing(finder, scaled->weight, "it has no scale for the whole tensor");
    return (scaled->global.tensor->dtype == TC_F32 && is_single(scaled->global.tensor) &&
            scaled->global.tensor->rank <= 1) ||
           misfit(finder, scaled->global, "one number of F32 is expected");
}

/* Two E2M1 a byte, an F8_E4M3 scale for 16 elements. */
static bool check_nvfp4(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    uint64_t bytes = weight->rank ? weight->shape[weight->rank - 1u] : 0;
    scaled->codes = TC_CODES_FOUR;
    row_blocks(scaled, NV_BLOCK);
    if (bytes > INT64_MAX / 2 || 2 * bytes % NV_BLOCK != 0)
        return misfit(finder, scaled->scale, "rows of whole blocks of 16 are expected");
    return check_grid(finder, scaled, 2 * bytes);
}

/* M.weight U8 with M.weight_scale F8_E4M3 and M.weight_scale_2. */
static bool take_modelopt_nvfp4(const struct finder *finder, struct tc_scaled *scaled,
                                enum tc_scaled_role *role) {
    struct tc_text name = scaled->weight.tensor->name;
    *role = TC_ROLE_NONE;
    if (!ends(name, ".weight"))
        return true;
    scaled->scale = find(finder, name, "_scale");
    bool nvfp4 = scaled->scale.tensor && scaled->scale.tensor->dtype == TC_F8_E4M3;
    if (!nvfp4)
        return true;
    *role = TC_ROLE_WEIGHT;
    scaled->kind = "NVFP4 (modelopt)";
    scaled->arithmetic = TC_SCALE_TIMES_SECOND;
    scaled->name = name;
    take_model_dtype(finder, scaled, TC_QUANT_MODELOPT);
    return take_global(finder, scaled, name, "_scale_2") && check_nvfp4(finder, scaled);
}

/* MXFP4 has 16 bytes for a scale, MXFP6 24. */
static bool take_packed_exponents(const struct finder *finder, struct tc_scaled *scaled) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    const struct tc_tensor *scale = scaled->scale.tensor;
    uint64_t bytes = weight->rank ? weight->shape[weight->rank - 1u] : 0;
    uint64_t groups = scale->rank ? scale->shape[scale->rank - 1u] : 0;
    bool six = groups && bytes / groups == 24;
    scaled->kind = six ? "MXFP6" : "MXFP4";
    scaled->codes = six ? TC_CODES_SIX : TC_CODES_FOUR;
    scaled->arithmetic = TC_SCALE_EXPONENT;
    row_blocks(scaled, MX_BLOCK);
    if (bytes % (six ? 24 : 16) != 0 || bytes > INT64_MAX / 2)
        return misfit(finder, scaled->scale, "16 or 24 bytes of the weight are expected for each");
    return check_grid(finder, scaled, six ? bytes / 3 * 4 : 2 * bytes);
}

/* compressed-tensors: M.weight_packed becomes M.weight. */
static bool take_packed(const struct finder *finder, struct tc_scaled *scaled) {
    struct tc_text stem = without(scaled->weight.tensor->name, "_packed");
    scaled->scale = find(finder, stem, "_scale");
    scaled->name = stem;
    if (!scaled->scale.tensor)
        return fail_missing(finder, scaled->weight, "it has no scale (weight_scale)");
    if (scaled->scale.tensor->dtype == TC_U8)
        return take_packed_exponents(finder, scaled);
    if (scaled->scale.tensor->dtype != TC_F8_E4M3)
        return misfit(finder, scaled->scale, "F8_E4M3 or U8 is expected");
    scaled->kind = "NVFP4 (compressed-tensors)";
    if (!take_global(finder, scaled, stem, "_global_scale"))
        return false;
    scaled->arithmetic = scaled->global.tensor->rank ? TC_SCALE_DIVIDED : TC_SCALE_DIVIDED_BF16;
    return check_nvfp4(finder, scaled);
}

/* gpt-oss: P_blocks and P_scales, whose result is transposed, or P.blocks and P.scales. */
static bool take_gpt_oss(const struct finder *finder, struct tc_scaled *scaled,
                         enum tc_scaled_role *role) {
    const struct tc_tensor *weight = scaled->weight.tensor;
    bool swaps = ends(weight->name, "_blocks");
    struct tc_text stem = without(weight->name, "_blocks");
    scaled->scale = find(finder, stem, swaps ? "_scales" : ".scales");
    bool shaped = weight->rank >= (swaps ? 4 : 2) && weight->shape[weight->rank - 1u] == 16;
    *role = TC_ROLE_NONE;
    if (!scaled->scale.tensor)
        return !(shaped || finder->config->method == TC_QUANT_MXFP4) ||
               fail_missing(finder, scaled->weight, "it has no scales");
    *role = TC_ROLE_WEIGHT;
    scaled->kind = "MXFP4 (gpt-oss)";
    scaled->codes = swaps ? TC_CODES_SWAPS : TC_CODES_FOUR;
    scaled->arithmetic = TC_SCALE_EXPONENT;
    scaled->grouped = true;
    scaled->name = stem;
    row_blocks(scaled, MX_BLOCK);
    if (!shaped || (swaps && weight->rank != 4))
        return fail(finder, scaled->weight, "scale-shape",
                    "blocks of 16 bytes are expected in its last dimension");
    const struct tc_tensor *scale = scaled->scale.tensor;
    return (scale->dtype == TC_U8 && scale->rank + 1 == weight->rank &&
            memcmp(scale->shape, weight->shape, scale->rank * sizeof *scale->shape) == 0) ||
           misfit(finder, scaled->scale, "U8, one for each block is expected");
}

static bool take_weight(const struct finder *finder, struct tc_scaled *scaled,
                        enum tc_scaled_role *role) {
    const struct tc_tensor *tensor = scaled->weight.tensor;
    struct tc_text name = tensor->name;
    *role = TC_ROLE_NONE;
    if (tensor->dtype == TC_F8_E4M3)
        return take_f8(finder, scaled, role);
    if (tensor->dtype == TC_U8 && ends(name, ".weight_packed")) {
        *role = TC_ROLE_WEIGHT;
        return take_packed(finder, scaled);
    }
    if (tensor->dtype == TC_U8 && (ends(name, "_blocks") || ends(name, ".blocks")))
        return take_gpt_oss(finder, scaled, role);
    if (tensor->dtype == TC_U8)
        return take_modelopt_nvfp4(finder, scaled, role);
    if (tensor->dtype == TC_I8 && ends(name, ".weight")) {
        scaled->scale = find(finder, without(name, "weight"), "scale");
        scaled->name = name;
        bool power = scaled->scale.tensor && scaled->scale.tensor->dtype == TC_F8_E8M0;
        *role = power ? TC_ROLE_WEIGHT : TC_ROLE_NONE;
        return !power || take_power(finder, scaled);
    }
    return true;
}

/* The endings of scales, what their weights are called instead, and in which dtypes those are. */
static const struct scale_ending {
    const char *ending;
    const char *weights[2];
    tc_dtype_set dtypes; /* of the weight */
    tc_dtype_set own;    /* of the scale itself */
    bool only_mxfp4;     /* without a weight an error only where the config says so */
} endings[] = {
    {"_scale_inv",
     {"", NULL},
     TC_SET(TC_F8_E4M3),
     TC_SET(TC_F32) | TC_SET(TC_BF16) | TC_SET(TC_F16) | TC_SET(TC_U8),
     false},
    {".weight_scale",
     {".weight", ".weight_packed"},
     TC_SET(TC_F8_E4M3) | TC_SET(TC_U8),
     TC_SET(TC_F32) | TC_SET(TC_BF16) | TC_SET(TC_F16) | TC_SET(TC_U8) | TC_SET(TC_F8_E4M3),
     false},
    {".weight_scale_2", {".weight", NULL}, TC_SET(TC_U8), TC_SET(TC_F32), false},
    {".weight_global_scale", {".weight_packed", NULL}, TC_SET(TC_U8), TC_SET(TC_F32), false},
    {".scale", {".weight", NULL}, TC_SET(TC_F8_E4M3) | TC_SET(TC_I8), TC_SET(TC_F8_E8M0), false},
    {"_scales", {"_blocks", NULL}, TC_SET(TC_U8), TC_SET(TC_U8), true},
    {".scales", {".blocks", NULL}, TC_SET(TC_U8), TC_SET(TC_U8), true},
};

/* Scales of what flows through the model, which go with those of the weights. */
static bool is_side_scale(const struct finder *finder, struct tc_scaled_part part, size_t reader) {
    struct tc_text name = part.tensor->name;
    struct tc_scaled_part weight = {0};
    if (ends(name, ".activation_scale")) {
        weight = find(finder, without(name, "activation_scale"), "weight_scale_inv");
        return weight.tensor != NULL;
    }
    if (ends(name, ".input_scale") && !finder->scales->compressed[reader]) {
        weight = find(finder, without(name, "input_scale"), "weight_scale_2");
        if (weight.tensor || finder->config->method == TC_QUANT_MODELOPT)
            return true;
        weight = find(finder, without(name, "input_scale"), "weight_scale");
        return weight.tensor && weight.tensor->rank == 0;
    }
    return finder->scales->compressed[reader] &&
           (ends(name, ".k_scale") || ends(name, ".v_scale") || ends(name, ".q_scale"));
}

static bool take_role(const struct finder *finder, struct tc_scaled_part part, size_t reader,
                      enum tc_scaled_role *role) {
    struct tc_text name = part.tensor->name;
    *role = TC_ROLE_NONE;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const struct scale_ending *row = &endings[i];
        if (!ends(name, row->ending))
            continue;
        struct tc_text stem = without(name, row->ending);
        bool weight = false;
        bool any = false;
        for (size_t w = 0; w < 2 && row->weights[w]; w++) {
            const struct tc_tensor *found = find(finder, stem, row->weights[w]).tensor;
            any |= found != NULL;
            weight |= found && row->dtypes & TC_SET(found->dtype);
        }
        *role = TC_ROLE_LOOKALIKE;
        if (!(row->own & TC_SET(part.tensor->dtype)) || (any && !weight))
            return true;
        if (any) {
            *role = TC_ROLE_SCALE;
            return true;
        }
        return (row->only_mxfp4 && finder->config->method != TC_QUANT_MXFP4) ||
               fail(finder, part, "scale-alone", "this is a scale, but its weight is not there");
    }
    if (is_side_scale(finder, part, reader))
        *role = TC_ROLE_SCALE;
    else if (ends(name, "_scale") || ends(name, "_blocks"))
        *role = TC_ROLE_LOOKALIKE;
    return true;
}

bool tc_block_scales_find(const struct tc_block_scales *scales, size_t reader,
                          const struct tc_tensor *tensor, enum tc_scaled_role *role,
                          struct tc_scaled *scaled, struct tc_error *error) {
    struct finder finder = {scales, &scales->configs[reader], error};
    struct tc_scaled_part part = {scales->readers[reader], tensor};
    *scaled = (struct tc_scaled){.weight = part, .dtype = TC_BF16};
    enum tc_scaled_role by_name;
    /* Scales first: those of NVFP4 are F8_E4M3 themselves. */
    *role = TC_ROLE_SCALE;
    if (!take_role(&finder, part, reader, &by_name))
        return false;
    if (by_name == TC_ROLE_SCALE)
        return true;
    if (!take_weight(&finder, scaled, role))
        return false;
    if (*role == TC_ROLE_NONE)
        *role = by_name;
    return true;
}
