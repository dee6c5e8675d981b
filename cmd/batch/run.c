#include "cmd/batch/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/report.h"
#include "core/base/memory.h"
#include "core/io/cores.h"
#include "core/io/signals.h"

/* A process and the two pipes from it: what it tells, and what it prints. */
struct process {
    pid_t pid; /* 0: this place is free */
    int told;
    int printed;
    bool has_token; /* of the jobserver */
    struct batch_task task;
    struct batch_result result;
    struct timespec started;
    int unread; /* errno of what could not be read from it */
};

struct running {
    const struct batch_runner *runner;
    struct process *processes;
    size_t count;
    struct pollfd *polls;
    int signals;
    sigset_t mask; /* before signals were blocked */
    bool stopped;  /* no other is to be started */
    size_t most;   /* at once: as many as there are places, or fewer where the system has no more */
    bool holds;    /* `held` waits until another has ended */
    struct batch_task held;
};

/* Starting */

/* Closes what only the parent reads from: a conversion may need the descriptors, and it is to see
 * that its own pipes have no reader left. */
static void close_for_child(const struct running *running, const struct process *own) {
    for (size_t i = 0; i < running->count; i++) {
        const struct process *process = &running->processes[i];
        if (process->pid && process != own) {
            close(process->told);
            close(process->printed);
        }
    }
    close(running->signals);
}

static _Noreturn void become_child(struct running *running, const struct process *process,
                                   const int told[2], const int printed[2], pid_t parent) {
    const struct batch_task *task = &process->task;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    tc_signals_unblock(&running->mask);
    if (getppid() != parent)
        _exit(TC_IO);
    tc_cores_share(running->count);
    close_for_child(running, process);
    close(told[0]);
    close(printed[0]);
    dup2(printed[1], STDOUT_FILENO);
    dup2(printed[1], STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    batch_child(told[1], task->count, task->words, &task->wants);
}

static bool start(struct running *running, struct process *process, struct tc_error *error) {
    int told[2];
    int printed[2];
    pid_t parent = getpid();
    if (pipe2(told, O_CLOEXEC) != 0)
        return tc_fail_errno(error, errno, "process", "cannot start a process");
    if (pipe2(printed, O_CLOEXEC) != 0) {
        close(told[0]);
        close(told[1]);
        return tc_fail_errno(error, errno, "process", "cannot start a process");
    }
    fflush(NULL); /* or the child would print what waits in our buffers once more */
    process->pid = fork();
    if (process->pid == 0)
        become_child(running, process, told, printed, parent);
    int failed = errno;
    close(told[1]);
    close(printed[1]);
    process->told = told[0];
    process->printed = printed[0];
    clock_gettime(CLOCK_MONOTONIC, &process->started);
    if (process->pid > 0)
        return true;
    process->pid = 0;
    close(told[0]);
    close(printed[0]);
    return tc_fail_errno(error, failed, "process", "cannot start a process");
}

static size_t count_running(const struct running *running) {
    size_t count = 0;
    for (size_t i = 0; i < running->count; i++)
        count += running->processes[i].pid != 0;
    return count;
}

/* Fills in the task that waits, or the next; false: there is none. */
static bool take_task(struct running *running, struct batch_task *task) {
    if (running->holds) {
        *task = running->held;
        running->holds = false;
        return true;
    }
    if (!running->stopped)
        running->stopped = !running->runner->next(running->runner->context, task);
    return !running->stopped;
}

/* Where the system has no descriptors or processes left, the task waits for one of those that run;
 * where none runs, it has failed. */
static void cannot_start(struct running *running, struct process *process) {
    const struct batch_runner *runner = running->runner;
    size_t others = count_running(running);
    if (others) {
        running->held = process->task;
        running->holds = true;
        running->most = others;
    } else if (!runner->ended(runner->context, &process->task, &process->result)) {
        running->stopped = true;
    }
}

/* Starts as many as may run. The first needs no token: it is the job that make started. */
static void start_some(struct running *running) {
    struct tc_jobserver *jobserver = running->runner->jobserver;
    for (size_t i = 0; i < running->count && (running->holds || !running->stopped);) {
        struct process *process = &running->processes[i];
        size_t others = count_running(running);
        bool token = false;
        if (process->pid) {
            i++;
            continue;
        }
        if (others >= running->most)
            break;
        if (jobserver->read_fd >= 0 && others) {
            token = tc_jobserver_take(jobserver);
            if (!token)
                break;
        }
        *process = (struct process){.has_token = token};
        if (take_task(running, &process->task) && !start(running, process, &process->result.crash))
            cannot_start(running, process);
        if (token && !process->pid)
            tc_jobserver_give(jobserver);
    }
}

/* Ending */

static void describe_crash(struct process *process, int status) {
    struct batch_result *result = &process->result;
    struct tc_error *crash = &result->crash;
    bool told = result->report.ended || result->report.failed;
    bool misread = result->report.broken || !told;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (process->unread) {
        tc_fail_errno(crash, process->unread, "process", "cannot read how its process ended");
    } else if (misread && tc_memory_lacked()) {
        tc_fail_memory(crash);
    } else if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        tc_fail(crash, TC_INVALID, "crash", "its process ended by signal %d (%s)", number,
                sigdescr_np(number) ? sigdescr_np(number) : "unknown");
    } else if (misread || (code == TC_OK) == result->report.failed) {
        tc_fail(crash, code == TC_IO ? TC_IO : TC_INVALID, "crash",
                "its process ended without a result (status %d)", code);
    }
}

static void end(struct running *running, struct process *process, int status) {
    const struct batch_runner *runner = running->runner;
    process->result.seconds = report_seconds_since(&process->started);
    if (process->has_token)
        tc_jobserver_give(runner->jobserver);
    describe_crash(process, status);
    if (!runner->ended(runner->context, &process->task, &process->result))
        running->stopped = true;
    batch_report_release(&process->result.report);
    tc_buffer_release(&process->result.messages);
    process->pid = 0;
}

/* False at the end of the pipe. */
static bool receive(struct process *process, bool told) {
    char bytes[16384];
    ssize_t got = read(told ? process->told : process->printed, bytes, sizeof bytes);
    if (got < 0 && errno != EINTR)
        process->unread = errno;
    if (got < 0)
        return errno == EINTR;
    struct tc_buffer *messages = &process->result.messages;
    if (told) {
        batch_report_take(&process->result.report, bytes, (size_t)got);
    } else if (messages->length < BATCH_MESSAGES) {
        size_t room = BATCH_MESSAGES - messages->length;
        tc_buffer_add(messages, bytes, (size_t)got < room ? (size_t)got : room);
    }
    return got > 0;
}

/* Reads until both pipes are at their end, and waits for the process. */
static void drain(struct running *running, struct process *process) {
    int status = 0;
    while (receive(process, true))
        ;
    while (receive(process, false))
        ;
    /* Where they could not be read to their end, the process must not wait for a reader. */
    close(process->told);
    close(process->printed);
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
        ;
    end(running, process, status);
}

/* A signal ends the processes first: they remove what they have begun. Then it has its effect on
 * this process. */
static void end_by_signal(struct running *running) {
    struct signalfd_siginfo info;
    struct sigaction action;
    if (read(running->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    /* What the caller ignores (nohup) comes this way too, since it is blocked. */
    if (sigaction((int)info.ssi_signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        return;
    for (size_t i = 0; i < running->count; i++)
        if (running->processes[i].pid)
            kill(running->processes[i].pid, SIGTERM);
    for (size_t i = 0; i < running->count; i++) {
        struct process *process = &running->processes[i];
        while (process->pid && receive(process, true))
            ;
        while (process->pid && waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    while (running->runner->jobserver->count)
        tc_jobserver_give(running->runner->jobserver);
    fflush(NULL);
    raise((int)info.ssi_signo);
    tc_signals_unblock(&running->mask);
    _exit(TC_INTERNAL); /* not reached: the signal was not ignored, or it would not have come */
}

static void wait_for_some(struct running *running) {
    size_t used = 0;
    running->polls[used++] = (struct pollfd){.fd = running->signals, .events = POLLIN};
    /* A token may come free. */
    running->polls[used++] =
        (struct pollfd){.fd = running->stopped || count_running(running) >= running->most
                                  ? -1
                                  : running->runner->jobserver->read_fd,
                        .events = POLLIN};
    for (size_t i = 0; i < running->count; i++) {
        const struct process *process = &running->processes[i];
        running->polls[used++] =
            (struct pollfd){.fd = process->pid ? process->told : -1, .events = POLLIN};
        running->polls[used++] =
            (struct pollfd){.fd = process->pid ? process->printed : -1, .events = POLLIN};
    }
    if (poll(running->polls, used, -1) < 0)
        return;
    if (running->polls[0].revents)
        end_by_signal(running);
    for (size_t i = 0; i < running->count; i++) {
        struct process *process = &running->processes[i];
        const struct pollfd *polls = running->polls + 2 + 2 * i;
        if (process->pid && polls[1].revents && !receive(process, false))
            drain(running, process);
        else if (process->pid && polls[0].revents && !receive(process, true))
            drain(running, process);
        else if (process->pid && polls[0].revents)
            running->runner->moved(running->runner->context, &process->task,
                                   &process->result.report);
    }
}

bool batch_run(const struct batch_runner *runner, struct tc_error *error) {
    struct running running = {.runner = runner, .count = runner->most ? runner->most : 1};
    running.most = running.count;
    sigset_t blocked;
    running.processes = calloc(running.count, sizeof *running.processes);
    running.polls = calloc(2 + 2 * running.count, sizeof *running.polls);
    bool ok = (running.processes && running.polls) || tc_fail_memory(error);
    tc_signals_block(&running.mask);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    running.signals = signalfd(-1, &blocked, SFD_CLOEXEC);
    if (ok && running.signals < 0)
        ok = tc_fail_errno(error, errno, "process", "cannot wait for signals");
    while (ok) {
        start_some(&running);
        if (!count_running(&running))
            break;
        wait_for_some(&running);
    }
    if (running.signals >= 0)
        close(running.signals);
    tc_signals_unblock(&running.mask);
    free(running.polls);
    free(running.processes);
    return ok;
}
