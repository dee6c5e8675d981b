/* Tensors that share their data, in a plan, with a made-up format that can share. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/format/aliases.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "core/plan/ties.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"
#include "core/test/temporary.h"

#define ROW_BYTES 8u
#define TENSOR_BYTES 16u

static const uint64_t shape[] = {2, 2};
static char folder[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 16];
static char output[TEST_PATH_MAX + 16];
static struct tc_format_options format_options;
static struct tc_reader *reader;
static struct tc_plan plan;
static struct tc_error error;
static size_t puts_seen;

/* Tensors a, b, c, d of sixteen bytes, of which b and d share the data of a; the bytes
 * show which tensor they belong to. */
static bool open_made(struct tc_reader *made, struct tc_error *failure) {
    static const char *const names[] = {"a", "b", "c", "d"};
    static const uint64_t offsets[] = {0, 0, 1, 0};
    for (size_t i = 0; i < 4; i++) {
        struct tc_tensor tensor = {.name = tc_text_of(names[i]),
                                   .shape = shape,
                                   .rank = 2,
                                   .dtype = TC_F32,
                                   .nbytes = TENSOR_BYTES,
                                   .offset = offsets[i]};
        if (!tc_table_add(&made->table, &tensor, failure))
            return false;
    }
    tc_table_tie(&made->table, 0, 1);
    tc_table_tie(&made->table, 1, 3);
    return true;
}

static bool read_made(struct tc_reader *made, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *failure) {
    (void)made;
    (void)failure;
    for (size_t i = 0; i < length; i++)
        ((char *)buffer)[i] = (char)(0x10 * (tensor->offset + 1) + offset + i);
    return true;
}

static void close_made(struct tc_reader *made) {
    (void)made;
}

static int probe_made(const struct tc_probe *probe) {
    (void)probe;
    return 0;
}

static bool begin_made(struct tc_writer *writer, struct tc_error *failure) {
    (void)writer;
    (void)failure;
    return true;
}

static bool put_made(struct tc_writer *writer, size_t item, struct tc_source *source,
                     struct tc_error *failure) {
    cr_assert_eq(writer->plan->items[writer->file->first + item].tied, 0);
    puts_seen++;
    return tc_source_write(source, writer->out, failure);
}

static bool leave_room_made(struct tc_writer *writer, size_t item, struct tc_error *failure) {
    (void)failure;
    tc_outfile_skip(writer->out, writer->plan->items[writer->file->first + item].nbytes);
    return true;
}

static void abort_made(struct tc_writer *writer) {
    (void)writer;
}

static bool write_index_made(const struct tc_plan *made, struct tc_outfile *out,
                             struct tc_error *failure) {
    (void)made;
    return tc_outfile_write(out, "index", 5, failure);
}

static struct tc_backend backend = {
    .name = "made",
    .extensions = (const char *const[]){".made", NULL},
    .dtypes = TC_SET(TC_F32) | TC_SET(TC_F64),
    .max_rank = 8,
    .max_name = 100,
    .probe = probe_made,
    .open = open_made,
    .read = read_made,
    .close = close_made,
    .begin = begin_made,
    .put = put_made,
    .finish = begin_made,
    .abort = abort_made,
    .sharding = &(const struct tc_sharding){.count_digits = 5,
                                            .index_ending = ".index",
                                            .leave_room = leave_room_made,
                                            .write_index = write_index_made},
};

static void setup(void) {
    test_temporary_folder(folder);
    snprintf(path, sizeof path, "%s/in", folder);
    snprintf(output, sizeof output, "%s/out.made", folder);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fclose(file) == 0);
    backend.caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_TIE;
    format_options = (struct tc_format_options){.limits = TC_LIMITS_DEFAULT};
    error = (struct tc_error){0};
    puts_seen = 0;
    struct tc_input *input = tc_input_open(path, NULL, &error);
    reader = input ? tc_reader_open(&backend, input, &format_options, &error) : NULL;
    cr_assert_not_null(reader, "%s", error.message);
}

static void teardown(void) {
    tc_plan_release(&plan);
    tc_reader_close(reader);
    test_remove_folder(folder);
}

TestSuite(ties, .init = setup, .fini = teardown);

static bool make_plan(const struct tc_plan_options *options) {
    return tc_plan_make(&plan, &reader, 1, &backend, output, options, &error);
}

static const struct tc_item *item_named(const char *name) {
    for (size_t i = 0; i < plan.count; i++)
        if (tc_text_equal(plan.items[i].name, tc_text_of(name)))
            return &plan.items[i];
    return NULL;
}

static size_t count_entries(enum tc_severity severity, enum tc_kind kind) {
    return tc_notes_count(&plan.notes, severity, kind);
}

/* The name of the tensor whose data another shares; "" where it shares none. */
static void expect_kept(const char *name, const char *kept) {
    const struct tc_item *item = item_named(name);
    cr_assert_not_null(item, "%s", name);
    const struct tc_item *found = tc_ties_kept(&plan, item);
    cr_assert(tc_text_equal(found ? found->name : TC_TEXT(""), tc_text_of(kept)), "%s", name);
}

static void expect_output(const char *name, const char *tensors) {
    char file[TEST_PATH_MAX + 64];
    char bytes[128];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *stream = fopen(file, "rb");
    cr_assert_not_null(stream, "%s", file);
    size_t length = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    cr_assert_eq(length, strlen(tensors) * TENSOR_BYTES, "%zu bytes in %s", length, name);
    for (size_t i = 0; i < length; i++)
        cr_assert_eq((unsigned char)bytes[i],
                     (tensors[i / TENSOR_BYTES] == 'c' ? 0x20 : 0x10) + i % TENSOR_BYTES);
}

static void convert(void) {
    struct tc_convert_options run = {.publish = {.no_sync = true}};
    cr_assert(tc_convert(&plan, output, &run, &error), "%s", error.message);
}

Test(ties, groups_know_their_first) {
    static const uint32_t expected[] = {1, 1, 0, 1};
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(reader->table.tensors[i].tie, expected[i]);
}

Test(ties, are_kept_where_the_target_can_share) {
    static const struct tc_plan_options keep = {.tied = TC_TIED_KEEP, .order = TC_ORDER_NAME};
    cr_assert(make_plan(&keep), "%s", error.message);
    expect_kept("a", ""), expect_kept("b", "a"), expect_kept("c", ""), expect_kept("d", "a");
    cr_assert_eq(item_named("b")->tied, item_named("a")->place + 1);
    cr_assert_eq(item_named("b")->nbytes, TENSOR_BYTES);
    cr_assert_eq(plan.bytes_out, 2 * TENSOR_BYTES);
    cr_assert_eq(plan.bytes_in, 2 * TENSOR_BYTES);
    cr_assert_eq(plan.files[0].nbytes, 2 * TENSOR_BYTES);
    cr_assert_eq(plan.notes.count, 0, "nothing changed");
    convert();
    cr_assert_eq(puts_seen, 2);
    expect_output("out.made", "ac");
}

Test(ties, are_copied_when_asked_or_where_the_target_cannot) {
    static const struct tc_plan_options copy = {.tied = TC_TIED_COPY};
    static const struct tc_plan_options plain = {0};
    cr_assert(make_plan(&copy), "%s", error.message);
    expect_kept("b", "");
    cr_assert_eq(count_entries(TC_CHANGE, TC_KIND_TIES), 2);
    cr_assert_eq(plan.notes.count, 1, "one text for all");
    tc_plan_release(&plan);
    backend.caps &= ~(unsigned)TC_CAN_TIE;
    cr_assert(make_plan(&plain), "%s", error.message);
    cr_assert_eq(count_entries(TC_CHANGE, TC_KIND_TIES), 2);
    cr_assert_eq(plan.bytes_out, 4 * TENSOR_BYTES);
    convert();
    cr_assert_eq(puts_seen, 4);
    expect_output("out.made", "abca");
}

Test(ties, the_first_that_is_taken_is_kept) {
    struct tc_select select;
    tc_select_init(&select);
    cr_assert(tc_select_exclude(&select, "^a$", &error));
    struct tc_plan_options options = {.select = &select};
    cr_assert(make_plan(&options), "%s", error.message);
    expect_kept("b", ""), expect_kept("c", ""), expect_kept("d", "b");
    convert();
    expect_output("out.made", "bc");
    tc_select_release(&select);
}

Test(ties, what_differs_in_rows_or_dtype_has_its_own_data) {
    struct tc_select select;
    struct tc_policy policy = {0};
    tc_select_init(&select);
    cr_assert(tc_select_rows(&select, "b=0:1", &error));
    cr_assert(tc_policy_add(&policy, "^d$=F64", &error));
    struct tc_plan_options options = {.select = &select, .policy = &policy};
    cr_assert(make_plan(&options), "%s", error.message);
    expect_kept("b", ""), expect_kept("d", "");
    cr_assert_eq(plan.bytes_out, 2 * TENSOR_BYTES + ROW_BYTES + 2 * TENSOR_BYTES);
    cr_assert_eq(count_entries(TC_CHANGE, TC_KIND_TIES), 2);
    tc_plan_release(&plan);
    tc_select_release(&select);
    tc_select_init(&select);
    for (const char *const *rule = (const char *const[]){"a=0:1", "b=0:1", "d=0:1", NULL}; *rule;
         rule++)
        cr_assert(tc_select_rows(&select, *rule, &error));
    options.policy = NULL;
    cr_assert(make_plan(&options), "%s", error.message);
    expect_kept("b", "a"), expect_kept("d", "a");
    cr_assert_eq(plan.bytes_out, TENSOR_BYTES + ROW_BYTES);
    tc_select_release(&select);
    tc_policy_release(&policy);
}

Test(ties, are_undone_between_files) {
    static const struct tc_plan_options options = {.shard_size = TENSOR_BYTES};
    cr_assert(make_plan(&options), "%s", error.message);
    cr_assert_eq(plan.file_count, 3, "b adds nothing to a's shard");
    expect_kept("b", "a"), expect_kept("d", "");
    cr_assert_eq(count_entries(TC_CHANGE, TC_KIND_TIES), 1);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(plan.files[i].nbytes, TENSOR_BYTES);
    cr_assert_eq(plan.bytes_out, 3 * TENSOR_BYTES);
    convert();
    cr_assert_eq(puts_seen, 3);
    expect_output("out-00001-of-00003.made", "a");
    expect_output("out-00002-of-00003.made", "c");
    expect_output("out-00003-of-00003.made", "a");
}

Test(ties, may_be_an_error) {
    static const struct tc_plan_options options = {.tied = TC_TIED_ERROR};
    cr_assert_not(make_plan(&options));
    cr_assert_eq(error.class, TC_UNSUPPORTED);
    cr_assert_str_eq(error.code, "ties");
    cr_assert_str_eq(error.tensor, "b");
    cr_assert(strstr(error.message, "\"a\""), "%s", error.message);
}

Test(ties, copies_count_as_made_from_nothing) {
    static const struct tc_plan_options copy = {.tied = TC_TIED_COPY};
    format_options.limits.made = 2 * TENSOR_BYTES - 1;
    cr_assert_not(make_plan(&copy));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert(strstr(error.hint, "--max-size"), "%s", error.hint);
    tc_plan_release(&plan);
    error = (struct tc_error){0};
    format_options.limits.made++;
    cr_assert(make_plan(&copy), "%s", error.message);
}

Test(ties, names_go_to_the_metadata) {
    static const struct tc_plan_options keep = {.tied = TC_TIED_KEEP};
    backend.caps &= ~(unsigned)TC_CAN_TIE;
    cr_assert_not(make_plan(&keep));
    cr_assert_str_eq(error.code, "ties");
    cr_assert(strstr(error.hint, "sidecar"), "%s", error.hint);
    tc_plan_release(&plan);
    error = (struct tc_error){0};
    backend.caps |= TC_CAN_FILE_METADATA;
    cr_assert(make_plan(&keep), "%s", error.message);
    cr_assert_eq(plan.count, 2);
    /* Aliases without a dot are not recognised by themselves, so there is a list. */
    cr_assert_eq(plan.metadata.count, 3);
    cr_assert_eq(plan.files[0].metadata.count, 3);
    const struct tc_text *list = tc_metadata_find(&plan.metadata, TC_TEXT(TC_ALIASES_KEY));
    cr_assert(list && tc_text_equal(*list, TC_TEXT("[\"b\",\"d\"]")));
    for (const char *const *alias = (const char *const[]){"b", "d", NULL}; *alias; alias++) {
        const struct tc_text *kept = tc_metadata_find(&plan.metadata, tc_text_of(*alias));
        cr_assert(kept && tc_text_equal(*kept, TC_TEXT("a")), "%s", *alias);
    }
    cr_assert_eq(count_entries(TC_CHANGE, TC_KIND_TIES), 2);
    cr_assert_eq(count_entries(TC_LOSS, TC_KIND_METADATA), 0);
    convert();
    expect_output("out.made", "ac");
}

Test(ties, metadata_that_differs_is_a_loss_and_a_name_that_is_a_key_a_copy) {
    struct tc_pair pairs[] = {{TC_TEXT("k"), TC_TEXT("v")}};
    struct tc_metadata metadata = {.pairs = pairs, .count = 1};
    struct tc_pair extra_pairs[] = {{TC_TEXT("d"), TC_TEXT("taken")}};
    struct tc_metadata extra = {.pairs = extra_pairs, .count = 1};
    struct tc_plan_options keep = {.tied = TC_TIED_KEEP, .extra_metadata = &extra};
    backend.caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA;
    reader->table.tensors[1].metadata = &metadata;
    cr_assert(make_plan(&keep), "%s", error.message);
    cr_assert_eq(plan.count, 3);
    cr_assert_eq(count_entries(TC_LOSS, TC_KIND_METADATA), 1);
    const struct tc_text *taken = tc_metadata_find(&plan.metadata, TC_TEXT("d"));
    cr_assert(taken && tc_text_equal(*taken, TC_TEXT("taken")));
    cr_assert_not_null(item_named("d"));
    cr_assert_null(item_named("b"));
}

static void add_pair(const char *key, const char *value) {
    cr_assert(tc_metadata_add(&reader->table.metadata, &reader->arena, tc_text_of(key),
                              tc_text_of(value), &error));
}

/* Any name may be the value of an alias. */
Test(ties, metadata_whose_value_is_a_name_is_no_alias_whatever_the_name) {
    static const char *const names[] = {"", "format", "tconv.x", "plain"};
    static const struct tc_plan_options options = {0};
    backend.caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA;
    backend.empty_name = true;
    add_pair("a.value", "c");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        reader->table.tensors[2].name = tc_text_of(names[i]);
        reader->table.metadata.pairs[0].value = tc_text_of(names[i]);
        cr_assert(make_plan(&options), "%s", error.message);
        const struct tc_text *list = tc_metadata_find(&plan.metadata, TC_TEXT(TC_ALIASES_KEY));
        cr_assert(list && tc_text_equal(*list, TC_TEXT("[]")), "\"%s\"", names[i]);
        tc_plan_release(&plan);
    }
    cr_assert(make_plan(&options), "%s", error.message);
}

Test(ties, restored_from_metadata_by_what_it_says) {
    backend.caps &= ~(unsigned)TC_CAN_TIE;
    add_pair("a", "c"), add_pair("an.alias", "c"), add_pair("a.chain", "an.alias");
    add_pair("deathtensors.x", "c"), add_pair("format", "c"), add_pair("note", "c");
    add_pair("an.other", "b"), add_pair("tconv.x", "c"), add_pair("", "c");
    cr_assert(tc_metadata_sort(&reader->table.metadata, &error));
    cr_assert(tc_aliases_restore(reader, &error), "%s", error.message);
    cr_assert_eq(reader->table.count, 6);
    const struct tc_tensor *alias = tc_table_find(&reader->table, TC_TEXT("an.alias"));
    const struct tc_tensor *other = tc_table_find(&reader->table, TC_TEXT("an.other"));
    cr_assert(alias && other);
    cr_assert_eq(alias->offset, 1);
    cr_assert_eq(alias->tie, 3);
    cr_assert_eq(reader->table.tensors[2].tie, 3);
    cr_assert_eq(other->tie, 1, "the first of the whole group");
    cr_assert_eq(reader->table.metadata.count, 7);
    cr_assert_null(tc_metadata_find(&reader->table.metadata, TC_TEXT("an.alias")));
    cr_assert_not_null(tc_metadata_find(&reader->table.metadata, TC_TEXT("a.chain")));
}

Test(ties, restoring_leaves_formats_that_share_alone_and_keeps_to_the_limit) {
    add_pair("an.alias", "c");
    cr_assert(tc_aliases_restore(reader, &error));
    cr_assert_eq(reader->table.count, 4);
    cr_assert_eq(reader->table.metadata.count, 1);
    backend.caps &= ~(unsigned)TC_CAN_TIE;
    reader->table.max_tensors = 4;
    cr_assert_not(tc_aliases_restore(reader, &error));
    cr_assert_str_eq(error.code, "tensor-limit");
}
