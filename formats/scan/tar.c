/*
 * Scans tars. torch takes any file for a tar whose first 512 bytes are a tar's header,
 * before it looks for anything else. A member whose header is damaged does not hide
 * those behind it: every block of 512 bytes is tried.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"
#include "formats/torch/torch.h"

#define BLOCK 512u
#define WINDOW ((size_t)1 << 18)
/* The longest header of a member's name, times and the like. */
#define MAX_EXTENDED ((uint64_t)1 << 20)
#define SIZE_FIELD 124u
#define SUM_FIELD 148u
#define KIND_FIELD 156u

/* Reads a number as Python's tarfile does, and more: octal digits, among which may be what Python's
 * int() takes (spaces, signs, "_", "0o"), or GNU's base 256. *odd: no honest writer has it so. */
static bool read_number(const unsigned char *field, size_t length, int64_t *number, bool *odd) {
    bool negative = false;
    *number = 0;
    *odd = false;
    if (field[0] == 0x80 || field[0] == 0xFF) {
        *odd = field[0] == 0xFF; /* a negative number, in two's complement */
        *number = *odd ? -1 : 0;
        for (size_t i = 1; i < length; i++) {
            if (*number > INT64_MAX >> 9 || *number < INT64_MIN >> 9)
                return false;
            *number = *number * 256 + field[i];
        }
        return true;
    }
    for (size_t i = 0; i < length && field[i]; i++) {
        if (field[i] >= '0' && field[i] <= '7') {
            *number = *number * 8 + (field[i] - '0');
            continue;
        }
        if (field[i] == ' ')
            continue;
        bool space = (field[i] >= '\t' && field[i] <= '\r') || (field[i] >= 0x1C && field[i] < ' ');
        if (!space && !strchr("+-_oO", field[i]))
            return false;
        *odd = true;
        negative |= field[i] == '-';
    }
    *number = negative ? -*number : *number;
    return true;
}

/* Whether a block is a header, by its checksum: the sum of its bytes, which some
 * programs take as signed. */
static bool is_header(const unsigned char *block, bool *odd) {
    int64_t expected;
    int64_t plain = 0;
    int64_t with_sign = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        bool own = i >= SUM_FIELD && i < SUM_FIELD + 8;
        plain += own ? ' ' : block[i];
        with_sign += own ? ' ' : (signed char)block[i];
    }
    if (!read_number(block + SUM_FIELD, 8, &expected, odd))
        return false;
    *odd |= expected <= 0; /* which only bytes taken as signed give */
    return expected == plain || expected == with_sign;
}

static bool is_zero(const unsigned char *block) {
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

/* The state of the walk over the blocks. */
struct tar {
    const struct scan_view *view;
    unsigned char *window;
    uint64_t window_at;
    size_t window_size;
    unsigned torch; /* which of torch's four members were seen */
    bool ended;     /* an empty block was reached */
    bool damaged;
};

static const unsigned char *block_at(struct tar *tar, uint64_t at, struct tc_error *error) {
    if (at < tar->window_at || at + BLOCK > tar->window_at + tar->window_size) {
        uint64_t left = tar->view->input->size - at;
        tar->window_at = at;
        tar->window_size = left < WINDOW ? left : WINDOW;
        if (!tc_input_read(tar->view->input, at, tar->window, tar->window_size, error)) {
            tar->window_size = 0;
            return NULL;
        }
    }
    return tar->window + (at - tar->window_at);
}

static const char *const torch_members[] = {"sys_info", "storages", "tensors", "pickle"};

/* Whether a text begins with the name of one of torch's members, which then ends. */
static bool names_torch(struct tc_text text) {
    for (unsigned i = 0; i < 4; i++) {
        size_t length = strlen(torch_members[i]);
        if (tc_text_starts(text, tc_text_of(torch_members[i])) &&
            (text.length == length || strchr("\n/", text.bytes[length])))
            return true;
    }
    return false;
}

/* Whether a header for the next member changes how it is read: its size, or the order of its bytes;
 * or gives it the name of one of torch's members, of which torch does not read it in rows. */
static bool check_extended(struct tar *tar, uint64_t at, uint64_t size, struct tc_error *error) {
    if (size > MAX_EXTENDED) {
        tar->damaged = true;
        return true;
    }
    char *bytes = tc_input_load(tar->view->input, at, size, error);
    if (!bytes)
        return false;
    struct tc_text text = {bytes, size};
    tar->damaged |= names_torch(text) || memmem(bytes, size, " size=", 6) ||
                    memmem(bytes, size, " GNU.sparse", 11);
    for (const char *path; (path = memmem(text.bytes, text.length, " path=", 6)) != NULL;) {
        text.length -= (size_t)(path + 6 - text.bytes);
        text.bytes = path + 6;
        tar->damaged |= names_torch(text);
    }
    free(bytes);
    return true;
}

static bool add_member(struct tar *tar, const unsigned char *header, uint64_t at, uint64_t size,
                       bool whole, struct tc_error *error) {
    struct scan *scan = tar->view->scan;
    size_t length = strnlen((const char *)header, 100);
    char *name = tc_arena_copy(&scan->arena, header, length, error);
    if (!name)
        return false;
    struct tc_text text = {name, length};
    if (tc_text_starts(text, TC_TEXT("./")))
        text = (struct tc_text){name + 2, length - 2};
    for (unsigned i = 0; i < 4; i++)
        if (tc_text_equal(text, tc_text_of(torch_members[i])))
            tar->torch |= 1u << i;
    /* A link, a device or the like, which no tensor file has. */
    char kind = (char)header[KIND_FIELD];
    if (!strchr("0157xgL", kind) && kind)
        tar->damaged = true;
    /* Readers differ in whether a folder or a link has content. */
    bool folder = (kind == '0' || !kind) && length && name[length - 1] == '/';
    tar->damaged |= size && (folder || kind == '1' || kind == '5');
    if (kind && strchr("xgL", kind) && !check_extended(tar, at, size, error))
        return false;
    bool data = tar->damaged || tar->view->region->role == SCAN_DATA;
    struct scan_region *region =
        scan_add_region(tar->view, at, size, text, data ? SCAN_DATA : SCAN_MEMBER, error);
    if (!region)
        return false;
    region->archived = true;
    region->fragment = !whole;
    return true;
}

static bool walk(struct tar *tar, struct tc_error *error) {
    uint64_t end = tar->view->input->size;
    uint64_t at = 0;
    while (end - at >= BLOCK) {
        int64_t number = 0;
        bool odd[2] = {false, false};
        const unsigned char *block = block_at(tar, at, error);
        if (!block)
            return false;
        at += BLOCK;
        if (is_zero(block)) {
            tar->ended = true;
            continue;
        }
        if (!is_header(block, &odd[0]) || !read_number(block + SIZE_FIELD, 12, &number, &odd[1]) ||
            number < 0) {
            tar->damaged = true;
            continue;
        }
        uint64_t size = (uint64_t)number;
        uint64_t left = end - at;
        bool whole = size <= left;
        tar->damaged |= tar->ended || !whole || odd[0] || odd[1];
        if (!add_member(tar, block, at, whole ? size : left, whole, error))
            return false;
        uint64_t padded = whole ? (size + BLOCK - 1) / BLOCK * BLOCK : 0;
        at += padded < left ? padded : left;
    }
    tar->damaged |= at != end || !tar->ended;
    return true;
}

static void on_member(void *context, const char *name) {
    ((struct scan *)context)->tar->name = tc_text_of(name);
}

/* A tar of torch has pickles between other bytes: torch's reader knows where they are,
 * and reports what they name. */
static bool look_as_torch(const struct scan_view *view, bool *opened, struct tc_error *error) {
    struct scan *scan = view->scan;
    struct scan_region named = *view->region;
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    struct torch torch = {.watch = {.context = scan,
                                    .on_member = on_member,
                                    .on_global = scan_on_global,
                                    .on_call = scan_on_call,
                                    .on_misuse = scan_on_misuse}};
    scan->tar = &named;
    scan->region = &named;
    torch_init(&torch, view->reader);
    *opened = torch_open_tar(&torch, damage);
    torch_release(&torch);
    scan->region = view->region;
    bool ok = *opened || scan_note_broken(scan, damage, error);
    scan->pickles += 4;
    free(damage);
    return ok;
}

bool scan_tar(const struct scan_view *view, bool *accounted, struct tc_error *error) {
    struct tar tar = {.view = view};
    if (view->shown < BLOCK || view->region->fragment)
        return true;
    bool marked = memcmp(view->head + 257, "ustar", 5) == 0 && view->region->role != SCAN_DATA;
    bool odd = false;
    if (!marked && (!is_header(view->head, &odd) || (odd && view->region->role == SCAN_DATA)))
        return true;
    tar.window = malloc(WINDOW);
    struct scan_region *before = view->scan->pending;
    bool opened = false;
    bool ok = tar.window ? walk(&tar, error) : tc_fail_memory(error);
    if (ok && tar.torch == 15)
        ok = look_as_torch(view, &opened, error);
    if (ok && tar.damaged)
        scan_note(view->scan, "tar", "bad tar: a member is damaged, cut short, or of an odd kind");
    /* The bytes between the pickles in torch's members are numbers. */
    for (struct scan_region *region = view->scan->pending; tar.torch == 15 && region != before;
         region = region->next) {
        region->role = opened ? SCAN_DATA : region->role;
        region->keys = tc_text_equal(region->name, TC_TEXT("pickle"));
    }
    *accounted = ok && !tar.damaged;
    free(tar.window);
    return ok;
}
