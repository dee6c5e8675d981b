#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/io/listing.h"
#include "formats/model_folder.h"
#include "formats/model_name.h"
#include "formats/registry.h"

static struct tc_listing listing;
static struct model_folder folder;
static struct tc_error error;

static void setup(void) {
    tc_listing_init(&listing);
    folder = (struct model_folder){0};
    error = (struct tc_error){0};
}

static void teardown(void) {
    model_folder_release(&folder);
    tc_listing_release(&listing);
}

TestSuite(model_folder, .init = setup, .fini = teardown);

static void add(const char *name, enum tc_entry_kind kind) {
    const struct tc_entry entry = {.name = tc_text_of(name), .size = 8, .kind = kind};
    cr_assert(tc_listing_add(&listing, &entry, &error), "%s", error.message);
}

/* Names with spaces between them; one with a slash at its end is a folder. */
static void add_all(const char *names) {
    char copy[4096];
    char *at = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, " ", &at); name; name = strtok_r(NULL, " ", &at)) {
        size_t length = strlen(name);
        bool is_folder = name[length - 1] == '/';
        if (is_folder)
            name[length - 1] = '\0';
        add(name, is_folder ? TC_ENTRY_FOLDER : TC_ENTRY_FILE);
    }
    tc_listing_sort(&listing);
}

static bool find(const char *format, const char *variant) {
    const struct model_wanted wanted = {.format = format ? tc_registry_named(format) : NULL,
                                        .variant = variant};
    model_folder_release(&folder);
    error = (struct tc_error){0};
    return model_folder_find(&folder, &listing, &wanted, &error);
}

static void expect(const char *names, const char *format, const char *variant, const char *file) {
    teardown();
    setup();
    add_all(names);
    cr_assert(find(format, variant), "%s: %s", names, error.message);
    cr_assert(tc_text_equal(folder.models[0].files[0], tc_text_of(file)), "%s: got %s", names,
              folder.models[0].files[0].bytes);
}

Test(model_folder, transformers_order) {
    static const char *const order[] = {"model.safetensors",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin",
                                        "pytorch_model.bin.index.json",
                                        "diffusion_pytorch_model.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.bin",
                                        "diffusion_pytorch_model.bin.index.json",
                                        "model.deathtensors",
                                        "adapter_model.bin",
                                        "weights.safetensors",
                                        "weights.deathtensors",
                                        "weights.npz",
                                        "weights.onnx",
                                        "weights.pt",
                                        "model.fp16.safetensors"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        teardown();
        setup();
        for (size_t k = sizeof order / sizeof *order; k-- > i;)
            add(order[k], TC_ENTRY_FILE);
        add_all("README.md config.json optimizer.pt training_args.bin x/");
        cr_assert(find(NULL, NULL), "%s", error.message);
        cr_assert(tc_text_equal(folder.models[0].files[0], tc_text_of(order[i])), "%s before %s",
                  folder.models[0].files[0].bytes, order[i]);
        cr_assert_eq(folder.count, sizeof order / sizeof *order - i);
    }
}

Test(model_folder, the_format_picks) {
    const char *both = "model.safetensors pytorch_model-00001-of-00002.bin "
                       "pytorch_model-00002-of-00002.bin pytorch_model.bin.index.json";
    expect(both, NULL, NULL, "model.safetensors");
    expect(both, "pt", NULL, "pytorch_model.bin.index.json");
    expect(both, "index", NULL, "pytorch_model.bin.index.json");
    cr_assert_not(find("npz", NULL));
    cr_assert_eq(error.class, TC_IO);
    cr_assert_str_eq(error.code, "not-a-file");
    cr_assert(strstr(error.message, "npz model") && strstr(error.message, "model.safetensors"));
}

Test(model_folder, variants) {
    const char *files = "model.safetensors model.fp16.safetensors pytorch_model.fp16.bin "
                        "other.bf16.pt";
    expect(files, NULL, NULL, "model.safetensors");
    expect(files, NULL, "fp16", "model.fp16.safetensors");
    expect(files, "pt", "fp16", "pytorch_model.fp16.bin");
    expect(files, NULL, "bf16", "other.bf16.pt");
    expect("model.safetensors.index.fp16.json model.fp16-00001-of-00002.safetensors "
           "model.fp16-00002-of-00002.safetensors model.safetensors",
           NULL, "fp16", "model.safetensors.index.fp16.json");
    cr_assert_eq(folder.count, 1);
    expect("model-00001-of-00002.fp16.safetensors model-00002-of-00002.fp16.safetensors", NULL,
           "fp16", "model-00001-of-00002.fp16.safetensors");
    cr_assert_eq(folder.models[0].form, MODEL_SHARDS);
    cr_assert_eq(folder.models[0].count, 2);
    /* The only one there is. */
    expect("model.fp16.safetensors", NULL, NULL, "model.fp16.safetensors");
    cr_assert_not(find(NULL, "int8"));
    cr_assert(strstr(error.message, "int8"));
    cr_assert_not(find(NULL, "../x"));
    cr_assert_eq(error.class, TC_USAGE);
    cr_assert_not(find(NULL, ""));
    cr_assert_eq(error.class, TC_USAGE);
}

Test(model_folder, shards_without_an_index) {
    expect("a-2-of-3.safetensors a-1-of-3.safetensors a-3-of-3.safetensors", NULL, NULL,
           "a-1-of-3.safetensors");
    cr_assert_eq(folder.count, 1);
    cr_assert_eq(folder.models[0].count, 3);
    cr_assert_eq(folder.models[0].missing, 0);
    expect("a-00010-of-00011.pt a-00002-of-00011.pt", NULL, NULL, "a-00002-of-00011.pt");
    cr_assert_eq(folder.models[0].missing, 9);
    /* Counted from nought. */
    expect("a-00000-of-00002.pt a-00001-of-00002.pt", NULL, NULL, "a-00000-of-00002.pt");
    cr_assert_eq(folder.models[0].missing, 0);
    /* Whole ones before others, an index before both. */
    expect("a-1-of-2.pt b-1-of-1.pt", NULL, NULL, "b-1-of-1.pt");
    expect("m-00001-of-0002.deathtensors m-00002-of-0002.deathtensors m.deathtensors", NULL, NULL,
           "m.deathtensors");
    cr_assert_eq(folder.count, 1);
    /* No shards: a number too high, or one that occurs twice. */
    expect("a-1-of-2.pt a-3-of-2.pt", NULL, NULL, "a-1-of-2.pt");
    cr_assert_eq(folder.models[0].form, MODEL_FILE);
    expect("a-1-of-2.pt a-01-of-2.pt a-2-of-2.pt", NULL, NULL, "a-01-of-2.pt");
    cr_assert_eq(folder.models[0].form, MODEL_FILE);
    expect("a-1-of-999999999.pt a-1-of-0.pt", NULL, NULL, "a-1-of-0.pt");
}

Test(model_folder, arrays_are_one_model) {
    expect("b.npy a.npy c.d.npy README.md", NULL, NULL, "a.npy");
    cr_assert_eq(folder.count, 1);
    cr_assert_eq(folder.models[0].form, MODEL_ARRAYS);
    cr_assert_eq(folder.models[0].count, 3);
    expect("b.npy a.npy x.pt", NULL, NULL, "x.pt");
    expect("b.npy a.npy x.pt", "npy", NULL, "a.npy");
}

Test(model_folder, what_is_no_model) {
    teardown();
    setup();
    add("model.safetensors", TC_ENTRY_SPECIAL);
    add("pytorch_model.bin", TC_ENTRY_BROKEN);
    add("model.npz", TC_ENTRY_FOLDER);
    add_all("optimizer.pt optimizer-00001-of-00001.bin scheduler.pt rng_state_0.pth "
            "training_args.bin random_states_0.pkl .hidden.safetensors");
    cr_assert_not(find(NULL, NULL));
    cr_assert_eq(error.class, TC_IO);
    cr_assert(strstr(error.message, "model.npz/"));
    cr_assert(strstr(error.message, "model.safetensors (no file)"));
    cr_assert(strstr(error.message, "pytorch_model.bin (a broken link)"));
    cr_assert(strstr(error.hint, "folders"));
    teardown();
    setup();
    cr_assert_not(find(NULL, NULL));
    cr_assert(strstr(error.message, "empty"));
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "text-%03d.txt", i);
        add(name, TC_ENTRY_FILE);
    }
    tc_listing_sort(&listing);
    cr_assert_not(find(NULL, NULL));
    cr_assert(strstr(error.message, "and 88 more"));
}

Test(model_folder, the_choice_is_told) {
    struct tc_buffer text = {0};
    expect("model.safetensors", NULL, NULL, "model.safetensors");
    model_folder_tell(&folder, &text);
    cr_assert_eq(text.length, 0);
    expect("model.safetensors pytorch_model.bin a.npy b.npy", NULL, NULL, "model.safetensors");
    model_folder_tell(&folder, &text);
    tc_buffer_add(&text, "", 1);
    cr_assert_str_eq(text.bytes, "model.safetensors is read, not pytorch_model.bin, 2 .npy files; "
                                 "-f, --variant or the file's own name choose another");
    tc_buffer_release(&text);
}

Test(model_folder, names_are_taken_apart) {
    static const struct {
        const char *name;
        const char *stem;
        const char *variant;
        const char *extension;
        uint32_t number;
        uint32_t total;
        bool is_index;
    } names[] = {
        {"model.safetensors", "model", "", ".safetensors", 0, 0, false},
        {"model.fp16.safetensors", "model", "fp16", ".safetensors", 0, 0, false},
        {"model.fp16-00001-of-00002.safetensors", "model", "fp16", ".safetensors", 1, 2, false},
        {"model-00001-of-00002.fp16.safetensors", "model", "fp16", ".safetensors", 1, 2, false},
        {"model.safetensors.index.json", "model", "", ".safetensors", 0, 0, true},
        {"model.safetensors.index.fp16.json", "model", "fp16", ".safetensors", 0, 0, true},
        {"consolidated.safetensors", "consolidated", "", ".safetensors", 0, 0, false},
        {"consolidated.00.pth", "consolidated.00", "", ".pth", 0, 0, false},
        {"llama.7b.safetensors", "llama.7b", "", ".safetensors", 0, 0, false},
        {"-1-of-2.pt", "-1-of-2", "", ".pt", 0, 0, false},
        {"x-1234567890-of-2.pt", "x-1234567890-of-2", "", ".pt", 0, 0, false},
        {".safetensors", ".safetensors", "", "", 0, 0, false},
        {"config.json", "config.json", "", "", 0, 0, false},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model_name name =
            model_name_parse(tc_text_of(names[i].name), (struct tc_text){NULL, 0});
        cr_assert(tc_text_equal(name.stem, tc_text_of(names[i].stem)), "%s", names[i].name);
        cr_assert(tc_text_equal(name.variant, tc_text_of(names[i].variant)), "%s", names[i].name);
        cr_assert(tc_text_equal(name.extension, tc_text_of(names[i].extension)), "%s",
                  names[i].name);
        cr_assert_eq(name.is_index, names[i].is_index, "%s", names[i].name);
        cr_assert_eq(name.is_shard, names[i].total != 0, "%s", names[i].name);
        cr_assert(!name.is_shard ||
                  (name.number == names[i].number && name.total == names[i].total));
    }
}

Test(model_folder, limits) {
    for (unsigned i = 0; i < 100000; i++) {
        char name[48];
        snprintf(name, sizeof name, "x-%u-of-%u.safetensors", 1 + i % 300, 1 + i);
        add(name, TC_ENTRY_FILE);
    }
    const struct tc_entry more = {.name = TC_TEXT("more"), .kind = TC_ENTRY_FILE};
    size_t count = listing.count;
    size_t capacity = listing.capacity;
    listing.count = listing.capacity = TC_MAX_FOLDER_ENTRIES;
    cr_assert_not(tc_listing_add(&listing, &more, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_str_eq(error.code, "folder-limit");
    error = (struct tc_error){0};
    listing.count = count;
    listing.capacity = capacity;
    tc_listing_sort(&listing);
    cr_assert(find(NULL, NULL), "%s", error.message);
    static const char *const bad[] = {"", ".", "..", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct tc_entry entry = {.name = tc_text_of(bad[i]), .kind = TC_ENTRY_FILE};
        error = (struct tc_error){0};
        cr_assert_not(tc_listing_add(&listing, &entry, &error));
        cr_assert_eq(error.class, TC_UNSAFE);
    }
}
