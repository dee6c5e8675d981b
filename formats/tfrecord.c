/*
 * .tfrecord: records one after the other, each with a TensorProto (tf/tensor.c).
 * Tensors have no names in it, and are called 0, 1, … A record:
 *     u64 length   u32 CRC of those 8 bytes   data   u32 CRC of the data
 * The CRCs are CRC-32C, masked: rotated right by 15 bits, plus a constant.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/deflate.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"
#include "formats/tf/tensor.h"

#define HEAD_BYTES 12u
#define TAIL_BYTES 4u
#define VERIFY_BYTES ((size_t)1 << 20)

struct tfrecord_reader {
    struct tf_reader tf;
    struct range {
        uint64_t start;
        uint64_t end;
    } * records; /* by a tensor's position */
    size_t capacity;
};

static uint32_t masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static bool head_crc_matches(const unsigned char head[HEAD_BYTES]) {
    return masked(tc_crc32c(0, head, 8)) == tc_load(head + 8, 4);
}

static int probe(const struct tc_probe *probe) {
    return probe->length >= HEAD_BYTES && head_crc_matches(probe->head) ? 95 : 0;
}

static bool bad(struct tc_error *error, uint64_t at, const char *what) {
    tc_fail(error, TC_INVALID, "tfrecord", "%s", what);
    return tc_error_at(error, at);
}

static bool bad_crc(struct tc_error *error, uint64_t at, const char *what) {
    tc_fail(error, TC_INVALID, "crc", "the CRC of a record's %s does not match", what);
    return tc_error_at(error, at);
}

/* A buffer of the file's bytes, which are read ahead of what is asked for. */
struct ahead {
    struct tc_input *input;
    unsigned char *bytes;
    uint64_t at;
    uint64_t end; /* bytes from here on are not read */
    size_t size;
};

/* The bytes at `offset`, at least one and at most `*length` of them. */
static const unsigned char *look_ahead(struct ahead *ahead, uint64_t offset, uint64_t *length,
                                       struct tc_error *error) {
    if (offset < ahead->at || offset - ahead->at >= ahead->size) {
        uint64_t left = ahead->end - offset;
        size_t size = left < VERIFY_BYTES ? left : VERIFY_BYTES;
        ahead->size = 0;
        if (!tc_input_read(ahead->input, offset, ahead->bytes, size, error))
            return NULL;
        ahead->at = offset;
        ahead->size = size;
    }
    uint64_t held = ahead->size - (offset - ahead->at);
    *length = *length < held ? *length : held;
    return ahead->bytes + (offset - ahead->at);
}

/* Checks the data's CRC of the record at [start, end). */
static bool check_record(struct ahead *ahead, uint64_t start, uint64_t end,
                         struct tc_error *error) {
    uint64_t data_end = end - TAIL_BYTES;
    uint32_t crc = 0;
    for (uint64_t at = start + HEAD_BYTES; at < data_end;) {
        uint64_t length = data_end - at;
        const unsigned char *bytes = look_ahead(ahead, at, &length, error);
        if (!bytes)
            return false;
        crc = tc_crc32c(crc, bytes, length);
        at += length;
    }
    unsigned char tail[TAIL_BYTES];
    for (uint64_t i = 0; i < TAIL_BYTES; i++) {
        uint64_t length = 1;
        const unsigned char *byte = look_ahead(ahead, data_end + i, &length, error);
        if (!byte)
            return false;
        tail[i] = *byte;
    }
    return masked(crc) == tc_load(tail, TAIL_BYTES) || bad_crc(error, data_end, "data");
}

/* Replaces the error about a record's content where its CRC is wrong: then the damage
 * is the reason. */
static bool explain(struct tc_reader *reader, uint64_t start, uint64_t end,
                    struct tc_error *error) {
    struct tc_error damage = {0};
    struct ahead ahead = {.input = reader->input, .end = end, .bytes = malloc(VERIFY_BYTES)};
    if (ahead.bytes && !check_record(&ahead, start, end, &damage))
        *error = damage;
    free(ahead.bytes);
    return false;
}

/* Reads the length of the record at `at`, and checks that it lies within the file. */
static bool read_head(struct tf_reader *tf, uint64_t at, uint64_t *length, struct tc_error *error) {
    uint64_t size = tf->reader->input->size;
    struct wire wire = wire_open(&tf->source, at, size);
    unsigned char head[HEAD_BYTES];
    uint64_t crc;
    if (size - at < HEAD_BYTES)
        return bad(error, at, "the file ends inside a record's head");
    if (!wire_fixed(&wire, 8, length, error) || !wire_fixed(&wire, 4, &crc, error))
        return false;
    tc_store(head, *length, 8);
    tc_store(head + 8, crc, 4);
    if (!head_crc_matches(head))
        return bad_crc(error, at, "length");
    uint64_t left = size - at - HEAD_BYTES;
    return (*length <= left && left - *length >= TAIL_BYTES) ||
           bad(error, at, "a record reaches beyond the end of the file");
}

/* Makes room for the record of one more tensor. */
static bool grow_records(struct tfrecord_reader *tfrecord, struct tc_error *error) {
    struct tc_reader *reader = tfrecord->tf.reader;
    size_t count = reader->table.count;
    if (count < tfrecord->capacity)
        return true;
    size_t capacity = count + count / 2 + 16;
    size_t more = (capacity - tfrecord->capacity) * sizeof *tfrecord->records;
    if (!tc_arena_charge(&reader->arena, more, error))
        return false;
    tc_memory_earn((capacity - tfrecord->capacity) * (HEAD_BYTES + TAIL_BYTES));
    struct range *records = reallocarray(tfrecord->records, capacity, sizeof *records);
    if (!records)
        return tc_fail_memory(error);
    tfrecord->records = records;
    tfrecord->capacity = capacity;
    return true;
}

static bool find_tensor(struct tf_reader *tf, uint64_t start, uint64_t end,
                        struct tf_tensor *tensor, struct tc_error *error) {
    struct wire wire = wire_open(&tf->source, start, end);
    struct wire_field field;
    /* Most records of other programs are a tf.train.Example, whose field 1 is a
     * message. */
    if (wire_next(&wire, &field, error) && field.number == 1 && field.type == WIRE_BYTES) {
        tc_fail(error, TC_UNSUPPORTED, "tfrecord",
                "the record holds no TensorProto; it may be a tf.train.Example");
        return tc_error_at(error, start);
    }
    if (error->class != TC_OK || !tf_tensor_find(tf, start, end, tensor, error))
        return false;
    return tensor->dtype != TC_NONE ||
           tc_fail(error, TC_UNSUPPORTED, "dtype", "dtype DT_STRING is not supported in a record");
}

/* A record that is left out has its CRC checked here, since check_sums only sees those
 * of tensors. */
static bool add_record(struct tfrecord_reader *tfrecord, size_t index, struct range record,
                       struct tc_error *error) {
    struct tf_reader *tf = &tfrecord->tf;
    struct tf_tensor tensor;
    struct tc_text name;
    if (!tf_name(&tf->reader->arena, index, &name, error) || !grow_records(tfrecord, error))
        return false;
    if (find_tensor(tf, record.start + HEAD_BYTES, record.end - TAIL_BYTES, &tensor, error)) {
        tfrecord->records[tf->reader->table.count] = record;
        return tf_tensor_add(tf, &tensor, name, NULL, error) ||
               refused_add(&tf->refused, tf->reader, name, error);
    }
    if (error->class == TC_INVALID || error->class == TC_UNSUPPORTED)
        explain(tf->reader, record.start, record.end, error);
    return refused_add(&tf->refused, tf->reader, name, error);
}

static bool open_tfrecord(struct tc_reader *reader, struct tc_error *error) {
    struct tfrecord_reader *tfrecord = reader->state;
    struct tf_reader *tf = &tfrecord->tf;
    uint64_t size = reader->input->size;
    uint64_t at = 0;
    size_t count = 0;
    tf_reader_init(tf, reader);
    reader->checksum = true;
    if (size == 0)
        return bad(error, 0, "the file is empty");
    while (at < size) {
        uint64_t length;
        if (!read_head(tf, at, &length, error))
            return false;
        struct range record = {at, at + HEAD_BYTES + length + TAIL_BYTES};
        if (!add_record(tfrecord, count++, record, error))
            return false;
        at = record.end;
    }
    return tf_reader_finish(tf, error);
}

static bool read_tfrecord(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                          void *buffer, size_t length, struct tc_error *error) {
    struct tfrecord_reader *tfrecord = reader->state;
    return tf_read(&tfrecord->tf, tensor, offset, buffer, length, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct tfrecord_reader *tfrecord = reader->state;
    return tf_extent(&tfrecord->tf, tensor, extent);
}

/* Neighbouring records that are wanted are read as one range. */
static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    const struct tfrecord_reader *tfrecord = reader->state;
    const struct range *records = tfrecord->records;
    size_t count = reader->table.count;
    struct ahead ahead = {.input = reader->input, .bytes = malloc(VERIFY_BYTES)};
    bool ok = ahead.bytes || tc_fail_memory(error);
    for (size_t i = 0, run = 0; i < count && ok; i++) {
        if (wanted && !wanted[i])
            continue;
        for (run = run > i ? run : i; run < count && (!wanted || wanted[run]);)
            run++;
        ahead.end = records[run - 1].end;
        const struct tc_text *name = &reader->table.tensors[i].name;
        ok = check_record(&ahead, records[i].start, records[i].end, error) ||
             tc_error_in_tensor(error, name->bytes, name->length) ||
             tc_reader_forgive(reader, error);
    }
    free(ahead.bytes);
    return ok;
}

static void close_tfrecord(struct tc_reader *reader) {
    struct tfrecord_reader *tfrecord = reader->state;
    tf_reader_release(&tfrecord->tf);
    free(tfrecord->records);
}

static bool check(struct tc_plan *plan, struct tc_error *error) {
    if (plan->count == 0)
        return tc_fail(error, TC_UNSUPPORTED, "no-tensor",
                       "tfrecord cannot hold no tensors; its file would be empty");
    return tf_check(plan, error);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    (void)error;
    writer->sees_bytes = true; /* for the CRC */
    return true;
}

static bool put(struct tc_writer *writer, size_t index, struct tc_source *source,
                struct tc_error *error) {
    const struct tc_item *item = &writer->plan->items[writer->file->first + index];
    unsigned char around[HEAD_BYTES];
    struct tc_buffer head = {0};
    bool ok = tf_write_head(&head, item, error);
    tc_store(around, head.length + item->nbytes, 8);
    tc_store(around + 8, masked(tc_crc32c(0, around, 8)), 4);
    ok = ok && tc_outfile_write(writer->out, around, HEAD_BYTES, error) &&
         tc_outfile_write(writer->out, head.bytes, head.length, error);
    uint32_t crc = tc_crc32c(0, head.bytes, head.length);
    tc_buffer_release(&head);
    struct tc_chunk *chunk;
    enum tc_next next = TC_NEXT_FAILED;
    while (ok && (next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        crc = tc_crc32c(crc, chunk->bytes, chunk->length);
        ok = tc_outfile_write(writer->out, chunk->bytes, chunk->length, error);
        tc_chunk_release(chunk);
    }
    tc_store(around, masked(crc), TAIL_BYTES);
    return ok && next == TC_NEXT_END && tc_outfile_write(writer->out, around, TAIL_BYTES, error);
}

const struct tc_backend tc_backend_tfrecord = {
    .name = "tfrecord",
    .summary = "TensorFlow records",
    .extensions = (const char *const[]){".tfrecord", ".tfrecords", NULL},
    .mime = "application/octet-stream",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_CHECKSUM | TC_CAN_LOAD_LAZILY | TC_HAS_NO_END,
    .dtypes = TF_DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .probe = probe,
    .reader_size = sizeof(struct tfrecord_reader),
    .open = open_tfrecord,
    .read = read_tfrecord,
    .extent = extent,
    .check_sums = check_sums,
    .close = close_tfrecord,
    .check = check,
    .begin = begin,
    .put = put,
};
