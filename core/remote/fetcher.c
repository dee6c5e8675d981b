#include "core/remote/fetcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/io/landlock.h"
#include "core/io/sanitized.h"
#include "core/io/seccomp.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/fetch.h"
#include "core/remote/http.h"

/* Bytes that wait for the command; more than that, and transfers pause. */
#define QUEUE_FULL ((size_t)2 << 20)
/* The command asks for no more than this at once. */
#define MOST_JOBS 1024u
#define MOST_CALL_TEXT ((uint32_t)32 << 10)
#define USUAL_BACKOFF 500
/* How much of a file comes with the answer that it is there. */
#define FIRST_BYTES ((uint64_t)1 << 16)
/* What frames, files and addresses may take; transfers are libcurl's own. */
#define MEMORY (UINT64_C(64) << 20)
#define READ_STEP ((size_t)64 << 10)

/* Frames */

void fetcher_send(struct fetcher *fetcher, const struct tc_frame *frame, const void *payload) {
    tc_buffer_add(&fetcher->out, frame, sizeof *frame);
    if (frame->size)
        tc_buffer_add(&fetcher->out, payload, frame->size);
}

bool fetcher_is_full(const struct fetcher *fetcher) {
    return fetcher->out.length - fetcher->out_done > QUEUE_FULL;
}

static void flush(struct fetcher *fetcher) {
    /* A frame that there was no memory for: the command would wait for it for ever. */
    fetcher->broken |= fetcher->out.failed;
    if (fetcher->broken || fetcher->out.length == 0)
        return;
    while (fetcher->out_done < fetcher->out.length) {
        ssize_t done = send(fetcher->fd, fetcher->out.bytes + fetcher->out_done,
                            fetcher->out.length - fetcher->out_done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (done <= 0) {
            fetcher->broken = true;
            return;
        }
        fetcher->out_done += (size_t)done;
    }
    /* What was sent makes room; seldom, since what is left is moved. */
    size_t left = fetcher->out.length - fetcher->out_done;
    if (left == 0 || fetcher->out_done > QUEUE_FULL) {
        memmove(fetcher->out.bytes, fetcher->out.bytes + fetcher->out_done, left);
        fetcher->out.length = left;
        fetcher->out_done = 0;
    }
}

/* Files */

static void free_file(struct fetch_file *file) {
    free(file->address);
    free(file->url);
    free(file->direct);
    free(file->pin);
    free(file);
}

static void drop_files(struct fetcher *fetcher) {
    for (struct fetch_file **at = &fetcher->files; *at;) {
        struct fetch_file *file = *at;
        if (file->closed && file->users == 0) {
            *at = file->next;
            free_file(file);
        } else {
            at = &file->next;
        }
    }
}

static struct fetch_file *find_file(struct fetcher *fetcher, uint32_t number) {
    struct fetch_file *file = fetcher->files;
    while (file && (file->number != number || file->closed))
        file = file->next;
    return file;
}

/* Requests */

static void end_job(struct fetch_job *job) {
    if (job->file)
        job->file->users--;
    tc_http_free(job->transfer);
    tc_buffer_release(&job->text);
    tc_buffer_release(&job->tail);
    tc_buffer_release(&job->unescaped);
    free(job->given);
    free(job->url);
    free(job);
}

static struct fetch_job *add_job(struct fetcher *fetcher, const struct tc_frame *frame,
                                 enum fetch_kind kind, struct fetch_file *file) {
    struct fetch_job *job = calloc(1, sizeof *job);
    struct fetch_job **last = &fetcher->jobs;
    if (!job || fetcher->job_count >= MOST_JOBS) {
        free(job);
        fetcher->broken = true;
        return NULL;
    }
    *job = (struct fetch_job){
        .fetcher = fetcher, .kind = kind, .id = frame->id, .file = file, .method = "GET"};
    if (file)
        file->users++;
    while (*last)
        last = &(*last)->next;
    *last = job;
    fetcher->job_count++;
    return job;
}

static bool set_url(struct fetch_job *job, const char *url) {
    job->url = url ? strdup(url) : NULL;
    return job->url || fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
}

static bool go_online(struct fetch_job *job) {
    struct fetcher *fetcher = job->fetcher;
    bool hub = !job->file || job->file->pin;
    if (!fetcher->http) {
        job->error = fetcher->start_error;
        job->code = TC_REMOTE_NO_LIBCURL;
        return false;
    }
    if (hub && fetcher->hub_error.class != TC_OK) {
        job->error = fetcher->hub_error;
        job->code = fetcher->hub_code;
        return false;
    }
    if (!fetcher->offline)
        return true;
    fetch_fail(job, TC_IO, TC_REMOTE_OFFLINE, "the network is not to be used (HF_HUB_OFFLINE)");
    return tc_error_hint(&job->error,
                         "unset HF_HUB_OFFLINE; without the network only that is read which "
                         "tconv hub pull or the Hub's own client fetched before");
}

static void take_open(struct fetcher *fetcher, const struct tc_frame *frame, const char *text) {
    struct fetch_file *file = calloc(1, sizeof *file);
    char *address = strndup(text, frame->size);
    if (!file || !address || !tc_address_is(address) || find_file(fetcher, frame->number)) {
        free(file);
        free(address);
        fetcher->broken = true;
        return;
    }
    *file =
        (struct fetch_file){.number = frame->number, .address = address, .next = fetcher->files};
    fetcher->files = file;
    struct fetch_job *job = add_job(fetcher, frame, FETCH_OPEN, file);
    if (!job)
        return;
    job->end = FIRST_BYTES;
    if (fetch_resolve(job) && go_online(job))
        set_url(job, file->url);
}

static void take_read(struct fetcher *fetcher, const struct tc_frame *frame) {
    struct fetch_file *file = find_file(fetcher, frame->number);
    bool whole = frame->length == TC_READ_WHOLE;
    if (!file || !file->opened ||
        (!whole && (frame->length == 0 || frame->offset > file->facts.size ||
                    frame->length > file->facts.size - frame->offset))) {
        fetcher->broken = true;
        return;
    }
    struct fetch_job *job = add_job(fetcher, frame, FETCH_READ, file);
    if (!job)
        return;
    job->whole = whole;
    job->at = whole ? 0 : frame->offset;
    job->end = whole ? UINT64_MAX : frame->offset + frame->length;
    job->private = file->private;
    job->direct = file->direct != NULL;
    job->trusted = file->pin != NULL && !job->direct;
    set_url(job, file->direct ? file->direct : file->url);
}

/* What the Hub names for an upload it leads to as by a redirect: the same rules hold, and private
 * networks are for uploads only where the endpoint is in one. */
static bool set_call_rules(struct fetch_job *job, const char *target) {
    job->trusted = target[0] == '/';
    if (job->trusted)
        return true;
    job->private = job->fetcher->endpoint_private;
    bool allowed = set_url(job, job->fetcher->endpoint) && fetch_hop_is_allowed(job, target);
    free(job->url);
    job->url = NULL;
    job->hops = 1;
    return allowed;
}

static const char *method_of(const char *text) {
    static const char *const methods[] = {"GET", "PUT", "POST", "HEAD"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i], text) == 0)
            return methods[i];
    return NULL;
}

/* A line's end inside of one would make it two lines of the header, or two requests. */
static bool has_controls(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] && ((unsigned char)text[i] < 0x20 || text[i] == 0x7f))
            return true;
    return false;
}

static void take_call(struct fetcher *fetcher, const struct tc_frame *frame, const char *text) {
    struct fetch_job *job = add_job(fetcher, frame, FETCH_CALL, NULL);
    if (!job)
        return;
    tc_buffer_add(&job->text, text, frame->size);
    const char *target = memchr(text, '\0', frame->size);
    if (job->text.failed || !target || text[frame->size - 1] || target == text + frame->size - 1 ||
        has_controls(text, frame->size) || !(job->method = method_of(text))) {
        fetcher->broken = true;
        return;
    }
    target++;
    job->has_body = frame->number & TC_CALL_BODY;
    job->again = frame->number & TC_CALL_AGAIN;
    job->body_length = frame->length;
    job->most = frame->offset;
    if (!fetch_lines_are_allowed(target, text + frame->size)) {
        fetcher->broken = true;
        return;
    }
    if (!fetch_call_is_allowed(job, target) || !go_online(job) || !set_call_rules(job, target))
        return;
    if (target[0] != '/') {
        set_url(job, target);
    } else {
        if (asprintf(&job->url, "%s%s", fetcher->endpoint, target) < 0) {
            job->url = NULL;
            fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
        }
    }
}

static void take_give(struct fetcher *fetcher, const struct tc_frame *frame, const char *bytes) {
    struct fetch_job *job = fetcher->jobs;
    while (job && !(job->kind == FETCH_CALL && job->id == frame->id))
        job = job->next;
    /* A transfer that was begun again asks again, from the start. */
    if (!job || !job->wants || frame->offset != job->sent)
        return;
    free(job->given);
    job->given = malloc(frame->size ? frame->size : 1);
    if (!job->given || frame->size == 0) {
        fetcher->broken = true;
        return;
    }
    memcpy(job->given, bytes, frame->size);
    job->given_length = frame->size;
    job->given_used = 0;
    job->wants = false;
    if (job->transfer)
        tc_http_resume(job->transfer);
}

static void take_close(struct fetcher *fetcher, const struct tc_frame *frame) {
    struct fetch_file *file = find_file(fetcher, frame->number);
    if (file)
        file->closed = true;
    for (struct fetch_job **at = &fetcher->jobs; *at;) {
        struct fetch_job *job = *at;
        if (job->file && job->file == file) {
            *at = job->next;
            fetcher->job_count--;
            end_job(job);
        } else {
            at = &job->next;
        }
    }
    drop_files(fetcher);
}

static void take_frame(struct fetcher *fetcher, const struct tc_frame *frame, const char *payload) {
    switch (frame->kind) {
    case TC_FRAME_OPEN:
        take_open(fetcher, frame, payload);
        return;
    case TC_FRAME_READ:
        take_read(fetcher, frame);
        return;
    case TC_FRAME_CALL:
        take_call(fetcher, frame, payload);
        return;
    case TC_FRAME_GIVE:
        take_give(fetcher, frame, payload);
        return;
    case TC_FRAME_CLOSE:
        take_close(fetcher, frame);
        return;
    default:
        fetcher->broken = true;
    }
}

static uint32_t most_payload(uint32_t kind) {
    switch (kind) {
    case TC_FRAME_OPEN:
        return TC_ADDRESS_MOST;
    case TC_FRAME_CALL:
        return MOST_CALL_TEXT;
    case TC_FRAME_GIVE:
        return TC_FRAME_MOST;
    default:
        return 0;
    }
}

static void receive(struct fetcher *fetcher) {
    char bytes[READ_STEP];
    ssize_t got = recv(fetcher->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        fetcher->broken = true;
    if (got <= 0)
        return;
    tc_buffer_add(&fetcher->in, bytes, (size_t)got);
    size_t done = 0;
    struct tc_frame frame;
    while (!fetcher->broken && fetcher->in.length - done >= sizeof frame) {
        memcpy(&frame, fetcher->in.bytes + done, sizeof frame);
        if (frame.size > most_payload(frame.kind) ||
            (frame.size == 0 && most_payload(frame.kind))) {
            fetcher->broken = true;
            return;
        }
        if (fetcher->in.length - done - sizeof frame < frame.size)
            break;
        take_frame(fetcher, &frame, fetcher->in.bytes + done + sizeof frame);
        done += sizeof frame + frame.size;
    }
    fetcher->in.length -= done;
    if (fetcher->in.length)
        memmove(fetcher->in.bytes, fetcher->in.bytes + done, fetcher->in.length);
    fetcher->broken |= fetcher->in.failed;
}

/* The loop */

static void remove_job(struct fetcher *fetcher, struct fetch_job *job) {
    for (struct fetch_job **at = &fetcher->jobs; *at; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    fetcher->job_count--;
    end_job(job);
    drop_files(fetcher);
}

/* Starts as many jobs as may run at once, in the order they came, fails those that
 * have an error, and ends those on which nothing happens. Returns how long nothing is
 * due, in milliseconds. */
static int tend_jobs(struct fetcher *fetcher) {
    int64_t now = fetch_now();
    int64_t due = now + 1000;
    unsigned running = 0;
    struct fetch_job *next;
    for (struct fetch_job *job = fetcher->jobs; job; job = next) {
        next = job->next;
        bool over = false;
        if (job->transfer && job->paused && !fetcher_is_full(fetcher)) {
            job->paused = false;
            job->alive = now;
            tc_http_resume(job->transfer);
        }
        if (job->transfer && !job->paused && !job->wants && now - job->alive > fetch_patience(job))
            over = fetch_timed_out(job);
        if (!job->transfer && !over && job->error.class == TC_OK &&
            running < fetcher->options->jobs && job->not_before <= now)
            fetch_start(job);
        if (!job->transfer && !over && job->error.class != TC_OK) {
            fetch_refuse(job);
            over = true;
        }
        running += job->transfer != NULL;
        int64_t when = job->transfer ? job->alive + fetch_patience(job) + 1 : job->not_before;
        if (when > now && when < due)
            due = when;
        if (over)
            remove_job(fetcher, job);
    }
    return (int)(due - now);
}

static void finish_transfers(struct fetcher *fetcher) {
    struct tc_http_transfer *transfer;
    enum tc_http_result result;
    const char *why;
    while ((transfer = tc_http_next(fetcher->http, &result, &why)) != NULL) {
        struct fetch_job *job = tc_http_context(transfer);
        if (fetch_ended(job, result, why))
            remove_job(fetcher, job);
    }
}

static void loop(struct fetcher *fetcher) {
    while (!fetcher->broken) {
        int wait = tend_jobs(fetcher);
        flush(fetcher);
        bool waits = fetcher->out_done < fetcher->out.length;
        short events = waits ? POLLIN | POLLOUT : POLLIN;
        int seen;
        if (fetcher->http) {
            seen = tc_http_wait(fetcher->http, fetcher->fd, events, wait);
            finish_transfers(fetcher);
        } else {
            struct pollfd one = {.fd = fetcher->fd, .events = events};
            seen = poll(&one, 1, wait) > 0 ? one.revents : 0;
        }
        if (seen & (POLLIN | POLLHUP | POLLERR))
            receive(fetcher);
        flush(fetcher);
    }
}

/* Of what the command had open the fetcher keeps its socket, and the descriptor for messages: the
 * output of the command, and whatever its own parent had open, are none of its business. */
static void keep_own_descriptors(int fd) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int standard = STDIN_FILENO; standard <= STDOUT_FILENO; standard++)
        if (dup2(nothing, standard) < 0)
            close(standard);
    if (fd > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
}

/* Before it has the token: it dumps no core, and nobody reads its memory. */
static void keep_memory_private(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (!TC_SANITIZED)
        prctl(PR_SET_DUMPABLE, 0);
}

/* The process: it ends when its socket does, so that a signal from the terminal, which
 * both get, is the command's to handle. */
static void confine_fetcher(void) {
    struct tc_landlock layer;
    int abi = tc_landlock_abi();
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return;
    /* No file is ever changed. */
    if (abi != TC_LANDLOCK_NONE &&
        tc_landlock_begin(&layer, TC_LANDLOCK_CHANGE | TC_LANDLOCK_REFER, false, abi) == 0)
        tc_landlock_enforce(&layer);
    tc_seccomp_fetcher();
}

static void begin(struct fetcher *fetcher) {
    struct tc_url endpoint;
    const char *certificates = getenv("SSL_CERT_FILE");
    if (!certificates || !certificates[0])
        certificates = getenv("CURL_CA_BUNDLE");
    const char *folder = getenv("SSL_CERT_DIR");
    struct tc_http_settings settings = {.certificates =
                                            certificates && certificates[0] ? certificates : NULL,
                                        .certificate_folder = folder && folder[0] ? folder : NULL,
                                        .connect_milliseconds = fetcher->timeout};
    char *token = tc_hub_token(&fetcher->hub_error);
    fetcher->hub_code = TC_REMOTE_TOKEN;
    if (token && asprintf(&fetcher->token, FETCH_BEARER "%s", token) < 0)
        fetcher->token = NULL;
    if (token)
        tc_forget(token, strlen(token));
    free(token);
    /* Others can read the variables that a process was started with (/proc/PID/environ). */
    tc_hub_forget_token();
    if (fetcher->hub_error.class == TC_OK &&
        !tc_url_parse(&endpoint, fetcher->endpoint, &fetcher->hub_error)) {
        fetcher->hub_code =
            fetcher->hub_error.class == TC_UNSAFE ? TC_REMOTE_PLAIN_HTTP : TC_REMOTE_ADDRESS;
        fetcher->hub_error.hint[0] = '\0';
        tc_error_hint(&fetcher->hub_error, "HF_ENDPOINT is to be the Hub's own address");
    }
    fetcher->http = tc_http_open(&settings, &fetcher->start_error);
}

#ifdef TCONV_TEST_HOOKS
/* In test builds TCONV_TEST_BACKOFF=MILLISECONDS is how long the first wait is. */
static int first_backoff(void) {
    const char *text = getenv("TCONV_TEST_BACKOFF");
    return text ? atoi(text) : USUAL_BACKOFF;
}
#else
static int first_backoff(void) {
    return USUAL_BACKOFF;
}
#endif

_Noreturn void tc_fetcher_run(int fd, const struct tc_fetcher_options *options) {
    struct fetcher fetcher = {.fd = fd,
                              .options = options,
                              .endpoint = tc_hub_endpoint(),
                              .offline = tc_hub_is_offline(),
                              .timeout = tc_hub_timeout(),
                              .backoff = first_backoff()};
    tc_memory_limit(MEMORY);
    if (!fetcher.endpoint)
        _exit(1);
    keep_own_descriptors(fd);
    keep_memory_private();
    begin(&fetcher);
    confine_fetcher();
    if (options->confined)
        options->confined();
    loop(&fetcher);
    _exit(0);
}
