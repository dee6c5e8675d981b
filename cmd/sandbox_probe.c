#include "cmd/sandbox_probe.h"

#ifdef TCONV_TEST_HOOKS

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fsverity.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/io/sanitized.h"

/* Each returns what the system call does: a negative number and errno. */

static long try_read(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC);
}

static long try_list(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static long try_write(const char *path) {
    return open(path, O_WRONLY | O_CLOEXEC);
}

static long try_make(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static long try_remove(const char *path) {
    return unlink(path);
}

/* Empties a file that may only be read. */
static long try_empty(const char *path) {
    return open(path, O_RDONLY | O_TRUNC | O_CLOEXEC);
}

/* The same by a descriptor that can neither read nor write. */
static long try_empty_unread(const char *path) {
    return open(path, O_ACCMODE | O_TRUNC | O_CLOEXEC);
}

/* Opens a file that may not be read, for its file system's own calls. */
static long try_open_unread(const char *path) {
    return open(path, O_ACCMODE | O_CLOEXEC);
}

static long try_attributes(const char *path) {
    char names[256];
    return listxattr(path, names, sizeof names);
}

static long try_seal(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct fsverity_enable_arg how = {.version = 1, .hash_algorithm = 1, .block_size = 4096};
    return fd < 0 ? fd : ioctl(fd, FS_IOC_ENABLE_VERITY, &how);
}

static long try_discipline(const char *unused) {
    int discipline = 2;
    (void)unused;
    return ioctl(STDIN_FILENO, TIOCSETD, &discipline);
}

static long try_make_suid(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 04755);
}

static long try_node(const char *path) {
    return mknod(path, S_IFREG | 0600, 0);
}

/* What can be done to a file that may be read, by its descriptor. */

static long try_fchmod(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : fchmod(fd, 0644);
}

static long try_fchmod_suid(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : fchmod(fd, 04755);
}

static long try_fchown(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : fchown(fd, geteuid(), (gid_t)-1);
}

static long try_futimens(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : futimens(fd, NULL);
}

static long try_fsetxattr(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : fsetxattr(fd, "user.tconv", "x", 1, 0);
}

static long try_flags(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int flags = 0;
    return fd < 0 ? fd : ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static long try_link(const char *path) {
    return symlink("/etc/passwd", path);
}

static long try_truncate(const char *path) {
    return truncate(path, 0);
}

static long try_chmod(const char *path) {
    return chmod(path, 0777);
}

static long try_touch(const char *path) {
    return utimensat(AT_FDCWD, path, NULL, 0);
}

static long try_xattr(const char *path) {
    return setxattr(path, "user.tconv", "x", 1, 0);
}

static long try_socket(const char *family) {
    return socket(strcmp(family, "unix") == 0 ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
}

static long try_socketpair(const char *unused) {
    int pair[2];
    (void)unused;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static long try_execve(const char *path) {
    return execve(path, (char *[]){"true", NULL}, (char *[]){NULL});
}

static long try_execveat(const char *path) {
    return syscall(SYS_execveat, AT_FDCWD, path, (char *[]){"true", NULL}, (char *[]){NULL}, 0);
}

static long try_fork(const char *unused) {
    (void)unused;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child > 0 ? waitpid(child, NULL, 0) : child;
}

static long try_namespace(const char *unused) {
    (void)unused;
    return unshare(CLONE_NEWUSER);
}

static long try_ptrace(const char *unused) {
    (void)unused;
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long try_kill(const char *unused) {
    (void)unused;
    return kill(getppid(), 0);
}

static long try_signal(const char *unused) {
    (void)unused;
    return syscall(SYS_tgkill, getppid(), getppid(), 0);
}

/* A pipe that sends a signal when it can be read: to whom, and which. */

static long try_owner(const char *unused) {
    (void)unused;
    int pair[2];
    return pipe(pair) < 0 ? -1 : fcntl(pair[0], F_SETOWN, getppid());
}

static long try_owner_ex(const char *unused) {
    (void)unused;
    int pair[2];
    struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    return pipe(pair) < 0 ? -1 : fcntl(pair[0], F_SETOWN_EX, &owner);
}

static long try_owner_ioctl(const char *unused) {
    (void)unused;
    int owner = getppid();
    return ioctl(STDIN_FILENO, FIOSETOWN, &owner);
}

static long try_owner_signal(const char *unused) {
    (void)unused;
    int pair[2];
    return pipe(pair) < 0 ? -1 : fcntl(pair[0], F_SETSIG, SIGKILL);
}

static long try_lease(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fd : fcntl(fd, F_SETLEASE, F_RDLCK);
}

static long try_parent(const char *unused) {
    (void)unused;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    return open(path, O_RDWR | O_CLOEXEC);
}

static long try_send(const char *unused) {
    (void)unused;
    return sendto(STDIN_FILENO, "x", 1, 0, NULL, 0);
}

static long try_tkill(const char *unused) {
    (void)unused;
    return syscall(SYS_tkill, getppid(), 0);
}

/* Taking off what was put on. */

static long try_dumpable(const char *unused) {
    (void)unused;
    return prctl(PR_SET_DUMPABLE, 1);
}

static long try_raise(const char *unused) {
    (void)unused;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    errno = EPERM;
    return setrlimit(RLIMIT_DATA, &limit);
}

static long try_raise_own(const char *unused) {
    (void)unused;
    struct rlimit limit = {0, 0};
    return setrlimit(RLIMIT_CORE, &limit);
}

static long try_code(const char *unused) {
    (void)unused;
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? -1 : 0;
}

static long try_type(const char *unused) {
    (void)unused;
    return ioctl(STDIN_FILENO, TIOCSTI, "x");
}

static long try_limit(const char *unused) {
    (void)unused;
    struct rlimit limit;
    return prlimit(getppid(), RLIMIT_CORE, NULL, &limit);
}

/* Kills the process, where the kernel looks at what architecture a call is of. */
static long try_foreign(const char *unused) {
    (void)unused;
#ifdef __x86_64__
    return syscall(0x40000000 | SYS_getpid);
#else
    return raise(SIGSYS);
#endif
}

/* Not refused, but a figure: 1 where the process may be dumped. */
static long try_dump(const char *unused) {
    (void)unused;
    struct rlimit limit;
    errno = EPERM;
    bool none =
        getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == 0 && prctl(PR_GET_DUMPABLE) == 0;
    return none ? -1 : 0;
}

static long try_privileges(const char *unused) {
    (void)unused;
    errno = EPERM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? -1 : 0;
}

static long try_memory(const char *unused) {
    (void)unused;
    void *much = mmap(NULL, (size_t)1 << 40, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return much == MAP_FAILED ? -1 : munmap(much, (size_t)1 << 40);
}

static const struct attempt {
    const char *what;
    long (*try)(const char *argument);
    bool sanitizer; /* a build with one needs it */
} attempts[] = {
    {"read", try_read, false},
    {"list", try_list, false},
    {"write", try_write, false},
    {"make", try_make, false},
    {"remove", try_remove, false},
    {"empty", try_empty, false},
    {"empty-unread", try_empty_unread, false},
    {"open-unread", try_open_unread, false},
    {"attributes", try_attributes, false},
    {"seal", try_seal, false},
    {"discipline", try_discipline, false},
    {"make-suid", try_make_suid, true},
    {"node", try_node, false},
    {"fchmod", try_fchmod, false},
    {"fchmod-suid", try_fchmod_suid, false},
    {"fchown", try_fchown, false},
    {"futimens", try_futimens, false},
    {"fsetxattr", try_fsetxattr, false},
    {"flags", try_flags, false},
    {"lease", try_lease, false},
    {"link", try_link, false},
    {"truncate", try_truncate, false},
    {"chmod", try_chmod, false},
    {"touch", try_touch, false},
    {"xattr", try_xattr, false},
    {"socket", try_socket, false},
    {"socketpair", try_socketpair, true},
    {"execve", try_execve, false},
    {"execveat", try_execveat, false},
    {"fork", try_fork, true},
    {"namespace", try_namespace, false},
    {"ptrace", try_ptrace, true},
    {"kill", try_kill, true},
    {"signal", try_signal, true},
    {"owner", try_owner, false},
    {"owner-ex", try_owner_ex, false},
    {"owner-ioctl", try_owner_ioctl, false},
    {"owner-signal", try_owner_signal, false},
    {"parent", try_parent, false},
    {"send", try_send, true},
    {"tkill", try_tkill, true},
    {"dumpable", try_dumpable, true},
    {"raise", try_raise, true},
    {"raise-own", try_raise_own, true},
    {"code", try_code, false},
    {"type", try_type, false},
    {"limit", try_limit, false},
    {"foreign", try_foreign, false},
    {"dump", try_dump, true},
    {"privileges", try_privileges, false},
    {"memory", try_memory, true},
};

/* By their numbers, with arguments that would be wrong if they were looked at. */
static const struct {
    const char *what;
    long number;
} calls[] = {
    {"bpf", SYS_bpf},
    {"io_uring_setup", 425},
    {"perf_event_open", SYS_perf_event_open},
    {"userfaultfd", SYS_userfaultfd},
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"keyctl", SYS_keyctl},
    {"add_key", SYS_add_key},
    {"mount", SYS_mount},
    {"umount2", SYS_umount2},
    {"pivot_root", SYS_pivot_root},
    {"chroot", SYS_chroot},
    {"open_tree", 428},
    {"fsopen", 430},
    {"setns", SYS_setns},
    {"kexec_load", SYS_kexec_load},
    {"init_module", SYS_init_module},
    {"finit_module", SYS_finit_module},
    {"reboot", SYS_reboot},
    {"pidfd_open", 434},
    {"memfd_create", SYS_memfd_create},
    {"setuid", SYS_setuid},
    {"shmget", SYS_shmget},
    {"connect", SYS_connect},
    {"bind", SYS_bind},
    {"inotify_add_watch", SYS_inotify_add_watch},
    {"sendmsg", SYS_sendmsg},
    {"sendmmsg", SYS_sendmmsg},
    {"rt_sigqueueinfo", SYS_rt_sigqueueinfo},
    {"pidfd_send_signal", 424},
    {"pidfd_getfd", 438},
    {"process_madvise", 440},
    {"shmat", SYS_shmat},
    {"mq_open", SYS_mq_open},
    {"io_submit", SYS_io_submit},
    {"pkey_mprotect", SYS_pkey_mprotect},
    {"personality", SYS_personality},
    {"name_to_handle_at", SYS_name_to_handle_at},
    {"openat2", 437},
    {"clone3", 435},
    {"newer", 463},
};

static void tell(const char *where, const char *what, long result) {
    int errnum = errno;
    const char *name = result < 0 ? strerrorname_np(errnum) : "allowed";
    dprintf(STDERR_FILENO, "%s: %s: %s\n", where, what, name ? name : "unknown");
}

static void attempt(const char *where, const char *what, const char *argument) {
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        if (strcmp(attempts[i].what, what) == 0) {
            if (TC_SANITIZED && attempts[i].sanitizer)
                dprintf(STDERR_FILENO, "%s: %s: sanitizer\n", where, what);
            else
                tell(where, what, attempts[i].try(argument));
            return;
        }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].what, what) == 0) {
            tell(where, what, syscall(calls[i].number, -1, -1, -1, -1, -1, -1));
            return;
        }
    dprintf(STDERR_FILENO, "%s: %s: no such attempt\n", where, what);
}

static void probe(const char *where, const char *variable) {
    const char *wanted = getenv(variable);
    char *list = wanted ? strdup(wanted) : NULL;
    char *rest = NULL;
    for (char *word = list ? strtok_r(list, "\n", &rest) : NULL; word;
         word = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(word, '=');
        if (equals)
            *equals++ = '\0';
        attempt(where, word, equals ? equals : "");
    }
    free(list);
}

void sandbox_probe(void) {
    probe("sandbox", "TCONV_TEST_SANDBOX");
}

void sandbox_probe_fetcher(void) {
    probe("fetcher", "TCONV_TEST_FETCHER");
}

const char *sandbox_probe_output(size_t number) {
    static const char *const variables[] = {"TCONV_TEST_ALLOW", "TCONV_TEST_CODES"};
    if (number >= sizeof variables / sizeof *variables)
        return NULL;
    const char *path = getenv(variables[number]);
    return path ? path : "";
}

int sandbox_probe_abi(int abi) {
    const char *wanted = getenv("TCONV_TEST_LANDLOCK");
    int most = wanted ? atoi(wanted) : abi;
    return most < abi ? most : abi;
}

bool sandbox_probe_seccomp(void) {
    const char *wanted = getenv("TCONV_TEST_SECCOMP");
    return !wanted || strcmp(wanted, "0") != 0;
}

#else

void sandbox_probe(void) {
}

void sandbox_probe_fetcher(void) {
}

const char *sandbox_probe_output(size_t number) {
    (void)number;
    return NULL;
}

int sandbox_probe_abi(int abi) {
    return abi;
}

bool sandbox_probe_seccomp(void) {
    return true;
}

#endif
