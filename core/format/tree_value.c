/* Values of a checkpoint tree that hold no others: plain ones, and tensors. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/base64.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/tree.h"
#include "core/format/tree_parse.h"
#include "core/tensor/sparse_group.h"

/* Numbers */

static bool read_integer(struct tree_parser *parser, struct tc_text digits, int64_t *value) {
    char text[24];
    if (digits.length > 20 || tc_text_equal(digits, TC_TEXT("-0")))
        return tree_bad(parser, "an integer past 64 bits, or -0");
    memcpy(text, digits.bytes, digits.length);
    text[digits.length] = 0;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0 || tree_bad(parser, "an integer past 64 bits, or -0");
}

static bool is_integer(struct tc_text number) {
    for (size_t i = 0; i < number.length; i++)
        if (memchr(".eE", number.bytes[i], 3))
            return false;
    return true;
}

/* strtod reads "." as the decimal point, since the program never sets a locale. The text goes on
 * behind the number, so it must be copied; a longer one than that has only digits that don't
 * count. */
static bool read_finite(struct tree_parser *parser, struct tc_text number, double *value) {
    char text[1100];
    if (number.length >= sizeof text)
        return tree_bad(parser, "a number that is too long");
    memcpy(text, number.bytes, number.length);
    text[number.length] = 0;
    *value = strtod(text, NULL);
    return isfinite(*value) || tree_bad(parser, "a number past the largest");
}

/* The text of ["f",…]: inf, -inf, nan, nan:HEX16. */
static bool read_special(struct tree_parser *parser, struct tc_text word, double *value) {
    uint64_t bits = UINT64_C(0x7ff8000000000000);
    if (tc_text_equal(word, TC_TEXT("inf")) || tc_text_equal(word, TC_TEXT("-inf"))) {
        *value = word.bytes[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    bool plain = tc_text_equal(word, TC_TEXT("nan"));
    if (!plain && (!tc_text_starts(word, TC_TEXT("nan:")) || word.length != 20))
        return tree_bad(parser, "a float that is none");
    for (size_t i = 4; !plain && i < 20; i++) {
        char c = word.bytes[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit && (c < 'a' || c > 'f'))
            return tree_bad(parser, "a float that is none");
        bits = bits << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    memcpy(value, &bits, sizeof *value);
    return isnan(*value) || tree_bad(parser, "a float that is none");
}

/* The next element of the array: a float, or ["f",…]. */
static bool read_real(struct tree_parser *parser, double *value) {
    struct tc_json *json = &parser->json;
    struct tc_text text;
    if (!tc_json_element(json))
        return tree_bad(parser, "a number is missing");
    if (tc_json_peek(json) == TC_JSON_NUMBER)
        return tc_json_skip(json, &text) &&
               (is_integer(text) ? tree_bad(parser, "an integer where a float must be")
                                 : read_finite(parser, text, value));
    struct tc_text tag;
    if (tc_json_peek(json) != TC_JSON_ARRAY || !tc_json_begin(json, TC_JSON_ARRAY) ||
        !tc_json_element(json) || !tc_json_string(json, &tag) ||
        !tc_text_equal(tag, TC_TEXT("f")) || !tc_json_element(json) ||
        !tc_json_string(json, &text) || tc_json_element(json))
        return tree_bad(parser, "a float that is none");
    return read_special(parser, text, value);
}

static bool next_integer(struct tree_parser *parser, int64_t *value) {
    struct tc_text text;
    struct tc_json *json = &parser->json;
    if (tc_json_peek(json) != TC_JSON_NUMBER || !tc_json_skip(json, &text) || !is_integer(text))
        return tree_bad(parser, "an integer is missing");
    return read_integer(parser, text, value);
}

bool tree_read_scalar(struct tree_parser *parser) {
    struct tc_json *json = &parser->json;
    enum tc_json_kind kind = tc_json_peek(json);
    struct tc_text text;
    struct tc_tree_node *node = tree_add(parser, TC_TREE_NONE);
    if (!node)
        return false;
    if (kind == TC_JSON_STRING) {
        if (!tc_json_string(json, &text))
            return false;
        node->kind = TC_TREE_TEXT;
        node->text = text.bytes;
        node->length = text.length;
        return true;
    }
    if (!tc_json_skip(json, &text))
        return false;
    if (kind == TC_JSON_TRUE || kind == TC_JSON_FALSE) {
        node->kind = TC_TREE_BOOL;
        node->value = kind == TC_JSON_TRUE;
    } else if (kind == TC_JSON_NUMBER) {
        bool integer = is_integer(text);
        node->kind = integer ? TC_TREE_INT : TC_TREE_FLOAT;
        return integer ? read_integer(parser, text, &node->integer)
                       : read_finite(parser, text, &node->real);
    }
    return true;
}

/* Tags */

static bool is_long(struct tc_text digits) {
    size_t sign = digits.length && digits.bytes[0] == '-';
    size_t count = digits.length - sign;
    if (count < 19 || count > TC_TREE_MAX_DIGITS || digits.bytes[sign] == '0')
        return false;
    for (size_t i = sign; i < digits.length; i++)
        if (digits.bytes[i] < '0' || digits.bytes[i] > '9')
            return false;
    if (count > 19)
        return true;
    struct tc_text magnitude = {digits.bytes + sign, count};
    return tc_text_compare(magnitude, sign ? TC_TEXT("9223372036854775808")
                                           : TC_TEXT("9223372036854775807")) > 0;
}

/* Whether bytes are UTF-8 in which lone surrogates are allowed. */
static bool is_with_halves(struct tc_text text) {
    for (size_t at = 0; at < text.length;) {
        uint32_t c;
        const unsigned char *bytes = (const unsigned char *)text.bytes + at;
        size_t length = tc_utf8_length(text.bytes + at, text.length - at, &c);
        bool half = !length && text.length - at >= 3 && bytes[0] == 0xED && bytes[1] >= 0xA0 &&
                    bytes[1] <= 0xBF && bytes[2] >= 0x80 && bytes[2] <= 0xBF;
        if (!length && !half)
            return false;
        at += half ? 3 : length;
    }
    return true;
}

static bool decode(struct tree_parser *parser, struct tc_tree_node *node, struct tc_text text) {
    size_t length;
    char *bytes = tc_arena_alloc(parser->arena, text.length / 4 * 3 + 1, parser->error);
    if (!bytes)
        return false;
    if (!tc_base64_decode(text, bytes, &length))
        return tree_bad(parser, "base64 that is none");
    node->text = bytes;
    node->length = length;
    return node->kind != TC_TREE_HALVES || is_with_halves(tc_tree_text(node)) ||
           tree_bad(parser, "text that is no UTF-8");
}

/* Arrays of a tag and one text. */
static bool read_word(struct tree_parser *parser, enum tc_tree_kind kind) {
    struct tc_json *json = &parser->json;
    struct tc_text text;
    struct tc_tree_node *node = tree_add(parser, kind);
    if (!node)
        return false;
    if (!tc_json_element(json) || tc_json_peek(json) != TC_JSON_STRING ||
        !tc_json_string(json, &text) || tc_json_element(json) || json->failed)
        return tree_bad(parser, "a tag with anything but one text");
    node->text = text.bytes;
    node->length = text.length;
    switch (kind) {
    case TC_TREE_LONG:
        return is_long(text) || tree_bad(parser, "a long integer that is none, or too long");
    case TC_TREE_FLOAT:
        node->length = 0;
        return read_special(parser, text, &node->real);
    case TC_TREE_DTYPE:
        return tc_tree_is_dtype(text) || tree_bad(parser, "an unknown dtype");
    case TC_TREE_DEVICE:
        return tc_tree_is_device(text) || tree_bad(parser, "an unknown device");
    case TC_TREE_LAYOUT:
        return tc_tree_is_layout(text) || tree_bad(parser, "an unknown layout");
    default:
        return decode(parser, node, text);
    }
}

static bool read_complex(struct tree_parser *parser) {
    struct tc_tree_node *node = tree_add(parser, TC_TREE_COMPLEX);
    return node && read_real(parser, &node->real) && read_real(parser, &node->imaginary) &&
           (!tc_json_element(&parser->json) || tree_bad(parser, "a complex number of three")) &&
           !parser->json.failed;
}

static bool read_size(struct tree_parser *parser) {
    size_t at = parser->tree->count;
    if (!tree_add(parser, TC_TREE_SIZE))
        return false;
    while (tc_json_element(&parser->json)) {
        struct tc_tree_node *item = tree_add(parser, TC_TREE_INT);
        if (!item || !next_integer(parser, &item->integer))
            return false;
        if (item->integer < 0 || ++parser->tree->nodes[at].count > TC_MAX_RANK)
            return tree_bad(parser, "a Size that none can be");
    }
    parser->tree->nodes[at].end = (uint32_t)parser->tree->count;
    return !parser->json.failed;
}

/* Tensors */

/* Reserves a path for a tensor, as where the nested object is read again: of several of one path
 * the later ones are called PATH~1 and so on. */
static bool take_path(struct tree_parser *parser, struct tc_text *path) {
    struct tc_text own =
        parser->named
            ? (struct tc_text){parser->path.length ? parser->path.bytes : "", parser->path.length}
            : TC_TEXT("tensor");
    char *copy = tc_arena_copy(parser->arena, own.bytes, own.length, parser->error);
    if (!copy)
        return false;
    *path = (struct tc_text){copy, own.length};
    if (!tc_name_map_find(&parser->paths, own))
        return tc_name_map_add(&parser->paths, *path, 0, parser->error);
    if (!tc_name_map_find(&parser->number, own) &&
        !tc_name_map_add(&parser->number, *path, 0, parser->error))
        return false;
    uint32_t *number = tc_name_map_find(&parser->number, own);
    struct tc_text base = *path;
    do {
        char *tried = tc_arena_alloc(parser->arena, base.length + 12, parser->error);
        if (!tried)
            return false;
        memcpy(tried, base.bytes, base.length);
        int more = snprintf(tried + base.length, 12, "~%u", ++*number);
        *path = (struct tc_text){tried, base.length + (size_t)more};
    } while (tc_name_map_find(&parser->paths, *path));
    return tc_name_map_add(&parser->paths, *path, 0, parser->error);
}

struct tc_tree_tensor *tree_add_tensor(struct tree_parser *parser, enum tc_tree_kind kind) {
    struct tc_tree_tensor *tensor = tc_arena_alloc(parser->arena, sizeof *tensor, parser->error);
    struct tc_tree_node *node = tensor ? tree_add(parser, kind) : NULL;
    if (!node || !take_path(parser, &tensor->path))
        return NULL;
    /* The path without a number: a second tensor of a path has a name of its own. */
    tensor->name = parser->named ? (struct tc_text){tensor->path.bytes, parser->path.length}
                                 : TC_TEXT("tensor");
    tensor->requires_grad = kind == TC_TREE_PARAMETER;
    node->tensor = tensor;
    return tensor;
}

bool tree_read_name(struct tree_parser *parser, struct tc_tree_tensor *tensor, bool *more) {
    struct tc_json *json = &parser->json;
    *more = false;
    if (!tc_json_element(json))
        return !json->failed;
    if (tc_json_peek(json) == TC_JSON_STRING) {
        if (!tc_json_string(json, &tensor->name))
            return false;
        if (tensor->name.length == 0)
            return tree_bad(parser, "an empty name");
    } else if (!tc_json_null(json))
        return tree_bad(parser, "a name that is no text");
    *more = tc_json_element(json);
    return !json->failed;
}

/* An array of integers that are not negative. */
static bool read_strides(struct tree_parser *parser, struct tc_tree_tensor *tensor) {
    struct tc_json *json = &parser->json;
    uint64_t read[TC_MAX_RANK] = {0};
    size_t count = 0;
    if (tc_json_peek(json) != TC_JSON_ARRAY || !tc_json_begin(json, TC_JSON_ARRAY))
        return tree_bad(parser, "strides that are none");
    for (; tc_json_element(json); count++) {
        int64_t value = 0;
        if (!next_integer(parser, &value))
            return false;
        if (value < 0 || value >= INT64_MAX / 2 || count == TC_MAX_RANK)
            return tree_bad(parser, "strides that are none");
        read[count] = (uint64_t)value;
    }
    uint64_t *stride = tc_arena_array(parser->arena, count, sizeof *stride, parser->error);
    if (!stride)
        return false;
    memcpy(stride, read, count * sizeof *stride);
    tensor->stride = stride;
    tensor->rank = (uint8_t)count;
    return !json->failed;
}

/* [BASE,offset,[strides]] */
static bool read_view(struct tree_parser *parser, struct tc_tree_tensor *tensor) {
    struct tc_json *json = &parser->json;
    int64_t offset = 0;
    if (tc_json_peek(json) != TC_JSON_ARRAY || !tc_json_begin(json, TC_JSON_ARRAY) ||
        !tc_json_element(json) || tc_json_peek(json) != TC_JSON_STRING ||
        !tc_json_string(json, &tensor->base) || !tc_json_element(json) ||
        !next_integer(parser, &offset) || offset < 0 || !tc_json_element(json) ||
        !read_strides(parser, tensor) || tc_json_element(json) || json->failed)
        return tree_bad(parser, "a view that is none");
    tensor->offset = (uint64_t)offset;
    return true;
}

bool tree_read_option(struct tree_parser *parser, struct tc_tree_tensor *tensor,
                      struct tc_text key) {
    struct tc_json *json = &parser->json;
    struct tc_text text;
    if (tc_text_equal(key, TC_TEXT("g"))) {
        enum tc_json_kind kind = tc_json_peek(json);
        tensor->requires_grad = kind == TC_JSON_TRUE;
        if (kind != TC_JSON_TRUE && kind != TC_JSON_FALSE)
            return tree_bad(parser, "an option that is no truth value");
        return tc_json_skip(json, &text);
    }
    if (tc_text_equal(key, TC_TEXT("v")))
        return read_view(parser, tensor);
    if (!tc_text_equal(key, TC_TEXT("k")))
        return tree_bad(parser, "an unknown option");
    if (!tensor->base.bytes) /* beside a view they say nothing */
        return read_strides(parser, tensor);
    struct tc_tree_tensor ignored = {0};
    return read_strides(parser, &ignored);
}

static bool read_sparse(struct tree_parser *parser) {
    struct tc_json *json = &parser->json;
    struct tc_tree_tensor *tensor = tree_add_tensor(parser, TC_TREE_SPARSE);
    struct tc_text word;
    bool more;
    if (!tensor || !tree_read_name(parser, tensor, &more))
        return false;
    if (!more || tc_json_peek(json) != TC_JSON_STRING || !tc_json_string(json, &word) ||
        !(tensor->layout = tc_sparse_layout(word)))
        return tree_bad(parser, "a sparse tensor of no known layout");
    if (!tensor->layout->compressed) {
        enum tc_json_kind kind = tc_json_element(json) ? tc_json_peek(json) : TC_JSON_NOTHING;
        if ((kind != TC_JSON_TRUE && kind != TC_JSON_FALSE) || !tc_json_skip(json, &word))
            return tree_bad(parser, "a sparse tensor that does not say whether it is coalesced");
        tensor->coalesced = kind == TC_JSON_TRUE;
    }
    return (!tc_json_element(json) || tree_bad(parser, "something behind a sparse tensor")) &&
           !json->failed;
}

static bool read_quantised(struct tree_parser *parser) {
    struct tc_json *json = &parser->json;
    struct tc_tree_tensor *tensor = tree_add_tensor(parser, TC_TREE_QUANTISED);
    struct tc_text dtype;
    bool more;
    if (!tensor || !tree_read_name(parser, tensor, &more))
        return false;
    if (!more || tc_json_peek(json) != TC_JSON_STRING || !tc_json_string(json, &tensor->scheme))
        return tree_bad(parser, "a quantised tensor of no known scheme");
    tensor->channels = tc_text_equal(tensor->scheme, TC_TEXT("per_channel_affine")) ||
                       tc_text_equal(tensor->scheme, TC_TEXT("per_channel_affine_float_qparams"));
    if (!tensor->channels && !tc_text_equal(tensor->scheme, TC_TEXT("per_tensor_affine")))
        return tree_bad(parser, "a quantised tensor of no known scheme");
    if (!tensor->channels && !read_real(parser, &tensor->scale))
        return false;
    if (!tc_json_element(json))
        return tree_bad(parser, "a quantised tensor without its numbers");
    return next_integer(parser, &tensor->zero_point) &&
           ((tc_json_element(json) && tc_json_peek(json) == TC_JSON_STRING &&
             tc_json_string(json, &dtype) && !tc_json_element(json) && !json->failed) ||
            tree_bad(parser, "a quantised tensor without its dtype"));
}

static bool read_numpy(struct tree_parser *parser, enum tc_tree_kind kind) {
    struct tc_tree_tensor *tensor = tree_add_tensor(parser, kind);
    bool more;
    return tensor && tree_read_name(parser, tensor, &more) &&
           (!more || tree_bad(parser, "something behind an array's name"));
}

bool tree_read_tagged(struct tree_parser *parser, struct tc_text tag, bool *known) {
    static const struct {
        const char *tag;
        enum tc_tree_kind kind;
    } words[] = {{"i", TC_TREE_LONG},      {"f", TC_TREE_FLOAT},  {"b", TC_TREE_BYTES},
                 {"B", TC_TREE_BYTEARRAY}, {"x", TC_TREE_HALVES}, {"dt", TC_TREE_DTYPE},
                 {"dv", TC_TREE_DEVICE},   {"ly", TC_TREE_LAYOUT}};
    *known = true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (tc_text_equal(tag, tc_text_of(words[i].tag)))
            return read_word(parser, words[i].kind);
    if (tc_text_equal(tag, TC_TEXT("c")))
        return read_complex(parser);
    if (tc_text_equal(tag, TC_TEXT("z")))
        return read_size(parser);
    if (tc_text_equal(tag, TC_TEXT("s")))
        return read_sparse(parser);
    if (tc_text_equal(tag, TC_TEXT("q")))
        return read_quantised(parser);
    if (tc_text_equal(tag, TC_TEXT("n")))
        return read_numpy(parser, TC_TREE_ARRAY);
    if (tc_text_equal(tag, TC_TEXT("N")))
        return read_numpy(parser, TC_TREE_SCALAR);
    *known = false;
    return true;
}
