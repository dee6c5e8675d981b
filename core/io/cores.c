#include "core/io/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "core/io/cgroup.h"
#include "core/io/jobserver.h"

/* More threads seldom help: memory and disks are the limit by then. */
#define USUAL_MOST 8u

/* The process's own: how many threads there may be, and the jobserver whose tokens it holds. */
static atomic_size_t most;    /* 0: not known yet */
static atomic_bool given;     /* the user said how many */
static atomic_size_t sharing; /* processes that share the cores; 0: this one alone */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `server` */
static struct tc_jobserver server = {.read_fd = -1, .write_fd = -1};
static atomic_bool obeyed;    /* there is a jobserver, and it is for us */
static atomic_bool abandoned; /* the process ends: no token may be kept any more */

static size_t usable_cores(void) {
    cpu_set_t usable;
    /* The call fails on machines of more than 1024 cores, for which the set is too small. */
    long cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable)
                                                                   : sysconf(_SC_NPROCESSORS_ONLN);
    size_t quota = tc_cgroup_cores("");
    size_t count = cores < 1 ? 1 : (size_t)cores;
    count = quota && quota < count ? quota : count;
    count = count < USUAL_MOST ? count : USUAL_MOST;
    size_t processes = atomic_load(&sharing);
    return processes < 2 ? count : count > processes ? count / processes : 1;
}

void tc_cores_share(size_t processes) {
    atomic_store(&sharing, processes);
}

void tc_cores_set(size_t threads) {
    atomic_store(&given, threads != 0);
    atomic_store(&most, !threads                  ? usable_cores()
                        : threads < TC_MOST_CORES ? threads
                                                  : TC_MOST_CORES);
}

void tc_cores_obey(const char *makeflags) {
    pthread_mutex_lock(&lock);
    tc_jobserver_close(&server);
    tc_jobserver_open(&server, makeflags);
    atomic_store(&obeyed, server.read_fd >= 0);
    if (server.named && server.read_fd < 0 && !atomic_load(&given))
        atomic_store(&most, 1);
    pthread_mutex_unlock(&lock);
}

size_t tc_cores(void) {
    size_t threads = atomic_load(&most);
    if (!threads) {
        tc_cores_set(0);
        threads = atomic_load(&most);
    }
    return threads;
}

size_t tc_cores_begin(size_t wanted) {
    size_t limit = tc_cores();
    size_t granted = 1;
    wanted = wanted < limit ? wanted : limit;
    if (!atomic_load(&obeyed))
        return wanted ? wanted : 1;
    pthread_mutex_lock(&lock);
    while (granted < wanted && !atomic_load(&abandoned) && tc_jobserver_take(&server))
        granted++;
    /* A signal may have come between. */
    while (atomic_load(&abandoned) && server.count)
        tc_jobserver_give(&server);
    pthread_mutex_unlock(&lock);
    return granted;
}

void tc_cores_end(size_t granted) {
    if (granted < 2 || !atomic_load(&obeyed))
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 1; i < granted; i++)
        tc_jobserver_give(&server);
    pthread_mutex_unlock(&lock);
}

/* The lock is not taken, since the thread that was interrupted may hold it. */
void tc_cores_abandon(void) {
    if (!atomic_load(&obeyed) || atomic_exchange(&abandoned, true))
        return;
    while (server.count)
        tc_jobserver_give(&server);
}
