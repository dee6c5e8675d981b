#include "core/format/quant_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "core/io/input.h"
#include "core/remote/address.h"

#define QUANTISATION "quantization_config"
#define LARGEST_BLOCK (UINT64_C(1) << 30)

static const struct tc_document_value *member(const struct tc_document_value *object,
                                              const char *name) {
    struct tc_document_member member = {0};
    const struct tc_document_value *found = NULL;
    while (object && tc_document_kind(object) == TC_JSON_OBJECT &&
           tc_document_next(object, &member))
        if (tc_text_equal(member.key, tc_text_of(name)))
            found = member.value;
    return found && tc_document_kind(found) != TC_JSON_NULL ? found : NULL;
}

static bool is_text(const struct tc_document *document, const struct tc_document_value *value,
                    const char *word) {
    struct tc_text text;
    return value && tc_document_kind(value) == TC_JSON_STRING &&
           tc_document_text(document, value, &text) && tc_text_equal(text, tc_text_of(word));
}

/* Adds a size of blocks, unless it is there already. */
static bool add_block(const struct tc_document *document, const struct tc_document_value *value,
                      const uint64_t block[2], struct tc_quant_config *config) {
    for (int i = 0; i < 2; i++)
        if (block[i] == 0 || block[i] > LARGEST_BLOCK)
            return tc_document_fail(document, value, "a block's size is out of range");
    for (unsigned i = 0; i < config->block_count; i++)
        if (memcmp(block, config->blocks[i], sizeof config->blocks[i]) == 0)
            return true;
    if (config->block_count == TC_QUANT_BLOCKS)
        return tc_document_fail(document, value, "there are too many different sizes of blocks");
    memcpy(config->blocks[config->block_count++], block, sizeof config->blocks[0]);
    return true;
}

/* A pair of sizes, such as weight_block_size. */
static bool read_block(const struct tc_document *document, const struct tc_document_value *value,
                       struct tc_quant_config *config) {
    uint64_t block[2];
    if (!value)
        return true;
    if (!tc_document_expect(document, value, TC_JSON_ARRAY))
        return false;
    if (tc_document_count(value) != 2)
        return tc_document_fail(document, value, "a block's size is two numbers");
    for (size_t i = 0; i < 2; i++)
        if (!tc_document_unsigned(document, tc_document_item(value, i), &block[i]))
            return false;
    return add_block(document, value, block, config);
}

/* compressed-tensors has the block of each group of modules. Which modules a group is for need not
 * be known: the shape of a scale tells its block. */
static bool read_groups(const struct tc_document *document, const struct tc_document_value *groups,
                        struct tc_quant_config *config) {
    struct tc_document_member group = {0};
    if (!groups)
        return true;
    if (!tc_document_expect(document, groups, TC_JSON_OBJECT))
        return false;
    while (tc_document_next(groups, &group)) {
        const struct tc_document_value *weights = member(group.value, "weights");
        const struct tc_document_value *structure = member(weights, "block_structure");
        const struct tc_document_value *size = member(weights, "group_size");
        bool grouped =
            !structure && size && is_text(document, member(weights, "strategy"), "group");
        uint64_t block[2] = {1, 0};
        if (!read_block(document, structure, config))
            return false;
        if (grouped && (!tc_document_unsigned(document, size, &block[1]) ||
                        !add_block(document, size, block, config)))
            return false;
    }
    return true;
}

static void read_dtype(const struct tc_document *document, const struct tc_document_value *value,
                       struct tc_quant_config *config) {
    struct tc_text text;
    if (!value || tc_document_kind(value) != TC_JSON_STRING ||
        !tc_document_text(document, value, &text))
        return;
    enum tc_dtype dtype = tc_dtype_named(text);
    if (dtype == TC_F16 || dtype == TC_BF16 || dtype == TC_F32)
        config->dtype = dtype;
}

static const struct method_name {
    const char *name;
    enum tc_quant_method method;
} methods[] = {
    {"fp8", TC_QUANT_FP8},           {"mxfp8", TC_QUANT_MXFP8},
    {"mxfp4", TC_QUANT_MXFP4},       {"compressed-tensors", TC_QUANT_COMPRESSED},
    {"modelopt", TC_QUANT_MODELOPT},
};

static bool read_quantisation(const struct tc_document *document,
                              const struct tc_document_value *quantisation,
                              struct tc_quant_config *config) {
    if (!quantisation)
        return true;
    if (!tc_document_expect(document, quantisation, TC_JSON_OBJECT))
        return false;
    const struct tc_document_value *method = member(quantisation, "quant_method");
    /* Older files of Model Optimizer do not name it. */
    config->method =
        method || !member(quantisation, "quant_algo") ? TC_QUANT_OTHER : TC_QUANT_MODELOPT;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (is_text(document, method, methods[i].name))
            config->method = methods[i].method;
    return read_block(document, member(quantisation, "weight_block_size"), config) &&
           (config->method != TC_QUANT_COMPRESSED ||
            read_groups(document, member(quantisation, "config_groups"), config));
}

static bool read_object(const struct tc_document *document, const struct tc_document_value *object,
                        const char *key, struct tc_quant_config *config) {
    if (config->dtype == TC_NONE) {
        read_dtype(document, member(object, "torch_dtype"), config);
        read_dtype(document, member(object, "dtype"), config);
    }
    return read_quantisation(document, member(object, key), config);
}

/* A model of several parts may have it in the config of one of them, such as text_config. */
static bool parse(struct tc_text text, const char *key, struct tc_quant_config *config,
                  struct tc_error *error) {
    struct tc_document document;
    struct tc_document_member part = {0};
    bool ok = tc_document_parse(&document, text, 0, error);
    document.code = "config";
    ok = ok && tc_document_expect(&document, document.root, TC_JSON_OBJECT) &&
         read_object(&document, document.root, key, config);
    while (ok && config->method == TC_QUANT_UNKNOWN && tc_document_next(document.root, &part))
        ok = !member(part.value, key) || read_object(&document, part.value, key, config);
    tc_document_release(&document);
    return ok;
}

/* Whether the file is there and may be read. Where the model's own file is a link, as in a cache
 * of downloads, its config may be one too; otherwise a link could lead anywhere. */
static bool is_there(const struct tc_reader *reader, const char *path, bool *there,
                     struct tc_error *error) {
    struct stat own;
    struct stat status;
    if (reader->options->remote && tc_address_is(reader->input->path))
        return tc_reader_has_beside(reader, path, there, error);
    bool linked = lstat(reader->input->path, &own) == 0;
    bool known = linked || tc_path_missing(errno);
    linked = linked && S_ISLNK(own.st_mode);
    *there = known && lstat(path, &status) == 0;
    if (*there && linked && S_ISLNK(status.st_mode))
        *there = stat(path, &status) == 0;
    if (!*there && (!known || !tc_path_missing(errno))) {
        tc_fail_errno(error, errno, "open", "cannot find out whether this file is there");
        return tc_error_in_file(error, path);
    }
    if (!*there || S_ISREG(status.st_mode))
        return true;
    tc_fail(error, TC_UNSAFE, "config-file", "it is %s",
            S_ISLNK(status.st_mode) ? "a symbolic link" : "no regular file");
    return tc_error_in_file(error, path);
}

static bool read_file(const struct tc_reader *reader, const char *name, const char *key,
                      struct tc_quant_config *config, struct tc_error *error) {
    const char *own = reader->input->path;
    struct tc_buffer path = {0};
    bool there = false;
    tc_buffer_add(&path, own, (size_t)(tc_path_name(own) - own));
    tc_buffer_add_string(&path, name);
    bool ok = tc_buffer_ok(&path, error) && is_there(reader, path.bytes, &there, error);
    struct tc_input *input =
        ok && there ? tc_reader_open_beside(reader, path.bytes, NULL, error) : NULL;
    if (ok && there) {
        ok = input &&
             tc_reader_check_header(reader, "config", input->size, TC_QUANT_CONFIG_LIMIT, error);
        char *text = ok ? tc_input_load(input, 0, input->size, error) : NULL;
        ok = text && parse((struct tc_text){text, input->size}, key, config, error);
        free(text);
        tc_input_close(input);
        if (!ok)
            tc_error_in_file(error, path.bytes);
    }
    tc_buffer_release(&path);
    return ok;
}

bool tc_quant_config_read(const struct tc_reader *reader, struct tc_quant_config *config,
                          struct tc_error *error) {
    *config = (struct tc_quant_config){.dtype = TC_NONE};
    if (strcmp(reader->input->path, "-") == 0 || reader->options->unpublished)
        return true;
    return read_file(reader, "config.json", QUANTISATION, config, error) &&
           (config->method != TC_QUANT_UNKNOWN ||
            read_file(reader, "hf_quant_config.json", "quantization", config, error));
}

/* Copies an object without the member, and `deeper` levels of objects in it likewise: a model of
 * several parts has a config for each. */
static bool drop_member(struct tc_text object, unsigned deeper, struct tc_buffer *out,
                        struct tc_arena *arena, struct tc_error *error) {
    struct tc_json json;
    struct tc_text key;
    struct tc_text value;
    tc_json_init(&json, object.bytes, object.length, 0, arena, error);
    bool ok = tc_json_begin(&json, TC_JSON_OBJECT);
    bool first = true;
    size_t from = json.at; /* what is not copied yet */
    tc_buffer_add(out, object.bytes, from);
    for (; ok && tc_json_key(&json, &key); from = json.at) {
        bool nested = tc_json_peek(&json) == TC_JSON_OBJECT;
        if (!tc_json_skip(&json, &value) || tc_text_equal(key, TC_TEXT(QUANTISATION)))
            continue;
        /* A comma before the first member that stays belongs to one that goes. */
        size_t comma = from + strcspn(object.bytes + from, ",\"");
        from = first && object.bytes[comma] == ',' ? comma + 1 : from;
        first = false;
        tc_buffer_add(out, object.bytes + from, (size_t)(value.bytes - object.bytes) - from);
        if (nested && deeper)
            ok = drop_member(value, deeper - 1, out, arena, error);
        else
            tc_buffer_add_text(out, value);
    }
    ok = ok && tc_json_end(&json);
    tc_buffer_add(out, object.bytes + from, ok ? object.length - from : 0);
    return ok;
}

bool tc_quant_config_drop(struct tc_text config, struct tc_buffer *out, struct tc_error *error) {
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    bool ok = drop_member(config, 1, out, &arena, error) && tc_buffer_ok(out, error);
    tc_arena_release(&arena);
    return ok;
}
