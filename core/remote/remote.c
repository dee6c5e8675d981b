#include "core/remote/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/io/signals.h"
#include "core/io/thread_pool.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/environment.h"
#include "core/remote/fetcher.h"

/* The free space of the disk is checked again after so many bytes of a copy. */
#define SPOOL_CHECK (UINT64_C(16) << 20)

static const char *const codes[] = {
#define TC_CODE(name, slug) [TC_REMOTE_##name] = (slug),
    TC_REMOTE_CODES(TC_CODE)
#undef TC_CODE
};

bool client_broken(struct tc_error *error) {
    return tc_fail(error, TC_IO, "fetcher", "the process that fetches remote files has ended");
}

bool client_send(struct tc_remote *remote, const struct tc_frame *frame, const void *payload,
                 struct tc_error *error) {
    if (remote->broken || !tc_write_quietly(remote->fd, frame, sizeof *frame) ||
        (frame->size && !tc_write_quietly(remote->fd, payload, frame->size)))
        return client_broken(error);
    return true;
}

/* Starting and ending */

struct tc_remote *tc_remote_start(const struct tc_fetcher_options *options,
                                  struct tc_error *error) {
    int pair[2];
    struct tc_remote *remote = calloc(1, sizeof *remote);
    if (!remote) {
        tc_fail_memory(error);
        return NULL;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        tc_fail_errno(error, errno, "fetcher", "cannot start the process that fetches");
        free(remote);
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        free(remote);
        tc_fetcher_run(pair[1], options);
    }
    close(pair[1]);
    if (pid < 0) {
        tc_fail_errno(error, errno, "fetcher", "cannot start the process that fetches");
        close(pair[0]);
        free(remote);
        return NULL;
    }
    tc_hub_forget_token();
    *remote = (struct tc_remote){.fd = pair[0], .pid = pid, .jobs = options->jobs};
    pthread_mutex_init(&remote->lock, NULL);
    pthread_cond_init(&remote->news, NULL);
    return remote;
}

void tc_remote_end(struct tc_remote *remote) {
    if (!remote)
        return;
    shutdown(remote->fd, SHUT_RDWR);
    if (remote->receiving)
        pthread_join(remote->receiver, NULL);
    close(remote->fd);
    while (waitpid(remote->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    pthread_mutex_destroy(&remote->lock);
    pthread_cond_destroy(&remote->news);
    free(remote);
}

/* What the fetcher says. It is believed no more than a file is. */

static struct client_file *find_file(const struct tc_remote *remote, uint32_t number) {
    struct client_file *file = remote->files;
    while (file && file->number != number)
        file = file->next;
    return file;
}

static struct client_call *find_call(const struct tc_remote *remote, uint32_t id) {
    struct client_call *call = remote->calls;
    while (call && call->id != id)
        call = call->next;
    return call;
}

static void fill_error(struct tc_error *error, const struct tc_remote_failure *failure) {
    bool known = failure->class > TC_DIFFERENT && failure->class <= TC_IO &&
                 failure->code < TC_REMOTE_CODE_COUNT;
    tc_fail(error, known ? (enum tc_class)failure->class : TC_IO,
            known ? codes[failure->code] : "fetcher", "%.*s", (int)sizeof failure->message - 1,
            failure->message);
    if (known && failure->code == TC_REMOTE_NO_RANGES)
        tc_error_because(error, TC_REASON_NO_RANGES);
    if (known && failure->code == TC_REMOTE_DENIED)
        tc_error_because(error, TC_REASON_DENIED);
    if (failure->hint[0])
        tc_error_hint(error, "%.*s", (int)sizeof failure->hint - 1, failure->hint);
}

static void file_failed(struct client_file *file, const struct tc_remote_failure *failure) {
    file->error = (struct tc_error){0};
    file->status = failure->status;
    fill_error(&file->error, failure);
}

static void take_failed(struct tc_remote *remote, const struct tc_frame *frame, char *payload) {
    struct tc_remote_failure failure;
    struct client_file *file = find_file(remote, frame->number);
    struct client_call *call = find_call(remote, frame->id);
    memcpy(&failure, payload, sizeof failure);
    failure.message[sizeof failure.message - 1] = '\0';
    failure.hint[sizeof failure.hint - 1] = '\0';
    if (frame->number == 0 && call) {
        fill_error(call->error, &failure);
        call->done = true;
    } else if (file) {
        file_failed(file, &failure);
        file->answered = file->spool_done = true;
        blocks_fail(remote, frame->id);
    }
}

static void take_opened(struct tc_remote *remote, const struct tc_frame *frame, char *payload) {
    struct client_file *file = find_file(remote, frame->number);
    if (!file)
        return;
    memcpy(&file->facts, payload, sizeof file->facts);
    file->facts.commit[sizeof file->facts.commit - 1] = '\0';
    file->facts.etag[sizeof file->facts.etag - 1] = '\0';
    if (file->facts.size > INT64_MAX)
        file->facts.size = INT64_MAX;
    file->answered = true;
}

/* The copy of a file that can't be read in ranges; outside of the lock, since nobody
 * else uses it. */
static void take_copied(struct client_file *file, uint64_t offset, const char *bytes, size_t size) {
    struct tc_error error = {0};
    bool ok = offset <= file->spooled || client_broken(&error);
    if (ok && offset + size > file->spool_checked) {
        ok = tc_tempfile_check(file->spool, offset, SPOOL_CHECK, &error);
        file->spool_checked = offset + SPOOL_CHECK;
    }
    size_t done = 0;
    while (ok && done < size) {
        ssize_t step = pwrite(file->spool, bytes + done, size - done, (off_t)(offset + done));
        if (step < 0 && errno != EINTR)
            ok = tc_fail_errno(&error, errno, "write", "cannot write a temporary file");
        done += step > 0 ? (size_t)step : 0;
    }
    file->spooled = offset + size;
    if (ok)
        return;
    file->error = error;
    file->spool_done = true;
}

static bool take_data(struct tc_remote *remote, const struct tc_frame *frame, char *payload) {
    if (frame->number == 0) {
        struct client_call *call = find_call(remote, frame->id);
        if (!call)
            return true;
        if (frame->offset == 0)
            call->body->length = 0;
        if (frame->offset != call->body->length || frame->size > call->most - call->body->length)
            return false;
        tc_buffer_add(call->body, payload, frame->size);
        return true;
    }
    struct client_file *file = find_file(remote, frame->number);
    if (!file)
        return true;
    if (file->spool >= 0)
        take_copied(file, frame->offset, payload, frame->size);
    else if (!blocks_store(file, frame->offset, (const unsigned char *)payload, frame->size))
        return false;
    return true;
}

static void take_done(struct tc_remote *remote, const struct tc_frame *frame) {
    struct client_file *file = find_file(remote, frame->number);
    if (file && file->spool >= 0)
        file->spool_done = true;
}

static void take_want(struct tc_remote *remote, const struct tc_frame *frame) {
    struct client_call *call = find_call(remote, frame->id);
    if (!call)
        return;
    call->wants = true;
    call->want_offset = frame->offset;
    call->want_length = frame->length;
}

static void take_answered(struct tc_remote *remote, const struct tc_frame *frame, char *payload) {
    struct client_call *call = find_call(remote, frame->id);
    if (!call)
        return;
    struct tc_remote_status *status = call->status;
    memcpy(status, payload, sizeof *status);
    status->etag[sizeof status->etag - 1] = '\0';
    status->next[sizeof status->next - 1] = '\0';
    if (frame->length == 0)
        call->body->length = 0;
    call->done = true;
}

static bool take_frame(struct tc_remote *remote, const struct tc_frame *frame, char *payload) {
    switch (frame->kind) {
    case TC_FRAME_OPENED:
        take_opened(remote, frame, payload);
        return true;
    case TC_FRAME_DATA:
        return take_data(remote, frame, payload);
    case TC_FRAME_DONE:
        take_done(remote, frame);
        return true;
    case TC_FRAME_WANT:
        take_want(remote, frame);
        return true;
    case TC_FRAME_ANSWERED:
        take_answered(remote, frame, payload);
        return true;
    case TC_FRAME_FAILED:
        take_failed(remote, frame, payload);
        return true;
    default:
        return false;
    }
}

static bool size_is_right(const struct tc_frame *frame) {
    switch (frame->kind) {
    case TC_FRAME_OPENED:
        return frame->size == sizeof(struct tc_remote_facts);
    case TC_FRAME_ANSWERED:
        return frame->size == sizeof(struct tc_remote_status);
    case TC_FRAME_FAILED:
        return frame->size == sizeof(struct tc_remote_failure);
    case TC_FRAME_DATA:
        return frame->size && frame->size <= TC_FRAME_MOST;
    default:
        return frame->size == 0;
    }
}

static bool read_all(int fd, void *bytes, size_t length) {
    char *at = bytes;
    while (length) {
        ssize_t got = read(fd, at, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        length -= (size_t)got;
    }
    return true;
}

static void *receive(void *context) {
    struct tc_remote *remote = context;
    struct tc_frame frame;
    char payload[TC_FRAME_MOST];
    bool ok = true;
    while (ok && read_all(remote->fd, &frame, sizeof frame)) {
        ok = size_is_right(&frame) && read_all(remote->fd, payload, frame.size);
        pthread_mutex_lock(&remote->lock);
        ok = ok && take_frame(remote, &frame, payload);
        if (ok)
            pthread_cond_broadcast(&remote->news);
        pthread_mutex_unlock(&remote->lock);
    }
    pthread_mutex_lock(&remote->lock);
    remote->broken = true;
    pthread_cond_broadcast(&remote->news);
    pthread_mutex_unlock(&remote->lock);
    return NULL;
}

/* The thread that takes what comes is started when something is asked for: the sandbox
 * is entered while there is only one. */
static bool start_receiver(struct tc_remote *remote, struct tc_error *error) {
    if (!remote->receiving)
        remote->receiving = tc_thread_start(&remote->receiver, receive, remote, error);
    return remote->receiving;
}

/* Files */

void client_file_hold(void *context) {
    struct client_file *file = context;
    pthread_mutex_lock(&file->remote->lock);
    file->users++;
    pthread_mutex_unlock(&file->remote->lock);
}

void client_file_drop(void *context) {
    struct client_file *file = context;
    struct tc_remote *remote = file->remote;
    struct tc_error ignored = {0};
    pthread_mutex_lock(&remote->lock);
    bool last = --file->users == 0;
    if (last) {
        struct client_file **at = &remote->files;
        struct tc_frame close_it = {.kind = TC_FRAME_CLOSE, .number = file->number};
        while (*at != file)
            at = &(*at)->next;
        *at = file->next;
        blocks_drop_file(file);
        client_send(remote, &close_it, NULL, &ignored);
    }
    pthread_mutex_unlock(&remote->lock);
    if (!last)
        return;
    free(file->address);
    free(file);
}

static struct client_file *new_file(struct tc_remote *remote, const char *address,
                                    struct tc_error *error) {
    struct client_file *file = calloc(1, sizeof *file);
    char *name = strdup(address);
    if (!file || !name) {
        free(file);
        free(name);
        tc_fail_memory(error);
        return NULL;
    }
    *file = (struct client_file){.remote = remote, .address = name, .users = 1, .spool = -1};
    return file;
}

/* Asks for a file and waits until it is open; NULL: it is not, and `status` is that of the
 * answer, or 0. The caller drops it. */
static struct client_file *open_file(struct tc_remote *remote, const char *address,
                                     uint32_t *status, struct tc_error *error) {
    *status = 0;
    struct client_file *file =
        start_receiver(remote, error) ? new_file(remote, address, error) : NULL;
    if (!file)
        return NULL;
    pthread_mutex_lock(&remote->lock);
    file->number = ++remote->last_number;
    file->next = remote->files;
    remote->files = file;
    struct tc_frame frame = {.kind = TC_FRAME_OPEN,
                             .id = ++remote->last_request,
                             .number = file->number,
                             .size = (uint32_t)strlen(address)};
    bool prepared = blocks_prepare_first(file, frame.id) || tc_fail_memory(error);
    bool ok = prepared && client_send(remote, &frame, address, error);
    while (ok && !file->answered && !remote->broken)
        pthread_cond_wait(&remote->news, &remote->lock);
    if (ok && !file->answered)
        ok = client_broken(error);
    if (ok && file->error.class != TC_OK) {
        *error = file->error;
        ok = false;
    }
    if (prepared)
        blocks_settle_first(file);
    *status = file->status;
    pthread_mutex_unlock(&remote->lock);
    if (ok)
        return file;
    client_file_drop(file);
    return NULL;
}

static struct tc_input *copy_whole(struct client_file *file, struct tc_error *error) {
    struct tc_remote *remote = file->remote;
    int fd = tc_tempfile(error);
    if (fd < 0)
        return NULL;
    if (file->facts.has_size && !tc_tempfile_check(fd, 0, file->facts.size, error)) {
        close(fd);
        return NULL;
    }
    pthread_mutex_lock(&remote->lock);
    file->spool = fd;
    struct tc_frame frame = {.kind = TC_FRAME_READ,
                             .id = ++remote->last_request,
                             .number = file->number,
                             .length = TC_READ_WHOLE};
    bool ok = client_send(remote, &frame, NULL, error);
    while (ok && !file->spool_done && !remote->broken)
        pthread_cond_wait(&remote->news, &remote->lock);
    if (ok && !file->spool_done)
        ok = client_broken(error);
    if (ok && file->error.class != TC_OK) {
        *error = file->error;
        ok = false;
    }
    if (ok && file->facts.has_size && file->spooled != file->facts.size)
        ok = tc_fail(error, TC_IO, "wrong-range", "the server sent %llu bytes of %llu",
                     (unsigned long long)file->spooled, (unsigned long long)file->facts.size);
    file->spool = -1;
    uint64_t size = file->spooled;
    pthread_mutex_unlock(&remote->lock);
    if (!ok) {
        close(fd);
        return NULL;
    }
    struct tc_input *input = tc_input_adopt(fd, file->address, size, NULL, error);
    if (input) {
        input->mode = 0777;
        input->copied = true;
    }
    return input;
}

/* What the Hub says of a file does not tell whether its bytes come in ranges: the first of them do,
 * which whoever opens it will read anyway. */
static bool try_ranges(struct client_file *file, struct tc_input *input, struct tc_error *error) {
    char first;
    if (file->facts.size == 0 || tc_input_read(input, 0, &first, 1, error))
        return true;
    if (error->reason != TC_REASON_NO_RANGES)
        return false;
    pthread_mutex_lock(&file->remote->lock);
    file->error = *error = (struct tc_error){0};
    file->facts.ranges = 0;
    file->spool_done = false;
    pthread_mutex_unlock(&file->remote->lock);
    return true;
}

static struct tc_input *open_input(struct tc_remote *remote, const char *address, bool try,
                                   struct tc_error *error) {
    struct tc_input *input = NULL;
    struct client_file *file = NULL;
    uint32_t status;
    bool ok = true;
    if (strlen(address) > TC_ADDRESS_MOST)
        tc_fail(error, TC_USAGE, "address", "the address is too long");
    else
        file = open_file(remote, address, &status, error);
    if (file && file->facts.ranges) {
        input = tc_input_from(address, file->facts.size, &client_source, file, file->number, error);
        ok = input && (!try || try_ranges(file, input, error));
        if (!ok || !file->facts.ranges) {
            tc_input_close(input);
            input = NULL;
        }
    }
    if (file && ok && !file->facts.ranges)
        input = copy_whole(file, error);
    if (file)
        client_file_drop(file);
    if (!input)
        tc_error_in_file(error, address);
    return input;
}

struct tc_input *tc_remote_open(struct tc_remote *remote, const char *address,
                                struct tc_error *error) {
    return open_input(remote, address, true, error);
}

struct tc_input *tc_remote_open_unread(struct tc_remote *remote, const char *address,
                                       struct tc_error *error) {
    return open_input(remote, address, false, error);
}

/* Stores whose addresses are signed deny what is not signed, whether it is there or not, and each
 * with a status of its own; these two say that the server did not look. */
static bool says_missing(uint32_t status) {
    return status >= 400 && status < 500 && status != 408 && status != 429;
}

bool tc_remote_has(struct tc_remote *remote, const char *address, bool *has,
                   struct tc_error *error) {
    struct tc_error why = {0};
    uint32_t status;
    struct client_file *file = open_file(remote, address, &status, &why);
    *has = file != NULL;
    if (file)
        client_file_drop(file);
    if (*has || says_missing(status))
        return true;
    *error = why;
    return tc_error_in_file(error, address);
}

char *tc_remote_beside(const char *path, size_t folder, struct tc_error *error) {
    struct tc_buffer address = {0};
    if (tc_address_is_hub(path)) {
        tc_buffer_add_string(&address, path);
    } else {
        tc_buffer_add(&address, path, folder);
        tc_address_encode(&address, tc_text_of(path + folder), false);
    }
    tc_buffer_add(&address, "", 1);
    if (tc_buffer_ok(&address, error))
        return address.bytes;
    tc_buffer_release(&address);
    return NULL;
}

const struct tc_remote_facts *tc_remote_facts_of(const struct tc_input *input) {
    return input->source == &client_source ? &((const struct client_file *)input->context)->facts
                                           : NULL;
}

/* Calls */

/* Gives the fetcher bytes of the body, without the lock while they are read. */
static bool give(struct tc_remote *remote, struct client_call *state,
                 const struct tc_remote_call *call, char *bytes, struct tc_error *error) {
    uint64_t offset = state->want_offset;
    uint64_t length = state->want_length;
    state->wants = false;
    if (!call->read || length == 0 || length > TC_FRAME_MOST ||
        !tc_range_within(offset, length, call->length))
        return client_broken(error);
    pthread_mutex_unlock(&remote->lock);
    bool ok = call->read(call->context, offset, bytes, length, error);
    if (ok && call->progress)
        call->progress(call->progress_context, offset + length);
    pthread_mutex_lock(&remote->lock);
    struct tc_frame frame = {
        .kind = TC_FRAME_GIVE, .id = state->id, .offset = offset, .size = (uint32_t)length};
    return ok && client_send(remote, &frame, bytes, error);
}

static void begin_call(struct tc_remote *remote, struct client_call *state) {
    state->id = ++remote->last_request;
    state->next = remote->calls;
    remote->calls = state;
}

static void end_call(struct tc_remote *remote, const struct client_call *state) {
    for (struct client_call **at = &remote->calls; *at; at = &(*at)->next)
        if (*at == state) {
            *at = state->next;
            return;
        }
}

static bool converse(struct tc_remote *remote, struct client_call *state,
                     const struct tc_remote_call *call, const struct tc_buffer *text,
                     struct tc_error *error) {
    char *bytes = malloc(TC_FRAME_MOST);
    if (!bytes)
        return tc_fail_memory(error);
    struct tc_frame frame = {.kind = TC_FRAME_CALL,
                             .id = state->id,
                             .number = (call->read ? TC_CALL_BODY : 0) |
                                       (call->again ? TC_CALL_AGAIN : 0),
                             .size = (uint32_t)text->length,
                             .offset = call->most,
                             .length = call->length};
    bool ok = client_send(remote, &frame, text->bytes, error);
    while (ok && !state->done) {
        if (remote->broken)
            ok = client_broken(error);
        else if (state->wants)
            ok = give(remote, state, call, bytes, error);
        else
            pthread_cond_wait(&remote->news, &remote->lock);
    }
    free(bytes);
    return ok;
}

bool tc_remote_call(struct tc_remote *remote, const struct tc_remote_call *call,
                    struct tc_remote_answer *answer, struct tc_error *error) {
    struct tc_buffer text = {0};
    struct tc_error refused = {0};
    *answer = (struct tc_remote_answer){0};
    tc_buffer_add(&text, call->method, strlen(call->method) + 1);
    tc_buffer_add(&text, call->target, strlen(call->target) + 1);
    if (call->content_type)
        tc_buffer_addf(&text, "Content-Type: %s", call->content_type);
    if (call->content_type)
        tc_buffer_add(&text, "", 1);
    tc_buffer_add_text(&text, call->headers);
    bool ok = tc_buffer_ok(&text, error) && start_receiver(remote, error);
    if (ok) {
        struct client_call state = {.most = call->most,
                                    .body = &answer->body,
                                    .status = &answer->status,
                                    .error = &refused};
        pthread_mutex_lock(&remote->lock);
        begin_call(remote, &state);
        ok = converse(remote, &state, call, &text, error);
        end_call(remote, &state);
        pthread_mutex_unlock(&remote->lock);
    }
    tc_buffer_release(&text);
    if (ok && refused.class != TC_OK) {
        *error = refused;
        return false;
    }
    return ok && tc_buffer_ok(&answer->body, error);
}
