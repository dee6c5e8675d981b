#include <criterion/criterion.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"
#include "core/tensor/dtype.h"

#define PLAN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEAD                                                                                       \
    "{\"tconv_part\":1,\"tconv\":\"1\",\"plan\":\"" PLAN "\",\"format\":\"npz\",\"index\":\"i\","
#define TAIL                                                                                       \
    "\"options\":[\"--x\"],\"inputs\":[{\"path\":\"/a\",\"size\":3}],"                             \
    "\"tensors\":[{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[2,3],\"sha256\":\"" PLAN "\"}]}\n"

#define TENSOR "{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[]}"
#define TENSORS(text) HEAD "\"tensors\":[" text "]}"
#define ONES_16 "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
#define ONES_65 ONES_16 ONES_16 ONES_16 ONES_16 "1"

static enum tc_class read(const char *text, struct tc_part_record *record, struct tc_arena *arena) {
    struct tc_error error = {0};
    bool ok = tc_part_record_read(record, tc_text_of(text), arena, &error);
    cr_assert_eq(ok, error.class == TC_OK, "%s", error.message);
    return error.class;
}

Test(shard_part, a_record_is_read) {
    struct tc_part_record record;
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    cr_assert_eq(read(HEAD "\"shard\":2,\"shards\":3,\"name\":\"n\",\"size\":7,\"sha256\":\"" PLAN
                           "\"," TAIL,
                      &record, &arena),
                 TC_OK);
    cr_assert_eq(record.shard, 2);
    cr_assert_eq(record.shards, 3);
    cr_assert_eq(record.size, 7);
    cr_assert(record.has_sum);
    cr_assert_str_eq(record.sum, PLAN);
    cr_assert(tc_text_equal(record.plan, TC_TEXT(PLAN)));
    cr_assert(tc_text_equal(record.options, TC_TEXT("[\"--x\"]")));
    cr_assert_eq(record.tensor_count, 1);
    cr_assert_eq(record.tensors[0].rank, 2);
    cr_assert_eq(record.tensors[0].shape[1], 3);
    cr_assert_eq(record.tensors[0].dtype, TC_F32);
    cr_assert(record.tensors[0].has_sum);
    cr_assert_eq(record.input_count, 1);
    cr_assert_eq(record.inputs[0].size, 3);
    tc_arena_release(&arena);
}

Test(shard_part, what_is_no_record_is_refused) {
    static const struct {
        const char *text;
        enum tc_class class;
    } cases[] = {
        {"", TC_INVALID},
        {"{}", TC_INVALID},
        {"[]", TC_INVALID},
        {"{\"tconv_part\":2}", TC_INVALID},
        {HEAD "\"shard\":0,\"shards\":3,\"name\":\"n\",\"size\":7," TAIL, TC_INVALID},
        {HEAD "\"shard\":4,\"shards\":3,\"name\":\"n\",\"size\":7," TAIL, TC_INVALID},
        {HEAD "\"shard\":1,\"shards\":9999999,\"name\":\"n\",\"size\":7," TAIL, TC_INVALID},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"../n\",\"size\":7," TAIL, TC_UNSAFE},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"\",\"size\":7," TAIL, TC_UNSAFE},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"n\",\"size\":7,\"other\":1," TAIL, TC_INVALID},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"n\",\"size\":7,\"sha256\":\"00\"," TAIL,
         TC_INVALID},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"n\",\"size\":7}", TC_INVALID},
        {HEAD "\"shard\":1,\"shards\":3,\"name\":\"n\",\"size\":7," TAIL "x", TC_INVALID},
        {HEAD "\"shard\":1,\"shard\":1}", TC_INVALID},
        {HEAD "\"inputs\":[{\"path\":\"/a\",\"mode\":1}]}", TC_INVALID},
        {HEAD "\"inputs\":[{\"path\":\"/a\",\"path\":\"/b\"}]}", TC_INVALID},
        {HEAD "\"inputs\":[{\"size\":1}]}", TC_INVALID},
        {HEAD "\"inputs\":[{\"path\":\"/a\"},x]}", TC_INVALID},
        {HEAD "\"inputs\":{}}", TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\"}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F9\",\"shape\":[]}"), TC_INVALID},
        {TENSORS("{\"dtype\":\"F32\",\"shape\":[]}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[],\"x\":1}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[],\"shape\":[]}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[-1]}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[" ONES_65 "]}"), TC_INVALID},
        {TENSORS("{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[]},x"), TC_INVALID},
        /* The second list is shorter than the first. */
        {HEAD "\"tensors\":[" TENSOR "," TENSOR "," TENSOR "],\"tensors\":[" TENSOR "]}",
         TC_INVALID},
        {HEAD "\"inputs\":[{\"path\":\"a\"},{\"path\":\"b\"}],\"inputs\":[]}", TC_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tc_part_record record;
        struct tc_arena arena;
        tc_arena_init(&arena, 0);
        cr_assert_eq(read(cases[i].text, &record, &arena), cases[i].class, "case %zu", i);
        tc_arena_release(&arena);
    }
}
