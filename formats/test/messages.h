/*
 * Protobuf messages put together field by field, for the tests of formats that
 * are made of them.
 *
 *     JOIN(number(1, 8), INSIDE(7, text(2, "graph")))
 */
#ifndef TCONV_FORMATS_TEST_MESSAGES_H
#define TCONV_FORMATS_TEST_MESSAGES_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

struct message {
    size_t length;
    unsigned char bytes[1500];
};
#define MESSAGES_END ((struct message){.length = SIZE_MAX})

static inline void add_bytes(struct message *message, const void *bytes, size_t length) {
    cr_assert_leq(length, sizeof message->bytes - message->length, "the message is too long");
    if (length)
        memcpy(message->bytes + message->length, bytes, length);
    message->length += length;
}

static inline void add_varint(struct message *message, uint64_t value) {
    for (; value > 0x7F; value >>= 7)
        add_bytes(message, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
    add_bytes(message, &(unsigned char){(unsigned char)value}, 1);
}

/* A number by itself, as packed lists have them. */
static inline struct message varint(uint64_t value) {
    struct message message = {0};
    add_varint(&message, value);
    return message;
}

static inline struct message number(uint32_t field, uint64_t value) {
    struct message message = {0};
    add_varint(&message, (uint64_t)field << 3);
    add_varint(&message, value);
    return message;
}

static inline struct message bytes(uint32_t field, const void *data, size_t length) {
    struct message message = {0};
    add_varint(&message, (uint64_t)field << 3 | 2);
    add_varint(&message, length);
    add_bytes(&message, data, length);
    return message;
}

static inline struct message text(uint32_t field, const char *string) {
    return bytes(field, string, strlen(string));
}

/* Four or eight bytes under a tag. */
static inline struct message fixed(uint32_t field, const void *data, size_t length) {
    struct message message = {0};
    add_varint(&message, (uint64_t)field << 3 | (length == 4 ? 5 : 1));
    add_bytes(&message, data, length);
    return message;
}
#define FLOAT(field, value) fixed(field, &(float){value}, 4)
#define DOUBLE(field, value) fixed(field, &(double){value}, 8)

/* Bytes as they are. */
static inline struct message plain(const void *data, size_t length) {
    struct message message = {0};
    add_bytes(&message, data, length);
    return message;
}

static inline struct message join(const struct message *parts) {
    struct message message = {0};
    for (; parts->length != SIZE_MAX; parts++)
        add_bytes(&message, parts->bytes, parts->length);
    return message;
}
#define JOIN(...) join((const struct message[]){__VA_ARGS__, MESSAGES_END})

static inline struct message inside(uint32_t field, struct message content) {
    return bytes(field, content.bytes, content.length);
}
#define INSIDE(field, ...) inside(field, JOIN(__VA_ARGS__))
/* A list of numbers in one piece. */
#define PACKED(field, ...) INSIDE(field, __VA_ARGS__)

#define PAIR(field, key, value) INSIDE(field, text(1, key), text(2, value))

/* ONNX's TensorProto and what is around it. */
#define DIM(size) number(1, size)
#define TYPE(data_type) number(2, data_type)
#define NAME(name) text(8, name)
#define RAW(literal) bytes(9, literal, sizeof(literal) - 1)
#define EXTERNAL(key, value) PAIR(13, key, value)
#define OUTSIDE number(14, 1)

#define INITIALIZER(...) INSIDE(5, __VA_ARGS__)
#define GRAPH(...) INSIDE(7, __VA_ARGS__)
#define OPSET INSIDE(8, text(1, ""), number(2, 17))
#define MODEL(...) JOIN(number(1, 8), __VA_ARGS__, OPSET)
#define NODE(...) INSIDE(1, __VA_ARGS__)
#define OUTPUT(name) text(2, name)
#define NODE_NAME(name) text(3, name)
#define OPERATOR(name) text(4, name)
#define ATTRIBUTE(name, ...) INSIDE(5, text(1, name), __VA_ARGS__)

#endif
