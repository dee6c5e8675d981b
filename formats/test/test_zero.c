#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/support.h"
#include "formats/zero/zero.h"

TestSuite(zero, .init = test_folder_make, .fini = test_folder_remove);

#define DATA_FILE(name) TESTDATA "/zero/" name

Test(zero, a_tag_is_a_name_with_white_space_around_it) {
    static const struct {
        const char *text;
        const char *tag; /* NULL: it is none */
    } cases[] = {
        {"global_step1", "global_step1"},
        {"  best\r\n", "best"},
        {"a b\n", "a b"},
        {"../x", "../x"}, /* refused later, as one that leads elsewhere */
        {"", NULL},
        {" \n", NULL},
        {"a\nb", NULL},
        {"a\x01", NULL},
        {"\xff", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tc_text tag;
        bool is = zero_is_tag(cases[i].text, strlen(cases[i].text), &tag);
        cr_assert_eq(is, cases[i].tag != NULL, "case %zu", i);
        if (is)
            cr_assert(tc_text_equal(tag, tc_text_of(cases[i].tag)), "case %zu", i);
    }
}

/* The model file of the tag's folder opens the checkpoint too, where the user says that it is one;
 * by itself it is a file of torch's. */
Test(zero, a_model_file_opens_its_checkpoint) {
    static const char path[] = DATA_FILE("stage2/global_step1/mp_rank_00_model_states.pt");
    struct tc_error error = {0};
    struct tc_reader *whole = test_open(DATA_FILE("stage2/latest"));
    struct tc_reader *again =
        tc_registry_open(path, tc_registry_named("zero"), &test_options, &error);
    cr_assert_not_null(again, "%s", error.message);
    cr_assert_eq(again->table.count, whole->table.count);
    struct tc_reader *alone = test_open(path);
    cr_assert_str_eq(alone->backend->name, "pt");
    tc_reader_close(alone);
    tc_reader_close(again);
    tc_reader_close(whole);
}

Test(zero, shared_parameters_are_tied) {
    struct tc_reader *reader = test_open(DATA_FILE("stage3/latest"));
    const struct tc_tensor *first = test_find(reader, "emb.weight");
    const struct tc_tensor *other = test_find(reader, "head.weight");
    cr_assert(first->tie && first->tie == other->tie);
    cr_assert_eq(tc_table_source(&reader->table, (size_t)(other - reader->table.tensors)),
                 (size_t)(first - reader->table.tensors));
    cr_assert_eq(test_find(reader, "fixed.weight")->dtype, TC_BF16);
    tc_reader_close(reader);
}
