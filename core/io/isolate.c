#include "core/io/isolate.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/io/landlock.h"
#include "core/io/sanitized.h"
#include "core/io/seccomp.h"

/* From the parser to us. Behind a range that is asked for we send its bytes. */
enum frame_kind { FRAME_ASK = 1, FRAME_ANSWER, FRAME_ERROR };

struct frame {
    uint32_t kind;
    uint32_t class; /* of an error */
    uint64_t offset;
    uint64_t length; /* of the range that is asked for; of what follows */
};

/* How long a process may take to end once it has closed its descriptor. */
#define GRACE_MILLISECONDS 1000
/* Of a message that the parser sends. */
#define MOST_MESSAGE sizeof((struct tc_error *)0)->message
#define FIRST_DESCRIPTOR_LIMIT 65536

/* In the process of its own */

/* Its end is seen by the other side. */
static void send_all(struct tc_isolate_host *host, const void *bytes, size_t length) {
    const char *at = bytes;
    while (length && !host->broken) {
        ssize_t done = write(host->fd, at, length);
        if (done < 0 && errno == EINTR)
            continue;
        host->broken = done <= 0;
        at += done > 0 ? done : 0;
        length -= done > 0 ? (size_t)done : 0;
    }
}

static void receive_all(struct tc_isolate_host *host, void *bytes, size_t length) {
    char *at = bytes;
    while (length && !host->broken) {
        ssize_t done = read(host->fd, at, length);
        if (done < 0 && errno == EINTR)
            continue;
        host->broken = done <= 0;
        at += done > 0 ? done : 0;
        length -= done > 0 ? (size_t)done : 0;
    }
}

bool tc_isolate_read(struct tc_isolate_host *host, uint64_t offset, void *bytes, size_t length,
                     struct tc_error *error) {
    char *at = bytes;
    while (length && !host->broken) {
        size_t step = length < TC_ISOLATE_READ ? length : TC_ISOLATE_READ;
        struct frame ask = {.kind = FRAME_ASK, .offset = offset, .length = step};
        send_all(host, &ask, sizeof ask);
        receive_all(host, at, step);
        at += step;
        offset += step;
        length -= step;
    }
    return !host->broken || tc_fail(error, TC_IO, "read", "cannot read");
}

/* A signal is again what it is for any process: our handlers clean up after us. */
static void reset_signals(void) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The socket becomes descriptor 0, and no other is open or can be. */
static void keep_one_descriptor(int fd) {
    struct rlimit one = {1, 1};
    dup2(fd, 0);
    if (close_range(1, ~0u, 0) != 0)
        for (int other = 1; other < FIRST_DESCRIPTOR_LIMIT; other++)
            close(other);
    setrlimit(RLIMIT_NOFILE, &one);
}

static bool limit(int what, uint64_t soft, uint64_t hard) {
    struct rlimit old;
    if (getrlimit((__rlimit_resource_t)what, &old) != 0)
        return false;
    struct rlimit new = {soft < old.rlim_max ? soft : old.rlim_max,
                         hard < old.rlim_max ? hard : old.rlim_max};
    return setrlimit((__rlimit_resource_t)what, &new) == 0;
}

/* How much private memory the process has already, as the kernel counts it for
 * RLIMIT_DATA: the least limit under which it may have another page. Asking for
 * it in /proc would take a file. */
static uint64_t memory_in_use(size_t page) {
    struct rlimit old;
    uint64_t low = 0;
    uint64_t high = UINT64_C(1) << 47;
    if (getrlimit(RLIMIT_DATA, &old) != 0)
        return 0;
    high = old.rlim_max < high ? old.rlim_max : high;
    while (high - low > page) {
        uint64_t middle = low + (high - low) / 2;
        struct rlimit trial = {middle, old.rlim_max};
        setrlimit(RLIMIT_DATA, &trial);
        void *more = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) {
            low = middle;
        } else {
            munmap(more, page);
            high = middle;
        }
    }
    return high;
}

static bool limit_resources(const struct tc_isolate *isolate) {
    bool ok = limit(RLIMIT_CORE, 0, 0) && limit(RLIMIT_FSIZE, 0, 0) && limit(RLIMIT_NPROC, 0, 0);
    if (isolate->cpu_seconds)
        ok = limit(RLIMIT_CPU, isolate->cpu_seconds, isolate->cpu_seconds + UINT64_C(1)) && ok;
    if (isolate->memory && !TC_SANITIZED) {
        uint64_t most;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        if (!__builtin_add_overflow(memory_in_use(page), isolate->memory, &most))
            ok = limit(RLIMIT_DATA, most, most) && ok;
    }
    return ok;
}

/* Everything that Landlock knows, with no rule that allows any of it. */
static bool leave_files(void) {
    struct tc_landlock nothing;
    int abi = tc_landlock_abi();
    uint64_t all = TC_LANDLOCK_READ | TC_LANDLOCK_CHANGE | TC_LANDLOCK_REFER;
    return abi != TC_LANDLOCK_NONE && tc_landlock_begin(&nothing, all, true, abi) == 0 &&
           tc_landlock_enforce(&nothing) == 0;
}

/* Landlock takes a descriptor for a moment, and so goes before there can be no
 * other; seccomp leaves none of these calls. */
static bool confine(const struct tc_isolate *isolate, int fd) {
    bool ok = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    ok = limit_resources(isolate) && ok;
    if (!TC_SANITIZED)
        prctl(PR_SET_DUMPABLE, 0);
    ok = leave_files() && ok;
    keep_one_descriptor(fd);
    return tc_seccomp_parser() == 0 && ok;
}

static _Noreturn void run_parser(const struct tc_isolate *isolate, int fd, pid_t parent) {
    struct tc_isolate_host host = {.fd = 0};
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    reset_signals();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    bool ok = confine(isolate, fd);
    if (!ok && isolate->require)
        tc_fail(&error, TC_UNSAFE, "sandbox", "this system can't confine the parser");
    else
        isolate->parse(isolate->context, &host, &answer, &error);
    if (error.class == TC_OK)
        tc_buffer_ok(&answer, &error);
    const char *bytes = error.class == TC_OK ? answer.bytes : error.message;
    struct frame last = {.kind = error.class == TC_OK ? FRAME_ANSWER : FRAME_ERROR,
                         .class = error.class,
                         .length = error.class == TC_OK ? answer.length : strlen(error.message)};
    send_all(&host, &last, sizeof last);
    send_all(&host, bytes, last.length);
    _exit(host.broken);
}

/* On our side */

struct child {
    pid_t pid;
    int fd;
    unsigned seconds; /* 0: no limit */
    struct timespec started;
    bool late;
};

/* Milliseconds that are left; -1: there is no limit. */
static int time_left(const struct child *child) {
    struct timespec now;
    if (!child->seconds)
        return -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t passed = ((int64_t)now.tv_sec - child->started.tv_sec) * 1000 +
                     (now.tv_nsec - child->started.tv_nsec) / 1000000;
    int64_t left = (int64_t)child->seconds * 1000 - passed;
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static bool wait_for(struct child *child, short events) {
    struct pollfd poller = {.fd = child->fd, .events = events};
    for (;;) {
        int ready = poll(&poller, 1, time_left(child));
        child->late = ready == 0;
        if (ready >= 0 || errno != EINTR)
            return ready > 0;
    }
}

/* False at the end, and where it takes too long. */
static bool receive(struct child *child, void *bytes, size_t length) {
    char *at = bytes;
    while (length) {
        if (!wait_for(child, POLLIN))
            return false;
        ssize_t got = read(child->fd, at, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        length -= (size_t)got;
    }
    return true;
}

static bool deliver(struct child *child, const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        if (!wait_for(child, POLLOUT))
            return false;
        ssize_t done = send(child->fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (done < 0)
            return false;
        at += done;
        length -= (size_t)done;
    }
    return true;
}

static bool fail(struct tc_error *error, const char *what) {
    return tc_fail(error, TC_INVALID, "parser", "%s", what);
}

/* Bytes that it announced, no more than may be; the buffer grows as they come. */
static bool receive_text(struct child *child, struct tc_buffer *text, uint64_t length,
                         struct tc_error *error) {
    char piece[4096];
    while (length) {
        size_t step = length < sizeof piece ? length : sizeof piece;
        if (!receive(child, piece, step))
            return false;
        tc_buffer_add(text, piece, step);
        if (!tc_buffer_ok(text, error))
            return false;
        length -= step;
    }
    return true;
}

/* What it says is wrong: its words, but the kind only where it may be so. */
static bool take_error(struct child *child, const struct frame *frame, struct tc_error *error) {
    struct tc_buffer text = {0};
    if (frame->length < MOST_MESSAGE && receive_text(child, &text, frame->length, error))
        tc_fail(error,
                frame->class == TC_UNSUPPORTED || frame->class == TC_UNSAFE || frame->class == TC_IO
                    ? (enum tc_class)frame->class
                    : TC_INVALID,
                "parser", "%.*s", (int)text.length, text.bytes ? text.bytes : "");
    tc_buffer_release(&text);
    return false;
}

static bool give_range(const struct tc_isolate *isolate, struct child *child,
                       const struct frame *frame, char **buffer, struct tc_error *error) {
    if (!isolate->read || frame->length == 0 || frame->length > TC_ISOLATE_READ)
        return fail(error, "the parser asks for what it may not have");
    if (!*buffer && !(*buffer = malloc(TC_ISOLATE_READ)))
        return tc_fail_memory(error);
    return isolate->read(isolate->input, frame->offset, *buffer, frame->length, error) &&
           deliver(child, *buffer, frame->length);
}

static bool converse(const struct tc_isolate *isolate, struct child *child,
                     struct tc_buffer *answer, struct tc_error *error) {
    struct frame frame;
    char *buffer = NULL;
    bool ok;
    while ((ok = receive(child, &frame, sizeof frame)) && frame.kind == FRAME_ASK)
        if (!(ok = give_range(isolate, child, &frame, &buffer, error)))
            break;
    free(buffer);
    if (!ok)
        return false;
    if (frame.kind == FRAME_ERROR)
        return take_error(child, &frame, error);
    if (frame.kind != FRAME_ANSWER)
        return fail(error, "the parser does not keep to its protocol");
    if (frame.length > isolate->most)
        return tc_fail(error, TC_INVALID, "parser",
                       "the parser's answer is too long (got %llu bytes, at most %zu)",
                       (unsigned long long)frame.length, isolate->most);
    char behind;
    return receive_text(child, answer, frame.length, error) &&
           (!receive(child, &behind, 1) || fail(error, "the parser says more than its answer"));
}

/* It has had its say, or its time: a moment to end by itself, then it is ended. */
static bool ended(const struct child *child, bool now, int *status) {
    struct timespec step = {.tv_nsec = 1000000};
    pid_t done = 0;
    for (int i = 0; i < GRACE_MILLISECONDS && !now && done == 0; i++) {
        done = waitpid(child->pid, status, WNOHANG);
        if (done == 0)
            nanosleep(&step, NULL);
    }
    if (done == child->pid)
        return true;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, status, 0) < 0 && errno == EINTR)
        ;
    return false;
}

static bool tell_end(const struct tc_isolate *isolate, const struct child *child, bool by_itself,
                     int status, struct tc_error *error) {
    if (child->late)
        return tc_fail(error, TC_INVALID, "parser", "the parser took more than %u seconds",
                       isolate->wall_seconds);
    if (!by_itself)
        return fail(error, "the parser does not end");
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (number == SIGXCPU)
        return tc_fail(error, TC_INVALID, "parser",
                       "the parser took more than %u seconds of processor time",
                       isolate->cpu_seconds);
    if (number)
        return tc_fail(error, TC_INVALID, "parser", "the parser ended by signal %d (%s)", number,
                       sigdescr_np(number) ? sigdescr_np(number) : "unknown");
    return tc_fail(error, TC_INVALID, "parser", "the parser ended without an answer (status %d)",
                   WEXITSTATUS(status));
}

static bool start(struct child *child, const struct tc_isolate *isolate, struct tc_error *error) {
    int pair[2];
    sigset_t all;
    sigset_t old;
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return tc_fail_errno(error, errno, "parser", "cannot start the parser");
    /* Until the process has its own handlers none of ours may run in it. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    *child = (struct child){.pid = fork(), .fd = pair[0], .seconds = isolate->wall_seconds};
    int failed = errno;
    if (child->pid == 0)
        run_parser(isolate, pair[1], parent);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    close(pair[1]);
    clock_gettime(CLOCK_MONOTONIC, &child->started);
    if (child->pid > 0)
        return true;
    close(pair[0]);
    return tc_fail_errno(error, failed, "parser", "cannot start the parser");
}

bool tc_isolate_run(const struct tc_isolate *isolate, struct tc_buffer *answer,
                    struct tc_error *error) {
    struct child child;
    int status = 0;
    if (!start(&child, isolate, error))
        return false;
    bool ok = converse(isolate, &child, answer, error);
    bool by_itself = ended(&child, child.late || error->class != TC_OK, &status);
    close(child.fd);
    if (error->class == TC_OK && (!ok || child.late || !by_itself || status != 0))
        ok = tell_end(isolate, &child, by_itself, status, error);
    if (!ok)
        tc_buffer_release(answer);
    return ok;
}
