/* Keys, signatures, reading receipts, and names in rules for make. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/depfile.h"
#include "core/convert/receipt.h"
#include "core/io/sha256.h"
#include "core/test/temporary.h"

static struct tc_arena arena;
static struct tc_error error;

static void setup(void) {
    tc_arena_init(&arena, 0);
    error = (struct tc_error){0};
}

static void teardown(void) {
    tc_arena_release(&arena);
}

TestSuite(receipt, .init = setup, .fini = teardown);

/* RFC 8032, 7.1, test 2. */
Test(receipt, signs_as_the_standard_says) {
    static const char seed[] = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    static const char key[] = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    static const char expected[] =
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
    unsigned char secret[TC_KEY_BYTES];
    unsigned char public[TC_KEY_BYTES];
    unsigned char signature[TC_SIGNATURE_BYTES];
    char hex[2 * TC_SIGNATURE_BYTES + 1];
    cr_assert(tc_unhex(seed, strlen(seed), secret, sizeof secret));
    cr_assert(tc_sign(secret, "\x72", 1, signature, public));
    tc_hex(public, sizeof public, hex);
    cr_assert_str_eq(hex, key);
    tc_hex(signature, sizeof signature, hex);
    cr_assert_str_eq(hex, expected);
    cr_assert(tc_signature_valid(public, "\x72", 1, signature));
    cr_assert_not(tc_signature_valid(public, "\x73", 1, signature));
    signature[0] ^= 1;
    cr_assert_not(tc_signature_valid(public, "\x72", 1, signature));
}

Test(receipt, hexadecimal_is_strict) {
    unsigned char bytes[2];
    cr_assert(tc_unhex("00ff", 4, bytes, 2) && bytes[0] == 0 && bytes[1] == 255);
    cr_assert_not(tc_unhex("00FF", 4, bytes, 2));
    cr_assert_not(tc_unhex("00f", 3, bytes, 2));
    cr_assert_not(tc_unhex("00f ", 4, bytes, 2));
    cr_assert_not(tc_unhex("00f\0", 4, bytes, 2));
}

static bool read_key_text(const char *text, size_t length, const char *kind) {
    unsigned char key[TC_KEY_BYTES];
    char path[TEST_PATH_MAX];
    int fd = test_temporary_file(path);
    error = (struct tc_error){0};
    cr_assert(write(fd, text, length) == (ssize_t)length && close(fd) == 0);
    bool ok = tc_key_read(path, kind, key, &error);
    unlink(path);
    return ok;
}

Test(receipt, keys_are_read_as_they_are_written) {
    unsigned char secret[TC_KEY_BYTES];
    unsigned char public[TC_KEY_BYTES];
    struct tc_buffer text = {0};
    cr_assert(tc_key_make(secret, public));
    tc_key_print(&text, TC_KEY_SECRET, secret);
    cr_assert(read_key_text(text.bytes, text.length, TC_KEY_SECRET), "%s", error.message);
    cr_assert(read_key_text(text.bytes, text.length - 1, TC_KEY_SECRET), "without its newline");
    cr_assert_not(read_key_text(text.bytes, text.length, TC_KEY_PUBLIC), "a key of another kind");
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_not(read_key_text(text.bytes, text.length - 2, TC_KEY_SECRET));
    cr_assert_not(read_key_text("", 0, TC_KEY_SECRET));
    tc_buffer_release(&text);
}

#define SUM "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define BODY                                                                                       \
    "{\"tconv_receipt\":1,\"x\":[{}],\"outputs\":[{\"name\":\"a\",\"size\":0,\"sha256\":\"" SUM    \
    "\"},{\"name\":\"b\",\"size\":7,\"sha256\":\"" SUM "\"}]}"

static enum tc_class read_text(struct tc_receipt *receipt, const char *text) {
    error = (struct tc_error){0};
    cr_assert_eq(tc_receipt_read(receipt, text, strlen(text), &arena, &error),
                 error.class == TC_OK);
    return error.class;
}

Test(receipt, what_is_wrapped_is_read_and_its_signature_holds) {
    unsigned char secret[TC_KEY_BYTES];
    unsigned char public[TC_KEY_BYTES];
    struct tc_buffer text = {.bytes = (char[]){BODY}, .length = strlen(BODY)};
    struct tc_buffer file = {0};
    struct tc_receipt receipt;
    cr_assert(tc_key_make(secret, public));
    cr_assert(tc_receipt_wrap(&file, &text, secret, &error));
    cr_assert(tc_receipt_read(&receipt, file.bytes, file.length, &arena, &error), "%s",
              error.message);
    cr_assert(receipt.is_signed);
    cr_assert(tc_text_equal(receipt.text, TC_TEXT(BODY)));
    cr_assert(memcmp(receipt.public, public, sizeof public) == 0);
    cr_assert(
        tc_signature_valid(public, receipt.text.bytes, receipt.text.length, receipt.signature));
    cr_assert_eq(receipt.count, 2);
    cr_assert(tc_text_equal(receipt.outputs[1].name, TC_TEXT("b")));
    cr_assert_eq(receipt.outputs[1].size, 7);
    cr_assert_str_eq(receipt.outputs[0].sum, SUM);
    tc_buffer_release(&file);
    cr_assert(tc_receipt_wrap(&file, &text, NULL, &error));
    cr_assert_str_eq(file.bytes, "{\"receipt\":" BODY "}\n");
    cr_assert_eq(read_text(&receipt, file.bytes), TC_OK);
    cr_assert_not(receipt.is_signed);
    tc_buffer_release(&file);
}

Test(receipt, others_are_refused) {
    static const struct {
        const char *text;
        enum tc_class class;
    } cases[] = {
        {"{}", TC_INVALID},
        {"[]", TC_INVALID},
        {"{\"receipt\":{}}", TC_INVALID},
        {"{\"receipt\":" BODY "} x", TC_INVALID},
        {"{\"receipt\":" BODY ",\"receipt\":" BODY "}", TC_INVALID},
        {"{\"receipt\":" BODY ",\"other\":1}", TC_INVALID},
        {"{\"receipt\":" BODY ",\"signature\":{}}", TC_INVALID},
        {"{\"receipt\":" BODY ",\"signature\":{\"algorithm\":\"rsa\"}}", TC_UNSUPPORTED},
        {"{\"receipt\":" BODY ",\"signature\":{\"algorithm\":\"ed25519\",\"public_key\":\"00\","
         "\"value\":\"\"}}",
         TC_INVALID},
        {"{\"receipt\":{\"tconv_receipt\":2,\"outputs\":[]}}", TC_UNSUPPORTED},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[{}]}}", TC_INVALID},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[],\"outputs\":[]}}", TC_INVALID},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[{\"name\":\"../a\",\"size\":0,"
         "\"sha256\":\"" SUM "\"}]}}",
         TC_UNSAFE},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[{\"name\":\"a\",\"size\":-1,"
         "\"sha256\":\"" SUM "\"}]}}",
         TC_INVALID},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[{\"name\":\"a\",\"size\":1,"
         "\"sha256\":\"00\"}]}}",
         TC_INVALID},
        {"{\"receipt\":{\"tconv_receipt\":1,\"outputs\":[{\"name\":\"a\",\"size\":1,"
         "\"sha256\":\"" SUM "\"},{\"name\":\"a\",\"size\":1,\"sha256\":\"" SUM "\"}]}}",
         TC_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tc_receipt receipt;
        cr_assert_eq(read_text(&receipt, cases[i].text), cases[i].class, "%s: %s", cases[i].text,
                     error.message);
    }
}

Test(receipt, dates) {
    struct tc_buffer text = {0};
    tc_date_print(&text, 0, "Z");
    tc_buffer_add_string(&text, " ");
    tc_date_print(&text, 1794813000, "+00:00");
    cr_assert_str_eq(text.bytes, "1970-01-01T00:00:00Z 2026-11-16T07:10:00+00:00");
    tc_buffer_release(&text);
}

Test(receipt, inputs_that_could_be_rules_have_whole_paths) {
    static const char *const kept[] = {"in.npz",      "a/b.npz", "./in.npz",
                                       "../x/in.npz", "/clean",  "a/.hidden.npz"};
    static const char *const whole[] = {"clean", "a.",      ".PHONY", ".c", ".c.o",
                                        "-lm.a", "./clean", "../all", "-"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char *path = tc_depfile_path(kept[i]);
        cr_assert_str_eq(path, kept[i]);
        free(path);
    }
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        char *path = tc_depfile_path(whole[i]);
        cr_assert_eq(path[0], '/', "%s", whole[i]);
        cr_assert_str_eq(tc_path_name(path), tc_path_name(whole[i]));
        free(path);
    }
    cr_assert_null(tc_depfile_path("no/such/folder/clean"));
}

/* The escaped names that GNU make 4.3 reads as the original ones. */
Test(receipt, names_in_a_makefile) {
    static const struct {
        const char *name;
        const char *target;
        const char *input;
    } cases[] = {
        {"a/b.npz", "a/b.npz", "a/b.npz"},
        {"a b", "a\\ b", "a\\ b"},
        {"a\\ b", "a\\\\\\ b", "a\\\\\\ b"},
        {"a\\b", "a\\b", "a\\b"},
        {"a#b:c", "a\\#b\\:c", "a\\#b\\:c"},
        {"a$b", "a$$b", "a$$b"},
        {"a%b", "a\\%b", "a%b"},
        {"*?[x]", "\\*\\?\\[x]", "\\*\\?\\[x]"},
        {"~a", "./~a", "./~a"},
        {"a(b", "a(b", "a(b"},
        {"include", "./include", "./include"},
        {"a&b", "a&b", "a&b"},
        {".PHONY", NULL, ".PHONY"},
        {"a(b)", NULL, NULL},
        {"a\\", NULL, NULL},
        {"a&", NULL, NULL},
        {"a\vb", NULL, NULL},
        {"", NULL, NULL},
        {"a;b", NULL, NULL},
        {"a=b", NULL, NULL},
        {"a|b", NULL, NULL},
        {"a\nb", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int target = 0; target < 2; target++) {
            struct tc_buffer text = {0};
            const char *expected = target ? cases[i].target : cases[i].input;
            error = (struct tc_error){0};
            cr_assert_eq(tc_depfile_add_name(&text, cases[i].name, target, &error),
                         expected != NULL, "%s", cases[i].name);
            if (expected)
                cr_assert_str_eq(text.bytes, expected);
            else
                cr_assert_eq(error.class, TC_UNSUPPORTED);
            tc_buffer_release(&text);
        }
}
