#include "cmd/batch/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/tree_walk.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/io/input.h"
#include "core/io/listing.h"

#define HEX (2 * TC_SHA256_BYTES + 1)

static void print_time(char text[HEX], const struct stat *status) {
    snprintf(text, HEX, "%lld.%09ld", (long long)status->st_mtim.tv_sec, status->st_mtim.tv_nsec);
}

/* What a file looks like from outside; NULL: it is not there. */
static void add_status(struct tc_buffer *text, const char *path, const struct stat *status) {
    char time[HEX] = "";
    if (status)
        print_time(time, status);
    tc_buffer_add_string(text, path);
    tc_buffer_add(text, "", 1);
    tc_buffer_addf(text, "%lld %s\n", status ? (long long)status->st_size : -1, time);
}

static bool add_state(struct tc_buffer *text, const char *path, struct tc_error *error) {
    struct stat status;
    bool there = stat(path, &status) == 0;
    if (!there && !tc_path_missing(errno)) {
        tc_fail_errno(error, errno, "log",
                      "cannot find out which file this is, for the log of the batch");
        return tc_error_in_file(error, path);
    }
    add_status(text, path, there ? &status : NULL);
    return true;
}

/* What all files below a folder look like from outside. */
struct tree_state {
    struct tc_buffer *text;
    struct tc_error *error; /* the first */
};

static void add_file(void *context, const char *path, const struct stat *status) {
    struct tree_state *state = context;
    add_status(state->text, path, status);
}

static void add_link(void *context, const char *path) {
    struct tree_state *state = context;
    if (state->error->class == TC_OK)
        add_state(state->text, path, state->error);
}

static void add_failure(void *context, const char *path, const struct tc_error *error) {
    struct tree_state *state = context;
    (void)path;
    if (state->error->class == TC_OK)
        *state->error = *error;
}

static bool add_tree(struct tc_buffer *text, const char *path, struct tc_error *error) {
    struct tree_state state = {text, error};
    const struct tree_visitor visitor = {&state, add_file, add_link, add_link, add_failure};
    tree_walk(path, &visitor);
    return error->class == TC_OK;
}

/* Of a folder in which a model's files lie beside others. */
static bool add_listing(struct tc_buffer *text, const char *folder, struct tc_error *error) {
    struct tc_listing listing;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, folder, error);
    for (size_t i = 0; i < listing.count && ok; i++) {
        char *path = NULL;
        ok = asprintf(&path, "%s/%s", folder, listing.entries[i].name.bytes) >= 0
                 ? add_state(text, path, error)
                 : tc_fail_memory(error);
        free(path);
    }
    tc_listing_release(&listing);
    return ok;
}

static bool sum_up(struct tc_buffer *text, char hex[HEX], struct tc_error *error) {
    unsigned char sum[TC_SHA256_BYTES];
    bool ok = error->class == TC_OK && tc_buffer_ok(text, error) &&
              tc_sha256_of(text->bytes, text->length, sum, error);
    if (ok)
        tc_hex(sum, sizeof sum, hex);
    return ok;
}

/* What a source looks like from outside: for a model folder every file below it, for another folder
 * those in it, and in any case all that were read: `read` names them. */
static bool state_of(const struct batch_model *model, const struct tc_text *read, size_t count,
                     char hex[HEX], struct tc_error *error) {
    struct tc_buffer text = {0};
    bool ok = add_state(&text, model->input, error);
    if (ok && tc_is_folder(model->input))
        ok = model->folder ? add_tree(&text, model->input, error)
                           : add_listing(&text, model->input, error);
    for (size_t i = 0; i < count && ok; i++) {
        char *path = strndup(read[i].bytes, read[i].length);
        ok = path ? add_state(&text, path, error) : tc_fail_memory(error);
        free(path);
    }
    ok = ok && sum_up(&text, hex, error);
    tc_buffer_release(&text);
    return ok;
}

/* The file that shows that an output is there: itself, or its index. Where there is no telling,
 * the model is done again. */
static bool output_status(const struct batch_model *model, struct stat *status) {
    static const char *const endings[] = {"", ".index.json"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *path = NULL;
        bool there =
            asprintf(&path, "%s%s", model->output, endings[i]) >= 0 && stat(path, status) == 0;
        int failed = errno;
        free(path);
        errno = failed;
        if (there || !tc_path_missing(failed))
            return there;
    }
    return false;
}

/* The names of a line's list, in the arena. */
static bool read_names(struct tc_json *json, struct batch_log_line *line, struct tc_arena *arena) {
    struct tc_error ignored = {0};
    size_t capacity = 0;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        if (line->read_count == capacity) {
            size_t more = capacity ? 2 * capacity : 16;
            struct tc_text *names = tc_arena_array(arena, more, sizeof *names, &ignored);
            if (!names)
                return false;
            if (capacity)
                memcpy(names, line->read, capacity * sizeof *names);
            line->read = names;
            capacity = more;
        }
        if (!tc_json_string(json, &line->read[line->read_count]))
            return false;
        line->read_count++;
    }
    return !json->failed;
}

static bool read_line(struct batch_log_line *line, struct tc_text text, struct tc_arena *arena) {
    struct tc_error ignored = {0};
    struct tc_json json;
    struct tc_text key;
    struct tc_text other;
    *line = (struct batch_log_line){0};
    tc_json_init(&json, text.bytes, text.length, 0, arena, &ignored);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        struct tc_text *into = tc_text_equal(key, TC_TEXT("output"))     ? &line->output
                               : tc_text_equal(key, TC_TEXT("state"))    ? &line->state
                               : tc_text_equal(key, TC_TEXT("options"))  ? &line->options
                               : tc_text_equal(key, TC_TEXT("modified")) ? &line->modified
                               : tc_text_equal(key, TC_TEXT("digest"))   ? &line->digest
                                                                         : NULL;
        uint64_t *number = tc_text_equal(key, TC_TEXT("size"))        ? &line->size
                           : tc_text_equal(key, TC_TEXT("bytes_in"))  ? &line->bytes_in
                           : tc_text_equal(key, TC_TEXT("bytes_out")) ? &line->bytes_out
                                                                      : NULL;
        if (into)
            tc_json_string(&json, into);
        else if (number)
            tc_json_unsigned(&json, number);
        else if (tc_text_equal(key, TC_TEXT("read"))) {
            if (!read_names(&json, line, arena))
                return false;
        } else
            tc_json_skip(&json, &other);
    }
    return tc_json_end(&json) && line->output.bytes && line->state.bytes && line->options.bytes &&
           line->modified.bytes;
}

/* A line that is cut short, by the kill, is none: its model is done again. */
static bool read_lines(struct batch_log *log, struct tc_error *error) {
    const char *at = log->text;
    struct tc_text text;
    size_t count = 0;
    while (tc_text_line(&at, &text))
        count++;
    log->lines = tc_arena_array(&log->arena, count + 1, sizeof *log->lines, error);
    at = log->text;
    while (log->lines && tc_text_line(&at, &text)) {
        struct batch_log_line *line = &log->lines[log->count];
        if (!read_line(line, text, &log->arena))
            continue;
        uint32_t *known = tc_name_map_find(&log->outputs, line->output);
        if (known)
            *known = (uint32_t)log->count;
        else if (!tc_name_map_add(&log->outputs, line->output, (uint32_t)log->count, error))
            return false;
        log->count++;
    }
    return log->lines != NULL;
}

/* Reads up to `size` bytes; *length is how many there were. */
static bool read_bytes(const struct batch_log *log, char *bytes, size_t size, off_t offset,
                       size_t *length, struct tc_error *error) {
    for (*length = 0; *length < size;) {
        ssize_t got = pread(log->fd, bytes + *length, size - *length, offset + (off_t)*length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tc_fail_errno(error, errno, "log", "cannot read the log of the batch");
        if (got == 0)
            break;
        *length += (size_t)got;
    }
    return true;
}

/* A line that a kill has cut short must not run into the next. */
static bool find_last_line(struct batch_log *log, uint64_t size, struct tc_error *error) {
    char last = '\n';
    size_t length;
    if (size && !read_bytes(log, &last, 1, (off_t)(size - 1), &length, error))
        return false;
    log->cut = last != '\n';
    return true;
}

static bool read_log(struct batch_log *log, uint64_t size, struct tc_error *error) {
    log->text = malloc(size + 1);
    if (!log->text)
        return tc_fail_memory(error);
    size_t length;
    if (!read_bytes(log, log->text, size, 0, &length, error))
        return false;
    log->text[length] = '\0';
    return read_lines(log, error);
}

/* Lines of earlier batches stay: each says itself whether it still holds. A log that has become
 * too long is begun again. */
static bool use_log(struct batch_log *log, bool resume, struct tc_error *error) {
    struct stat status;
    if (fstat(log->fd, &status) != 0)
        return tc_fail_errno(error, errno, "log", "cannot read the log of the batch");
    if (!S_ISREG(status.st_mode))
        return tc_fail(error, TC_IO, "log", "the log of the batch is no file");
    uint64_t size = (uint64_t)status.st_size;
    if (size > BATCH_LOG_LIMIT)
        return ftruncate(log->fd, 0) == 0 ||
               tc_fail_errno(error, errno, "log", "cannot begin the log of the batch again");
    return find_last_line(log, size, error) && (!resume || read_log(log, size, error));
}

/* The time of an output; for a folder a digest of what all files below it look like. */
static bool output_time(const struct batch_model *model, const struct stat *status, char time[HEX],
                        struct tc_error *error) {
    struct tc_buffer text = {0};
    if (!S_ISDIR(status->st_mode)) {
        print_time(time, status);
        return true;
    }
    bool ok = add_tree(&text, model->output, error) && sum_up(&text, time, error);
    tc_buffer_release(&text);
    return ok;
}

bool batch_log_open(struct batch_log *log, const char *destination, bool resume,
                    struct tc_text options, struct tc_error *error) {
    unsigned char sum[TC_SHA256_BYTES];
    char *path = NULL;
    *log = (struct batch_log){.fd = -1};
    tc_arena_init(&log->arena, 0);
    tc_name_map_init(&log->outputs, NULL);
    if (!tc_sha256_of(options.bytes, options.length, sum, error))
        return false;
    tc_hex(sum, sizeof sum, log->options);
    if (asprintf(&path, "%s/" BATCH_LOG_NAME, destination) < 0)
        return tc_fail_memory(error);
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    log->fd = open(path, flags | O_EXCL, 0666);
    log->was_there = log->fd < 0 && errno == EEXIST;
    if (log->was_there)
        log->fd = open(path, flags, 0666);
    bool ok = log->fd >= 0 ? use_log(log, resume, error)
                           : tc_fail_errno(error, errno, "log", "cannot open the log of the batch");
    if (!ok)
        tc_error_in_file(error, path);
    free(path);
    return ok;
}

const struct batch_log_line *batch_log_done(const struct batch_log *log,
                                            const struct batch_model *model) {
    struct tc_error ignored = {0};
    char state[HEX];
    char modified[HEX];
    struct stat status;
    const uint32_t *number =
        log->count ? tc_name_map_find(&log->outputs, tc_text_of(model->output)) : NULL;
    const struct batch_log_line *line = number ? &log->lines[*number] : NULL;
    if (!line || !tc_text_equal(line->options, tc_text_of(log->options)) ||
        !state_of(model, line->read, line->read_count, state, &ignored) ||
        !tc_text_equal(line->state, tc_text_of(state)) || !output_status(model, &status) ||
        (uint64_t)status.st_size != line->size || !output_time(model, &status, modified, &ignored))
        return NULL;
    return tc_text_equal(line->modified, tc_text_of(modified)) ? line : NULL;
}

/* What the state of the source does not cover by itself: files beside it. In the arena. False where
 * there are names that JSON can't hold as they are, which would not be found again. */
static bool list_reads(const struct batch_model *model, const struct batch_report *report,
                       struct tc_arena *arena, struct tc_text **read, size_t *count,
                       struct tc_error *error) {
    size_t length = strlen(model->input);
    bool folder = tc_is_folder(model->input);
    *count = 0;
    *read = tc_arena_array(arena, report->read_count + 1, sizeof **read, error);
    for (size_t i = 0; i < report->read_count && *read; i++) {
        struct tc_text path = tc_text_of(report->read[i].path);
        bool inside = folder && tc_text_starts(path, (struct tc_text){model->input, length}) &&
                      path.bytes[length] == '/' && !strchr(path.bytes + length + 1, '/');
        if (inside || tc_text_equal(path, tc_text_of(model->input)))
            continue;
        if (!tc_utf8_valid(path))
            return false;
        (*read)[(*count)++] = path;
    }
    return *read != NULL;
}

static void print_line(struct tc_buffer *text, const struct batch_log_line *line,
                       const char *input) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "input", input);
    tc_json_add_text(&json, "state", line->state);
    tc_json_add_text(&json, "options", line->options);
    tc_json_add_text(&json, "output", line->output);
    tc_json_add_number(&json, "size", line->size);
    tc_json_add_text(&json, "modified", line->modified);
    tc_json_add_number(&json, "bytes_in", line->bytes_in);
    tc_json_add_number(&json, "bytes_out", line->bytes_out);
    if (line->digest.length)
        tc_json_add_text(&json, "digest", line->digest);
    if (line->read_count)
        tc_json_open_array(&json, "read");
    for (size_t i = 0; i < line->read_count; i++)
        tc_json_add_text(&json, NULL, line->read[i]);
    if (line->read_count)
        tc_json_close(&json);
    tc_json_end_line(&json);
}

static bool write_line(struct batch_log *log, const struct batch_log_line *line, const char *input,
                       struct tc_error *error) {
    struct tc_buffer text = {0};
    if (log->cut)
        tc_buffer_add_string(&text, "\n");
    print_line(&text, line, input);
    bool ok = tc_buffer_ok(&text, error);
    log->cut = log->cut || ok;
    ok = ok && tc_write_all(log->fd, text.bytes, text.length, error);
    log->cut = log->cut && !ok;
    ok = ok && (fdatasync(log->fd) == 0 || errno == EINVAL || errno == EROFS ||
                tc_fail_errno(error, errno, "log", "cannot write the log of the batch"));
    tc_buffer_release(&text);
    return ok;
}

bool batch_log_add(struct batch_log *log, const struct batch_model *model,
                   const struct batch_report *report, struct tc_error *error) {
    struct tc_arena arena;
    char state[HEX];
    char modified[HEX];
    struct stat status;
    if (log->fd < 0 || !tc_utf8_valid(tc_text_of(model->output)) || report->reads_untold)
        return true;
    if (!output_status(model, &status)) {
        if (tc_path_missing(errno))
            return true;
        tc_fail_errno(error, errno, "log",
                      "cannot find out which file this is, for the log of the batch");
        return tc_error_in_file(error, model->output);
    }
    if (!output_time(model, &status, modified, error))
        return false;
    struct batch_log_line line = {.output = tc_text_of(model->output),
                                  .options = tc_text_of(log->options),
                                  .modified = tc_text_of(modified),
                                  .digest = tc_text_of(report->digest),
                                  .size = (uint64_t)status.st_size,
                                  .bytes_in = report->bytes_in,
                                  .bytes_out = report->bytes_out};
    tc_arena_init(&arena, 0);
    bool ok = true;
    if (list_reads(model, report, &arena, &line.read, &line.read_count, error)) {
        ok = state_of(model, line.read, line.read_count, state, error);
        line.state = (struct tc_text){state, HEX - 1};
        ok = ok && write_line(log, &line, model->input, error);
    }
    tc_arena_release(&arena);
    return ok && error->class == TC_OK;
}

void batch_log_close(struct batch_log *log, const char *destination) {
    struct stat status;
    char *path = NULL;
    /* One without lines is none, unless it says that a batch has been here. */
    if (log->fd >= 0 && !log->kept && fstat(log->fd, &status) == 0 && status.st_size == 0 &&
        asprintf(&path, "%s/" BATCH_LOG_NAME, destination) >= 0)
        unlink(path);
    free(path);
    if (log->fd >= 0)
        close(log->fd);
    tc_name_map_release(&log->outputs);
    tc_arena_release(&log->arena);
    free(log->text);
    *log = (struct batch_log){.fd = -1};
}
