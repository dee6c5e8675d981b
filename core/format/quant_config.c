#include "core/format/quant_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "core/base/regex.h"
#include "core/io/input.h"
#include "core/remote/address.h"

#define QUANTISATION "quantization_config"
#define LARGEST_BLOCK (UINT64_C(1) << 30)
/* How many modules a config may list. */
#define MOST_SPARED 65536u
/* How many expressions of strangers are matched, each with a bound of its own. */
#define MOST_EXPRESSIONS 4096u
#define MOST_TESTS (UINT64_C(1) << 26)

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

/* Adds a list of modules that are not quantised. */
static bool read_spared(const struct tc_document *document, const struct tc_document_value *list,
                        struct tc_quant_config *config, struct tc_arena *arena) {
    size_t count = list ? tc_document_count(list) : 0;
    if (count == 0)
        return true;
    if (count > MOST_SPARED)
        return tc_document_fail(document, list, "it lists too many modules");
    config->spared = tc_arena_array(arena, count, sizeof *config->spared, document->error);
    bool ok = config->spared != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        const struct tc_document_value *item = tc_document_item(list, i);
        struct tc_text *entry = &config->spared[config->spared_count];
        if (tc_document_kind(item) != TC_JSON_STRING)
            continue;
        ok = tc_document_text(document, item, entry) && tc_document_keep(document, entry, arena);
        config->spared_count += ok;
    }
    return ok;
}

/* Each of the programs calls that list otherwise. */
static bool read_lists(const struct tc_document *document,
                       const struct tc_document_value *quantisation, struct tc_quant_config *config,
                       struct tc_arena *arena) {
    const struct tc_document_value *list = NULL;
    if (config->method == TC_QUANT_COMPRESSED)
        list = member(quantisation, "ignore");
    else if (config->method == TC_QUANT_MODELOPT && member(quantisation, "exclude_modules"))
        list = member(quantisation, "exclude_modules");
    else if (config->method == TC_QUANT_MODELOPT)
        list = member(quantisation, "ignore"); /* in config.json */
    else if (config->method != TC_QUANT_OTHER)
        list = member(quantisation, "modules_to_not_convert");
    return read_spared(document, list, config, arena);
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
                              struct tc_quant_config *config, struct tc_arena *arena) {
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
    return read_lists(document, quantisation, config, arena) &&
           read_block(document, member(quantisation, "weight_block_size"), config) &&
           (config->method != TC_QUANT_COMPRESSED ||
            read_groups(document, member(quantisation, "config_groups"), config));
}

static bool read_object(const struct tc_document *document, const struct tc_document_value *object,
                        const char *key, struct tc_quant_config *config, struct tc_arena *arena) {
    if (config->dtype == TC_NONE) {
        read_dtype(document, member(object, "torch_dtype"), config);
        read_dtype(document, member(object, "dtype"), config);
    }
    return read_quantisation(document, member(object, key), config, arena);
}

/* A model of several parts may have it in the config of one of them, such as text_config. */
static bool parse(struct tc_text text, const char *key, struct tc_quant_config *config,
                  struct tc_arena *arena, struct tc_error *error) {
    struct tc_document document;
    struct tc_document_member part = {0};
    bool ok = tc_document_parse(&document, text, 0, error);
    document.code = "config";
    ok = ok && tc_document_expect(&document, document.root, TC_JSON_OBJECT) &&
         read_object(&document, document.root, key, config, arena);
    while (ok && config->method == TC_QUANT_UNKNOWN && tc_document_next(document.root, &part))
        ok = !member(part.value, key) || read_object(&document, part.value, key, config, arena);
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
                      struct tc_quant_config *config, struct tc_arena *arena,
                      struct tc_error *error) {
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
        ok = text && parse((struct tc_text){text, input->size}, key, config, arena, error);
        free(text);
        tc_input_close(input);
        if (!ok)
            tc_error_in_file(error, path.bytes);
    }
    tc_buffer_release(&path);
    return ok;
}

bool tc_quant_config_read(const struct tc_reader *reader, struct tc_quant_config *config,
                          struct tc_arena *arena, struct tc_error *error) {
    *config = (struct tc_quant_config){.dtype = TC_NONE};
    if (strcmp(reader->input->path, "-") == 0 || reader->options->unpublished)
        return true;
    return read_file(reader, "config.json", QUANTISATION, config, arena, error) &&
           (config->method != TC_QUANT_UNKNOWN ||
            read_file(reader, "hf_quant_config.json", "quantization", config, arena, error));
}

static bool fail_often(struct tc_error *error) {
    return tc_fail(error, TC_UNSAFE, "config",
                   "the config lists so many modules that comparing their names takes too long");
}

/* Matches an expression of the config from the name's beginning. */
static bool match(struct tc_quant_config *config, const struct tc_buffer *pattern,
                  struct tc_text module, bool *matches, struct tc_error *error) {
    struct tc_regex regex;
    struct tc_error own = {0};
    if (++config->expressions > MOST_EXPRESSIONS)
        return fail_often(error);
    if (!tc_buffer_ok(pattern, error))
        return false;
    if (!tc_regex_compile(&regex, (struct tc_text){pattern->bytes, pattern->length}, false, &own)) {
        if (own.class != TC_USAGE) {
            *error = own;
            return false;
        }
        return tc_fail(error, TC_INVALID, "config",
                       "a pattern for modules in the config is no regular expression");
    }
    bool ok = tc_regex_matches(&regex, module, matches, error);
    tc_regex_release(&regex);
    return ok;
}

/* A name in which * stands for any characters, as an expression. */
static void add_wildcards(struct tc_buffer *pattern, struct tc_text entry) {
    tc_buffer_add_string(pattern, "(?s)\\A");
    for (size_t i = 0; i < entry.length; i++) {
        unsigned char byte = (unsigned char)entry.bytes[i];
        if (byte == '*')
            tc_buffer_add_string(pattern, ".*");
        else if (byte < 128)
            tc_buffer_addf(pattern, "\\x%02x", byte);
        else
            tc_buffer_add(pattern, entry.bytes + i, 1);
    }
    tc_buffer_add_string(pattern, "\\z");
}

/* transformers takes what lies in a module that is named, and names by their ends. */
static bool is_within(struct tc_text module, struct tc_text entry) {
    if (entry.length == 0 || module.length <= entry.length)
        return false;
    return (tc_text_starts(module, entry) && module.bytes[entry.length] == '.') ||
           (tc_text_ends(module, entry) && module.bytes[module.length - entry.length - 1] == '.');
}

static bool spares(struct tc_quant_config *config, struct tc_text entry, struct tc_text module,
                   bool *matches, struct tc_error *error) {
    enum tc_quant_method method = config->method;
    struct tc_text prefix = TC_TEXT("re:");
    struct tc_buffer pattern = {0};
    *matches = tc_text_equal(module, entry);
    if (*matches)
        return true;
    if (method == TC_QUANT_COMPRESSED && tc_text_starts(entry, prefix)) {
        tc_buffer_add_string(&pattern, "\\A(?:");
        tc_buffer_add(&pattern, entry.bytes + prefix.length, entry.length - prefix.length);
        tc_buffer_add_string(&pattern, ")");
    } else if (method == TC_QUANT_MODELOPT && memchr(entry.bytes, '*', entry.length)) {
        add_wildcards(&pattern, entry);
    } else {
        *matches = method != TC_QUANT_COMPRESSED && method != TC_QUANT_MODELOPT &&
                   is_within(module, entry);
        return true;
    }
    bool ok = match(config, &pattern, module, matches, error);
    tc_buffer_release(&pattern);
    return ok;
}

bool tc_quant_config_spares(struct tc_quant_config *config, struct tc_text weight, bool *found,
                            struct tc_error *error) {
    struct tc_text ending = TC_TEXT(".weight");
    struct tc_text module = weight;
    if (tc_text_ends(weight, ending))
        module.length -= ending.length;
    *found = false;
    config->spared_tests += config->spared_count;
    if (config->spared_tests > MOST_TESTS)
        return fail_often(error);
    for (size_t i = 0; i < config->spared_count && !*found; i++)
        if (!spares(config, config->spared[i], module, found, error))
            return false;
    return true;
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
