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
#define SIZE_FIELD 124u
#define SUM_FIELD 148u
#define KIND_FIELD 156u

/* Reads octal digits with spaces and NULs around them, or GNU's base 256. */
static bool read_number(const unsigned char *field, size_t length, uint64_t *number) {
    *number = 0;
    if (field[0] == 0x80) {
        for (size_t i = 1; i < length; i++) {
            if (*number >> 55)
                return false;
            *number = *number << 8 | field[i];
        }
        return true;
    }
    for (size_t i = 0; i < length && field[i]; i++) {
        if (field[i] == ' ')
            continue;
        if (field[i] < '0' || field[i] > '7')
            return false;
        *number = *number << 3 | (uint64_t)(field[i] - '0');
    }
    return true;
}

/* Whether a block is a header, by its checksum: the sum of its bytes, which some
 * programs take as signed. */
static bool is_header(const unsigned char *block) {
    uint64_t expected;
    int64_t plain = 0;
    int64_t with_sign = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        bool own = i >= SUM_FIELD && i < SUM_FIELD + 8;
        plain += own ? ' ' : block[i];
        with_sign += own ? ' ' : (signed char)block[i];
    }
    return read_number(block + SUM_FIELD, 8, &expected) && expected &&
           ((int64_t)expected == plain || (int64_t)expected == with_sign);
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
    if (!strchr("0157xgL", header[KIND_FIELD]) && header[KIND_FIELD])
        tar->damaged = true;
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
        uint64_t size = 0;
        const unsigned char *block = block_at(tar, at, error);
        if (!block)
            return false;
        at += BLOCK;
        if (is_zero(block)) {
            tar->ended = true;
            continue;
        }
        if (!is_header(block) || !read_number(block + SIZE_FIELD, 12, &size)) {
            tar->damaged = true;
            continue;
        }
        uint64_t left = end - at;
        bool whole = size <= left;
        tar->damaged |= tar->ended || !whole;
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
    if (!marked && !is_header(view->head))
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
