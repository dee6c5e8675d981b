#include "core/io/seccomp.h"

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/io/sanitized.h"

#if defined __x86_64__ && defined __LP64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
/* Calls of the x32 ABI have this bit in a number of the same architecture. */
#define FOREIGN_CALLS 0x40000000u
#elif defined __aarch64__ && defined __LP64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE

/* mseal: the last that was looked at for what it could do. */
#define NEWEST_CALL 462u
/* From this number on calls are called the same on every architecture, and the
 * system's header may be older than the kernel. */
#define CALL_PIDFD_SEND_SIGNAL 424
#define CALL_IO_URING_SETUP 425
#define CALL_IO_URING_ENTER 426
#define CALL_IO_URING_REGISTER 427
#define CALL_OPEN_TREE 428
#define CALL_MOVE_MOUNT 429
#define CALL_FSOPEN 430
#define CALL_FSCONFIG 431
#define CALL_FSMOUNT 432
#define CALL_FSPICK 433
#define CALL_PIDFD_OPEN 434
#define CALL_CLONE3 435
#define CALL_OPENAT2 437
#define CALL_PIDFD_GETFD 438
#define CALL_PROCESS_MADVISE 440
#define CALL_MOUNT_SETATTR 442
#define CALL_QUOTACTL_FD 443
#define CALL_MEMFD_SECRET 447
#define CALL_PROCESS_MRELEASE 448
#define CALL_FCHMODAT2 452

#define CAPACITY 512u
#define GROUP ((size_t)12)
#define COUNT(list) (sizeof(list) / sizeof *(list))

struct program {
    struct sock_filter code[CAPACITY];
    unsigned short length;
};

static void add(struct program *program, struct sock_filter instruction) {
    if (program->length < CAPACITY)
        program->code[program->length++] = instruction;
}

static void add_return(struct program *program, uint32_t action) {
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Loads the number of the call, or half of an argument, to be compared. */
static void add_load(struct program *program, size_t offset) {
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

#define NUMBER offsetof(struct seccomp_data, nr)
/* Both architectures are little-endian. */
#define ARGUMENT(n) (offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (n))
#define ARGUMENT_TOP(n) (ARGUMENT(n) + sizeof(uint32_t))

/* Skips `skip` instructions unless what was loaded compares so with the value. */
static void add_unless(struct program *program, uint16_t comparison, uint32_t value, uint8_t skip) {
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | comparison | BPF_K, value, 0, skip));
}

#define ALLOW SECCOMP_RET_ALLOW
#define DENY (SECCOMP_RET_ERRNO | EPERM)
#define MISSING (SECCOMP_RET_ERRNO | ENOSYS)

static void add_calls(struct program *program, const int *numbers, size_t count, uint32_t action) {
    for (size_t i = 0; i < count; i++) {
        add_unless(program, BPF_JEQ, (uint32_t)numbers[i], 1);
        add_return(program, action);
    }
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Many of them: sorted, in groups that a call passes in one step. The kernel runs
 * the filter once for every call there is when it is installed, to know those that
 * are always allowed: with one comparison a number that takes half a millisecond. */
static void add_sorted(struct program *program, int *numbers, size_t count, uint32_t action) {
    qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t first = 0; first < count; first += GROUP) {
        size_t size = count - first < GROUP ? count - first : GROUP;
        uint32_t last = (uint32_t)numbers[first + size - 1];
        add(program,
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, (uint8_t)(size + 2), 0));
        for (size_t i = 0; i < size; i++)
            add(program,
                (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                             (uint32_t)numbers[first + i], (uint8_t)(size - i), 0));
        add(program, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 1));
        add_return(program, action);
    }
}

/* The call is decided by one argument: `action` where it compares so with the
 * value, else the opposite. */
static void add_by_argument(struct program *program, int number, size_t offset, uint16_t comparison,
                            uint32_t value, uint32_t action) {
    add_unless(program, BPF_JEQ, (uint32_t)number, 4);
    add_load(program, offset);
    add_unless(program, comparison, value, 1);
    add_return(program, action);
    add_return(program, action == ALLOW ? DENY : ALLOW);
}

static void begin(struct program *program) {
    program->length = 0;
    add_load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    add_return(program, SECCOMP_RET_KILL_PROCESS);
    add_load(program, NUMBER);
#ifdef FOREIGN_CALLS
    add_unless(program, BPF_JGE, FOREIGN_CALLS, 1);
    add_return(program, SECCOMP_RET_KILL_PROCESS);
#endif
}

static int install(struct program *program) {
    if (program->length == CAPACITY)
        return E2BIG;
    struct sock_fprog filter = {.len = program->length, .filter = program->code};
    /* SPEC_ALLOW: kernels before 5.16 would else slow the whole process down,
     * against attacks by code that is compiled at run time; we run none. */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) ==
                   0
               ? 0
               : errno;
}

/* The calls of streams, first: they need not pass the whole list. */
static const int frequent[] = {SYS_read,  SYS_write,  SYS_pread64,         SYS_pwrite64,
                               SYS_futex, SYS_munmap, SYS_copy_file_range, SYS_madvise,
                               SYS_lseek};

static const int denied[] = {
    /* Other programs, and other processes. */
    SYS_execve,
    SYS_execveat,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    CALL_PIDFD_SEND_SIGNAL,
    CALL_PIDFD_OPEN,
    CALL_PIDFD_GETFD,
    CALL_PROCESS_MADVISE,
    CALL_PROCESS_MRELEASE,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
    SYS_sched_setaffinity,
    SYS_migrate_pages,
    SYS_move_pages,
    /* The network, and other ways between processes. */
    SYS_socket,
    SYS_bind,
    SYS_connect,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_recvmmsg,
    SYS_setsockopt,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_msgget,
    SYS_msgctl,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_semget,
    SYS_semctl,
    SYS_semop,
    SYS_semtimedop,
    /* Interfaces of the kernel in which most of its holes were found. */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    CALL_IO_URING_SETUP,
    CALL_IO_URING_ENTER,
    CALL_IO_URING_REGISTER,
    SYS_io_setup,
    SYS_io_submit,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_memfd_create,
    CALL_MEMFD_SECRET,
    SYS_personality,
    SYS_remap_file_pages,
    SYS_pkey_mprotect,
    SYS_vmsplice,
    /* The system. */
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    CALL_OPEN_TREE,
    CALL_MOVE_MOUNT,
    CALL_FSOPEN,
    CALL_FSCONFIG,
    CALL_FSMOUNT,
    CALL_FSPICK,
    CALL_MOUNT_SETATTR,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    CALL_QUOTACTL_FD,
    SYS_syslog,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_vhangup,
    SYS_lookup_dcookie,
    SYS_nfsservctl,
    /* The owner. */
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capset,
    /* Changes to files by their path that Landlock does not see. */
    SYS_truncate,
    SYS_fchmodat,
    CALL_FCHMODAT2,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    /* Changes by a descriptor, for which it is enough that the file may be read. */
    SYS_fchown,
    SYS_fsetxattr,
    SYS_fremovexattr,
    SYS_utimensat,
    /* What is known of files elsewhere, and files made past openat. */
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_inotify_add_watch,
    SYS_mknodat,
#ifdef __x86_64__
    SYS_fork,
    SYS_vfork,
    SYS_chmod,
    SYS_chown,
    SYS_creat,
    SYS_lchown,
    SYS_mknod,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_modify_ldt,
    SYS_iopl,
    SYS_ioperm,
    SYS_uselib,
    SYS_ustat,
    SYS_sysfs,
    SYS__sysctl,
    SYS_create_module,
    SYS_get_kernel_syms,
    SYS_query_module,
#endif
};

/* What a process needs that makes others. A sanitizer looks for leaks from one,
 * which also traces this one. */
static const int for_children[] = {SYS_kill, SYS_tkill, SYS_socketpair, SYS_sendto};

#define NAMESPACES                                                                                 \
    ((uint32_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |      \
                CLONE_NEWPID | CLONE_NEWNET))

/* What a process needs that connects to others. */
static const int for_network[] = {SYS_socket,   SYS_bind,     SYS_connect,
                                  SYS_sendmsg,  SYS_sendmmsg, SYS_recvmsg,
                                  SYS_recvmmsg, SYS_recvfrom, SYS_setsockopt};

static bool is_for_network(int number) {
    for (size_t i = 0; i < COUNT(for_network); i++)
        if (for_network[i] == number)
            return true;
    return false;
}

enum needs { NEEDS_CHILDREN = 1, NEEDS_NETWORK = 2, NEEDS_OUTPUTS = 4 };

static void add_denied(struct program *program, unsigned needs) {
    int numbers[COUNT(denied) + COUNT(for_children) + 4];
    size_t count = 0;
    for (size_t i = 0; i < COUNT(denied); i++)
        if (!(needs & NEEDS_NETWORK) || !is_for_network(denied[i]))
            numbers[count++] = denied[i];
    if (!(needs & (NEEDS_CHILDREN | NEEDS_NETWORK))) {
        memcpy(numbers + count, for_children, sizeof for_children);
        count += COUNT(for_children);
    } else if (!(needs & NEEDS_CHILDREN)) {
        numbers[count++] = SYS_kill;
        numbers[count++] = SYS_tkill;
    }
    if (!(needs & NEEDS_CHILDREN))
        numbers[count++] = SYS_setrlimit;
    if (!(needs & NEEDS_OUTPUTS))
        numbers[count++] = SYS_fchmod;
    if (!TC_SANITIZED)
        numbers[count++] = SYS_ptrace;
    add_sorted(program, numbers, count, DENY);
}

/* Threads; other processes where that is wanted; namespaces never. */
static void add_clone(struct program *program, bool processes) {
    add_unless(program, BPF_JEQ, SYS_clone, 6);
    add_load(program, ARGUMENT(0));
    add_unless(program, BPF_JSET, NAMESPACES, 1);
    add_return(program, DENY);
    add_unless(program, BPF_JSET, CLONE_THREAD, 1);
    add_return(program, ALLOW);
    add_return(program, processes ? ALLOW : DENY);
}

/* Signals are for itself: abort and raise come this way. */
static void add_own_signals(struct program *program) {
    add_by_argument(program, SYS_tgkill, ARGUMENT(0), BPF_JEQ, (uint32_t)getpid(), ALLOW);
}

/* Of a call whose argument says what it does, those that are denied or, with ALLOW, the only ones
 * that are not. */
static void add_values(struct program *program, int number, unsigned argument,
                       const uint32_t *values, size_t count, uint32_t action) {
    add_unless(program, BPF_JEQ, (uint32_t)number, (uint8_t)(2 + 2 * count));
    add_load(program, ARGUMENT(argument));
    for (size_t i = 0; i < count; i++) {
        add_unless(program, BPF_JEQ, values[i], 1);
        add_return(program, action);
    }
    add_return(program, action == ALLOW ? DENY : ALLOW);
}

/* A descriptor that is open, the terminal's among them, can be asked for much by ioctl: words typed
 * that the shell would take, another line discipline, file systems' own calls that make or change
 * files which may only be read. So it may ask what a terminal is, and for the network what its
 * sockets hold. fcntl can have the kernel send signals in our name, when a pipe can be read or a
 * file is opened: they reach every process of the user. */
static void add_descriptors(struct program *program, bool network) {
    static const uint32_t requests[] = {TCGETS,       TIOCGWINSZ,    FIONREAD,    FIONBIO,
                                        SIOCGIFINDEX, SIOCGIFNAME,   SIOCGIFCONF, SIOCGIFFLAGS,
                                        SIOCGIFADDR,  SIOCGIFNETMASK};
    static const uint32_t commands[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY};
    add_values(program, SYS_ioctl, 1, requests, network ? COUNT(requests) : 2, ALLOW);
    add_values(program, SYS_fcntl, 1, commands, COUNT(commands), DENY);
}

#define SPECIAL_MODES ((uint32_t)(S_ISUID | S_ISGID | S_ISVTX))

/* A file that is opened to be read may not be emptied by that, which early versions of Landlock
 * take for reading; nor be opened for neither reading nor writing, which Landlock takes for no
 * access at all; and none is made that runs with its owner's rights. Sanitizers call the
 * system themselves, and leave in the mode's place what happens to be there. */
static void add_open(struct program *program, int number, unsigned flags) {
    add_unless(program, BPF_JEQ, (uint32_t)number, TC_SANITIZED ? 10 : 13);
    add_load(program, ARGUMENT(flags));
    add(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE));
    add_unless(program, BPF_JEQ, O_ACCMODE, 1);
    add_return(program, DENY);
    add_load(program, ARGUMENT(flags));
    add_unless(program, BPF_JSET, O_TRUNC, 3);
    add(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE));
    add_unless(program, BPF_JEQ, O_RDONLY, 1);
    add_return(program, DENY);
    if (!TC_SANITIZED) {
        add_load(program, ARGUMENT(flags + 1));
        add_unless(program, BPF_JSET, SPECIAL_MODES, 1);
        add_return(program, DENY);
    }
    add_return(program, ALLOW);
}

static void add_files(struct program *program) {
#ifdef SYS_open
    add_open(program, SYS_open, 1);
#endif
    add_open(program, SYS_openat, 2);
    add_by_argument(program, SYS_fchmod, ARGUMENT(1), BPF_JSET, SPECIAL_MODES, DENY);
}

/* Limits are looked at; set only by who makes processes, before those narrow themselves. So are
 * dumps, and the signal at the parent's end. */
static void add_limits(struct program *program, bool set) {
    static const uint32_t options[] = {PR_SET_DUMPABLE, PR_SET_PDEATHSIG, PR_SET_PTRACER,
                                       PR_SET_MM};
    if (set) {
        add_by_argument(program, SYS_prlimit64, ARGUMENT(0), BPF_JEQ, 0, ALLOW);
        return;
    }
    add_values(program, SYS_prctl, 0, options, COUNT(options), DENY);
    add_unless(program, BPF_JEQ, SYS_prlimit64, 8);
    add_load(program, ARGUMENT(0));
    add_unless(program, BPF_JEQ, 0, 5);
    add_load(program, ARGUMENT(2));
    add_unless(program, BPF_JEQ, 0, 3);
    add_load(program, ARGUMENT_TOP(2));
    add_unless(program, BPF_JEQ, 0, 1);
    add_return(program, ALLOW);
    add_return(program, DENY);
}

/* What every filter of ours begins with, but for the parser's. */
static void begin_denying(struct program *program, unsigned needs) {
    static const int missing[] = {CALL_CLONE3, CALL_OPENAT2};
    begin(program);
    add_calls(program, frequent, COUNT(frequent), ALLOW);
    add_unless(program, BPF_JGT, NEWEST_CALL, 1);
    add_return(program, MISSING);
    /* Their flags can't be seen; the C library then takes the older ones. */
    add_calls(program, missing, COUNT(missing), MISSING);
    add_denied(program, needs);
    if (!(needs & NEEDS_CHILDREN))
        add_own_signals(program);
    add_descriptors(program, needs & NEEDS_NETWORK);
    add_files(program);
}

int tc_seccomp_command(bool children, bool outputs) {
    struct program program;
    bool makes_processes = children || TC_SANITIZED;
    begin_denying(&program,
                  (makes_processes ? NEEDS_CHILDREN : 0u) | (outputs ? NEEDS_OUTPUTS : 0u));
    add_clone(&program, makes_processes);
    add_limits(&program, makes_processes);
    /* No new code. */
    add_by_argument(&program, SYS_mmap, ARGUMENT(2), BPF_JSET, PROT_EXEC, DENY);
    add_by_argument(&program, SYS_mprotect, ARGUMENT(2), BPF_JSET, PROT_EXEC, DENY);
    add_return(&program, ALLOW);
    return install(&program);
}

int tc_seccomp_fetcher(void) {
    struct program program;
    begin_denying(&program, NEEDS_NETWORK | (TC_SANITIZED ? NEEDS_CHILDREN : 0u));
    add_clone(&program, TC_SANITIZED);
    add_limits(&program, TC_SANITIZED);
    add_return(&program, ALLOW);
    return install(&program);
}

int tc_seccomp_parser(void) {
    static const int allowed[] = {
        SYS_read,          SYS_write,        SYS_readv,           SYS_writev,
        SYS_close,         SYS_fstat,        SYS_lseek,           SYS_ppoll,
        SYS_brk,           SYS_munmap,       SYS_mremap,          SYS_madvise,
        SYS_futex,         SYS_sched_yield,  SYS_getpid,          SYS_gettid,
        SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday,    SYS_clock_nanosleep,
        SYS_nanosleep,     SYS_getrandom,    SYS_rt_sigaction,    SYS_rt_sigprocmask,
        SYS_rt_sigreturn,  SYS_sigaltstack,  SYS_restart_syscall, SYS_exit,
        SYS_exit_group,
#ifdef SYS_newfstatat
        SYS_newfstatat, /* fstat of the C library */
#endif
#ifdef __x86_64__
        SYS_poll,          SYS_time,
#endif
    };
    struct program program;
    begin(&program);
    add_calls(&program, allowed, COUNT(allowed), ALLOW);
    add_by_argument(&program, SYS_mmap, ARGUMENT(2), BPF_JSET, PROT_EXEC, DENY);
    add_by_argument(&program, SYS_mprotect, ARGUMENT(2), BPF_JSET, PROT_EXEC, DENY);
    add_own_signals(&program);
    add_return(&program, DENY);
    return install(&program);
}

#else

int tc_seccomp_command(bool children, bool outputs) {
    (void)children;
    (void)outputs;
    return ENOSYS;
}

int tc_seccomp_fetcher(void) {
    return ENOSYS;
}

int tc_seccomp_parser(void) {
    return ENOSYS;
}

#endif
