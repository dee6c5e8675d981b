#include "cmd/batch/child.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/batch/inside.h"
#include "cmd/convert.h"
#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/memory.h"
#include "core/base/notes.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/plan/plan.h"

/* Messages: a kind and a length, then so many bytes. */
enum kind { KIND_PROGRESS = 1, KIND_ENDED, KIND_CHANGES, KIND_FILE, KIND_ERROR };

struct head {
    uint32_t kind;
    uint32_t length;
};

/* The ledger is bounded by core/base/notes.h; nothing else is as long. */
#define MOST_MESSAGE (UINT32_C(64) << 20)

struct ended {
    uint64_t outcome;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t files;
    uint64_t has_index;
    uint64_t reads; /* how many files were read */
    char digest[TC_PLAN_DIGEST + 1];
    char plan[TC_PLAN_DIGEST + 1];
};

struct file_facts {
    uint64_t device;
    uint64_t inode;
    uint64_t size;
    int64_t seconds;
    int64_t nanoseconds;
};

/* An error without its pointers. */
struct flat_error {
    uint64_t class;
    uint64_t reason;
    uint64_t offset;
    uint64_t has_offset;
    uint64_t has_tensor;
    char code[64];
    char file[sizeof((struct tc_error *)0)->file];
    char tensor[sizeof((struct tc_error *)0)->tensor];
    char message[sizeof((struct tc_error *)0)->message];
    char hint[sizeof((struct tc_error *)0)->hint];
};

/* In the process of its own */

struct teller {
    int fd;
    bool failed; /* something could not be told */
    struct batch_child_wants wants;
    uint64_t told; /* progress, in thousandths */
    bool opened;   /* all files that are read are open */
};

static void send_message(struct teller *teller, enum kind kind, const void *bytes, size_t length) {
    struct head head = {(uint32_t)kind, (uint32_t)length};
    struct tc_error ignored = {0};
    /* Where the parent is gone, a signal ends this process. Behind half a message nothing can be
     * understood. */
    teller->failed = teller->failed || !tc_write_all(teller->fd, &head, sizeof head, &ignored) ||
                     !tc_write_all(teller->fd, bytes, length, &ignored);
}

static void tell_progress(void *context, uint64_t done, uint64_t total) {
    struct teller *teller = context;
    uint64_t share = total ? (uint64_t)((double)done / (double)total * 1000) : 1000;
    uint64_t numbers[2] = {done, total};
    if (share != teller->told)
        send_message(teller, KIND_PROGRESS, numbers, sizeof numbers);
    teller->told = share;
}

static size_t count_reads(const struct tc_plan *plan) {
    size_t count = 0;
    for (size_t r = 0; r < plan->reader_count; r++)
        for (size_t at = 0; tc_reader_next_file(plan->readers[r], &at);)
            count++;
    return count;
}

/* Shards and other files that a model leads to lie in the tree, too. */
static bool check_reads(void *context, const struct tc_plan *plan, struct tc_error *error) {
    struct teller *teller = context;
    for (size_t r = 0; r < plan->reader_count && teller->wants.root; r++) {
        struct tc_input *input;
        for (size_t at = 0; (input = tc_reader_next_file(plan->readers[r], &at)) != NULL;) {
            bool inside;
            if (!batch_stays_inside(input->path, teller->wants.root, &inside, error))
                return false;
            if (!inside) {
                tc_fail(error, TC_UNSAFE, BATCH_LINK_OUTSIDE, BATCH_LEADS_OUT);
                tc_error_because(error, TC_REASON_LINK_OUTSIDE);
                return tc_error_in_file(error, input->path);
            }
        }
    }
    teller->opened = true;
    return true;
}

/* Whether a file could not be opened because it lies out of the tree, where the sandbox ends. One
 * that is not there, and one of the tree that may not be read, are what the error says. */
static bool is_kept_out(const struct teller *teller, const struct tc_error *error) {
    struct tc_error ignored = {0};
    bool inside = true;
    return teller->wants.root && !teller->opened && error->class == TC_IO &&
           error->reason == TC_REASON_CANNOT_OPEN && error->file[0] &&
           access(error->file, F_OK) == 0 &&
           batch_stays_inside(error->file, teller->wants.root, &inside, &ignored) && !inside;
}

static bool tell_files(struct teller *teller, const struct tc_plan *plan, struct tc_error *error) {
    for (size_t r = 0; r < plan->reader_count; r++) {
        struct tc_input *input;
        for (size_t at = 0; (input = tc_reader_next_file(plan->readers[r], &at)) != NULL;) {
            struct file_facts facts = {(uint64_t)input->device, (uint64_t)input->inode, input->size,
                                       (int64_t)input->modified.tv_sec,
                                       (int64_t)input->modified.tv_nsec};
            struct tc_buffer message = {0};
            tc_buffer_add(&message, &facts, sizeof facts);
            tc_buffer_add_string(&message, input->path);
            bool ok = tc_buffer_ok(&message, error);
            if (ok)
                send_message(teller, KIND_FILE, message.bytes, message.length);
            tc_buffer_release(&message);
            if (!ok)
                return false;
        }
    }
    return true;
}

static bool tell_changes(struct teller *teller, const struct tc_plan *plan,
                         struct tc_error *error) {
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_notes_print(&json, "changes", &plan->notes, TC_CHANGE);
    tc_notes_print(&json, "losses", &plan->notes, TC_LOSS);
    tc_json_close(&json);
    bool ok = tc_buffer_ok(&text, error);
    if (ok)
        send_message(teller, KIND_CHANGES, text.bytes, text.length);
    tc_buffer_release(&text);
    return ok;
}

static bool tell_end(void *context, enum conversion_outcome outcome, const struct tc_plan *plan,
                     struct tc_text options, const char *digest, struct tc_error *error) {
    struct teller *teller = context;
    struct ended ended = {.outcome = outcome,
                          .bytes_in = plan->bytes_in,
                          .bytes_out = plan->bytes_out,
                          .files = plan->file_count,
                          .has_index = plan->index_name != NULL,
                          .reads = count_reads(plan)};
    if (digest)
        memcpy(ended.digest, digest, TC_PLAN_DIGEST);
    if (teller->wants.plan && plan->index_name && !tc_plan_digest(plan, options, ended.plan, error))
        return false;
    if (ended.reads <= BATCH_MAX_FILES && !tell_files(teller, plan, error))
        return false;
    if (!tell_changes(teller, plan, error))
        return false;
    send_message(teller, KIND_ENDED, &ended, sizeof ended);
    return true;
}

static void tell_error(void *context, const struct tc_error *error) {
    /* Told without taking memory, of which there may be none. */
    struct flat_error flat = {.class = error->class,
                              .reason = error->reason,
                              .offset = error->offset,
                              .has_offset = error->has_offset,
                              .has_tensor = error->has_tensor};
    if (error->code)
        strncpy(flat.code, error->code, sizeof flat.code - 1);
    memcpy(flat.file, error->file, sizeof flat.file);
    memcpy(flat.tensor, error->tensor, sizeof flat.tensor);
    memcpy(flat.message, error->message, sizeof flat.message);
    memcpy(flat.hint, error->hint, sizeof flat.hint);
    if (is_kept_out(context, error)) {
        flat.class = TC_UNSAFE;
        flat.reason = TC_REASON_LINK_OUTSIDE;
        memcpy(flat.code, BATCH_LINK_OUTSIDE, sizeof BATCH_LINK_OUTSIDE);
        memcpy(flat.message, BATCH_LEADS_OUT, sizeof BATCH_LEADS_OUT);
        flat.hint[0] = '\0';
    }
    send_message(context, KIND_ERROR, &flat, sizeof flat);
}

_Noreturn void batch_child(int fd, int argc, char **argv, const struct batch_child_wants *wants) {
    struct teller teller = {.fd = fd, .wants = *wants};
    struct conversion_watcher watcher = {.context = &teller,
                                         .progress = tell_progress,
                                         .planned = check_reads,
                                         .ended = tell_end,
                                         .failed = tell_error};
    int code = convert_run(argc, argv, &watcher);
    /* As in main: what was found out with too little memory is no result. */
    if (code == TC_OK && tc_memory_lacked()) {
        struct tc_error error = {0};
        tc_fail_memory(&error);
        tell_error(&teller, &error);
        code = TC_IO;
    }
    _exit(teller.failed ? TC_IO : code);
}

/* In the parent */

/* A text that a message holds in an array: it has a NUL somewhere. */
static bool is_text(const char *bytes, size_t size) {
    return memchr(bytes, '\0', size) != NULL;
}

static bool is_digest(const char *text) {
    size_t digits = strspn(text, "0123456789abcdef");
    return text[digits] == '\0' && (digits == 0 || digits == TC_PLAN_DIGEST);
}

static bool take_ended(struct batch_report *report, const char *bytes, size_t length) {
    struct ended ended;
    if (length != sizeof ended || report->ended)
        return false;
    memcpy(&ended, bytes, sizeof ended);
    if (ended.outcome > CONVERSION_UNCHANGED || !is_text(ended.digest, sizeof ended.digest) ||
        !is_text(ended.plan, sizeof ended.plan) || !is_digest(ended.digest) ||
        !is_digest(ended.plan))
        return false;
    report->ended = true;
    report->outcome = (enum conversion_outcome)ended.outcome;
    report->bytes_in = ended.bytes_in;
    report->bytes_out = ended.bytes_out;
    report->files = ended.files;
    report->has_index = ended.has_index != 0;
    report->reads_untold = ended.reads > BATCH_MAX_FILES;
    memcpy(report->digest, ended.digest, sizeof report->digest);
    memcpy(report->plan, ended.plan, sizeof report->plan);
    return true;
}

static bool take_file(struct batch_report *report, const char *bytes, size_t length) {
    struct file_facts facts;
    if (length <= sizeof facts || report->read_count == BATCH_MAX_FILES)
        return false;
    struct batch_file *files =
        reallocarray(report->read, report->read_count + 1, sizeof *report->read);
    if (!files)
        return false;
    report->read = files;
    memcpy(&facts, bytes, sizeof facts);
    char *path = strndup(bytes + sizeof facts, length - sizeof facts);
    files[report->read_count] = (struct batch_file){path,       facts.device,  facts.inode,
                                                    facts.size, facts.seconds, facts.nanoseconds};
    report->read_count += path != NULL;
    return path != NULL;
}

static bool take_error(struct batch_report *report, const char *bytes, size_t length) {
    struct flat_error *flat = malloc(sizeof *flat);
    struct tc_error *error = calloc(1, sizeof *error);
    bool ok = flat && error && length == sizeof *flat && !report->failed;
    if (ok)
        memcpy(flat, bytes, sizeof *flat);
    ok = ok && is_text(flat->code, sizeof flat->code) && is_text(flat->file, sizeof flat->file) &&
         is_text(flat->tensor, sizeof flat->tensor) &&
         is_text(flat->message, sizeof flat->message) && is_text(flat->hint, sizeof flat->hint) &&
         (flat->class == TC_INTERNAL || (flat->class > TC_OK && flat->class <= TC_IO)) &&
         flat->reason < TC_REASONS;
    if (ok) {
        memcpy(report->code, flat->code, sizeof report->code);
        error->class = (enum tc_class)flat->class;
        error->reason = (enum tc_reason)flat->reason;
        error->code = report->code;
        error->offset = flat->offset;
        error->has_offset = flat->has_offset != 0;
        error->has_tensor = flat->has_tensor != 0;
        memcpy(error->file, flat->file, sizeof error->file);
        memcpy(error->tensor, flat->tensor, sizeof error->tensor);
        memcpy(error->message, flat->message, sizeof error->message);
        memcpy(error->hint, flat->hint, sizeof error->hint);
        report->error = error;
        report->failed = true;
    } else {
        free(error);
    }
    free(flat);
    return ok;
}

/* The ledger goes into our own output as it is: so it must be JSON. */
static bool take_changes(struct batch_report *report, const char *bytes, size_t length) {
    struct tc_error ignored = {0};
    struct tc_arena arena;
    struct tc_json json;
    struct tc_text key;
    struct tc_text list;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, bytes, length, 0, &arena, &ignored);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        struct tc_buffer *into = tc_text_equal(key, TC_TEXT("changes"))  ? &report->changes
                                 : tc_text_equal(key, TC_TEXT("losses")) ? &report->losses
                                                                         : NULL;
        if (!into || into->length || tc_json_peek(&json) != TC_JSON_ARRAY)
            json.failed = true;
        else if (tc_json_skip(&json, &list))
            tc_buffer_add_text(into, list);
    }
    bool ok = !json.failed && tc_json_end(&json);
    tc_arena_release(&arena);
    return ok && !report->changes.failed && !report->losses.failed;
}

static bool take_progress(struct batch_report *report, const char *bytes, size_t length) {
    uint64_t numbers[2];
    if (length != sizeof numbers)
        return false;
    memcpy(numbers, bytes, sizeof numbers);
    report->done = numbers[0];
    report->total = numbers[1];
    return numbers[0] <= numbers[1];
}

static bool take_message(struct batch_report *report, uint32_t kind, const char *bytes,
                         size_t length) {
    switch (kind) {
    case KIND_PROGRESS:
        return take_progress(report, bytes, length);
    case KIND_ENDED:
        return take_ended(report, bytes, length);
    case KIND_CHANGES:
        return take_changes(report, bytes, length);
    case KIND_FILE:
        return take_file(report, bytes, length);
    case KIND_ERROR:
        return take_error(report, bytes, length);
    default:
        return false;
    }
}

void batch_report_take(struct batch_report *report, const void *bytes, size_t length) {
    struct tc_buffer *received = &report->received;
    size_t at = 0;
    if (report->broken)
        return;
    tc_buffer_add(received, bytes, length);
    report->broken = received->failed;
    while (!report->broken && received->length - at >= sizeof(struct head)) {
        struct head head;
        memcpy(&head, received->bytes + at, sizeof head);
        report->broken = head.length > MOST_MESSAGE;
        if (report->broken || received->length - at - sizeof head < head.length)
            break;
        report->broken =
            !take_message(report, head.kind, received->bytes + at + sizeof head, head.length);
        at += sizeof head + head.length;
    }
    if (at) {
        memmove(received->bytes, received->bytes + at, received->length - at);
        received->length -= at;
    }
}

void batch_report_release(struct batch_report *report) {
    for (size_t i = 0; i < report->read_count; i++)
        free(report->read[i].path);
    free(report->read);
    free(report->error);
    tc_buffer_release(&report->changes);
    tc_buffer_release(&report->losses);
    tc_buffer_release(&report->received);
    *report = (struct batch_report){0};
}
