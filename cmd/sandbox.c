#include "cmd/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/report.h"
#include "cmd/sandbox_probe.h"
#include "core/base/memory.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/landlock.h"
#include "core/io/listing.h"
#include "core/io/sanitized.h"
#include "core/io/seccomp.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "formats/cache_blobs.h"

const char *const sandbox_modes[] = {"auto", "require", "off", NULL};

/* What an output's folder needs: files wait there without a name or in a folder
 * beside it, and get their names by links and renames. */
#define PUBLISH                                                                                    \
    (TC_LANDLOCK_WRITE_FILE | TC_LANDLOCK_TRUNCATE | TC_LANDLOCK_MAKE_REG | TC_LANDLOCK_MAKE_DIR | \
     TC_LANDLOCK_REMOVE_FILE | TC_LANDLOCK_REMOVE_DIR | TC_LANDLOCK_REFER)

/* What a folder needs from which inputs are removed: those below it, too. */
#define REMOVE (TC_LANDLOCK_REMOVE_FILE | TC_LANDLOCK_READ)

/* A folder of links has some hundreds; who has more puts the files elsewhere. */
#define MOST_LINKS 4096
#define MOST_ENTRIES 65536

/* Beside --max-memory: buffers of streams, what libraries take to unpack, what
 * the heap wastes; and stacks, which count whole, of more threads than we start. */
#define BESIDE_MEMORY (UINT64_C(512) << 20)
#define MOST_THREADS 24
#define USUAL_STACK (UINT64_C(8) << 20)

void sandbox_add_output(struct sandbox *sandbox, const char *path) {
    if (path && path[0] && strcmp(path, "-") != 0 && sandbox->output_count < SANDBOX_OUTPUTS)
        sandbox->outputs[sandbox->output_count++] = path;
}

void sandbox_add_file(struct sandbox *sandbox, const char *path) {
    if (path && path[0] && strcmp(path, "-") != 0 && sandbox->file_count < SANDBOX_OUTPUTS)
        sandbox->files[sandbox->file_count++] = path;
}

/* The system does not have something: told, or an error. */
static bool lacks(const struct sandbox *sandbox, const char *what, int errnum,
                  struct tc_error *error) {
    char reason[128];
    const char *why = strerror_r(errnum, reason, sizeof reason);
    if (sandbox->mode == SANDBOX_REQUIRE) {
        tc_fail(error, TC_IO, "sandbox", "the sandbox is not complete: %s: %s", what, why);
        return tc_error_hint(error, "--sandbox=auto goes without what the system does not have");
    }
    if (sandbox->verbose) {
        struct tc_buffer line = {0};
        tc_buffer_addf(&line, "tconv: note: the sandbox is not complete: %s: %s\n", what, why);
        report_err(&line);
    }
    return true;
}

/* The process */

static bool set_limit(__rlimit_resource_t what, uint64_t most) {
    struct rlimit limit;
    if (getrlimit(what, &limit) != 0)
        return false;
    limit.rlim_max = most < limit.rlim_max ? most : limit.rlim_max;
    limit.rlim_cur = most < limit.rlim_cur ? most : limit.rlim_cur;
    return setrlimit(what, &limit) == 0;
}

/* zstd's windows, jobs and tables, by the level; they are taken whole. */
static uint64_t packing_memory(int level) {
    unsigned shift = level > 19 ? 34 : level > 9 ? 32 : 30;
    return level ? UINT64_C(1) << shift : 0;
}

static uint64_t most_memory(const struct sandbox *sandbox) {
    struct rlimit stack;
    uint64_t tables = sandbox->memory == UINT64_MAX ? TC_MEMORY_MOST : sandbox->memory;
    uint64_t sum = BESIDE_MEMORY + packing_memory(sandbox->packing);
    uint64_t size = USUAL_STACK;
    uint64_t stacks;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY)
        size = stack.rlim_cur > USUAL_STACK ? stack.rlim_cur : USUAL_STACK;
    return __builtin_mul_overflow(size, (uint64_t)MOST_THREADS, &stacks) ||
                   __builtin_add_overflow(sum, stacks, &sum) ||
                   __builtin_add_overflow(sum, tables, &sum) ||
                   __builtin_add_overflow(sum, tables / 4, &sum)
               ? UINT64_MAX
               : sum;
}

static bool limit_process(const struct sandbox *sandbox, struct tc_error *error) {
    /* A dump that goes to a program does not ask for its limit. */
    bool dumps = set_limit(RLIMIT_CORE, 0) && (TC_SANITIZED || prctl(PR_SET_DUMPABLE, 0) == 0);
    if (!dumps && !lacks(sandbox, "core dumps", errno, error))
        return false;
    if (sandbox->memory && !TC_SANITIZED && !set_limit(RLIMIT_DATA, most_memory(sandbox)) &&
        !lacks(sandbox, "a limit of memory", errno, error))
        return false;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ||
           lacks(sandbox, "no new privileges", errno, error);
}

/* Files. Paths that are not there get no rule: whoever opens them will say so. */

static int allow(const struct tc_landlock *layer, const char *path, uint64_t rights) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return tc_path_missing(errno) ? 0 : errno;
    int failed = tc_landlock_allow(layer, fd, rights);
    close(fd);
    return failed;
}

/* The folder that something lies in, be it a file or a folder with a slash at its end. */
static char *folder_of(const char *path) {
    char *trimmed = tc_path_trim(path);
    char *folder = trimmed ? tc_path_folder(trimmed) : NULL;
    free(trimmed);
    return folder;
}

static int allow_folder_of(const struct tc_landlock *layer, const char *path, uint64_t rights) {
    char *folder = folder_of(path);
    int failed = folder ? allow(layer, folder, rights) : ENOMEM;
    free(folder);
    return failed;
}

/* Names for descriptors, pipes and devices: what lies beside them is none of the input. */
static bool stands_alone(const char *path) {
    struct stat status;
    return strncmp(path, "/dev/std", 8) == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/", 6) == 0 ||
           (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
}

/* A pipe or a device is written itself; else files are made beside it. A folder
 * that is there may lie elsewhere, by a link. */
static int allow_output(const struct tc_landlock *layer, const char *path, uint64_t rights) {
    struct stat status;
    bool there = stat(path, &status) == 0;
    if (there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        int device = allow(layer, path, rights | TC_LANDLOCK_IOCTL_DEV);
        return device ? device : allow_folder_of(layer, path, rights & TC_LANDLOCK_READ_DIR);
    }
    int folder = there && S_ISDIR(status.st_mode) ? allow(layer, path, rights) : 0;
    return folder ? folder : allow_folder_of(layer, path, rights);
}

static int allow_outputs(const struct sandbox *sandbox, const struct tc_landlock *layer,
                         uint64_t rights) {
    int failed = 0;
    for (size_t i = 0; i < sandbox->output_count && !failed; i++)
        failed = allow_output(layer, sandbox->outputs[i], rights);
    for (size_t i = 0; i < sandbox->removed_count && !failed; i++)
        failed = allow_folder_of(layer, sandbox->removed[i], rights & REMOVE);
    uint64_t links = rights & TC_LANDLOCK_MAKE_REG ? TC_LANDLOCK_MAKE_SYM : 0;
    if (sandbox->folder && !failed)
        failed = allow(layer, sandbox->folder, rights | links);
    const char *path;
    for (size_t i = 0; !failed && (path = sandbox_probe_output(i)) != NULL; i++)
        failed = path[0] ? allow_output(layer, path, rights) : 0;
    return failed;
}

/* The folder that tc_tempfile takes; NULL: there is none. */
static const char *temporary_folder(void) {
    for (size_t i = 0; i < TC_TEMPFILE_FOLDERS; i++) {
        const char *folder = tc_tempfile_folder(i);
        if (folder && access(folder, W_OK) == 0)
            return folder;
    }
    return NULL;
}

/* Temporary files have no name where the file system can do that, and then need
 * no right to make or remove one. */
static int allow_temporary_files(const struct tc_landlock *layer, const char *folder) {
    uint64_t rights = TC_LANDLOCK_WRITE_FILE;
    int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        rights |= TC_LANDLOCK_MAKE_REG | TC_LANDLOCK_REMOVE_FILE;
    else
        close(fd);
    return folder ? allow(layer, folder, rights) : 0;
}

static bool writes_files(const struct sandbox *sandbox) {
    return sandbox->output_count > 0 || sandbox->folder;
}

bool sandbox_begin(struct sandbox *sandbox, struct tc_error *error) {
    /* Who parses has no use for the token; the process that fetches has taken it. */
    tc_hub_forget_token();
    if (sandbox->mode == SANDBOX_OFF)
        return true;
    if (!limit_process(sandbox, error))
        return false;
    sandbox->abi = sandbox_probe_abi(tc_landlock_abi());
    if (sandbox->abi == TC_LANDLOCK_NONE)
        return lacks(sandbox, "files (Landlock)", ENOSYS, error);
    /* Without REFER the kernel denies every move between folders, and outputs
     * that wait in a folder of their own could not be put in place. */
    if (sandbox->abi < TC_LANDLOCK_HAS_REFER && writes_files(sandbox)) {
        sandbox->abi = TC_LANDLOCK_NONE;
        return lacks(sandbox, "files (Landlock of a kernel before 5.19)", EOPNOTSUPP, error);
    }
    sandbox->temporary = temporary_folder();
    struct tc_landlock layer;
    int failed =
        tc_landlock_begin(&layer, TC_LANDLOCK_CHANGE | TC_LANDLOCK_REFER, true, sandbox->abi);
    if (!failed) {
        failed = allow_outputs(sandbox, &layer, PUBLISH);
        failed = failed ? failed : allow_temporary_files(&layer, sandbox->temporary);
        int enforced = failed ? close(layer.fd) : tc_landlock_enforce(&layer);
        failed = failed ? failed : enforced;
    }
    return !failed || lacks(sandbox, "changes to files (Landlock)", failed, error);
}

/* Links in a folder of links are the user's word for the files behind them. */
static int allow_link(const struct tc_landlock *layer, int folder, const char *name) {
    int fd = openat(folder, name, O_PATH | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0)
        return tc_path_missing(errno) ? 0 : errno;
    int failed = fstat(fd, &status) == 0 ? 0 : errno;
    if (!failed && S_ISREG(status.st_mode))
        failed = tc_landlock_allow(layer, fd, TC_LANDLOCK_READ_FILE);
    close(fd);
    return failed;
}

static int allow_links(const struct tc_landlock *layer, const char *folder) {
    DIR *stream = opendir(folder);
    int failed = stream || tc_path_missing(errno) ? 0 : errno;
    unsigned links = 0;
    unsigned entries = 0;
    while (stream && !failed && links < MOST_LINKS && entries++ < MOST_ENTRIES) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (!entry) {
            failed = errno;
            break;
        }
        if (entry->d_type == DT_LNK) {
            failed = allow_link(layer, dirfd(stream), entry->d_name);
            links++;
        }
    }
    if (stream)
        closedir(stream);
    return failed;
}

/* Folders that had their turn, so that many files of one are one. */
struct last_folders {
    char *named;
    char *real;
};

static int allow_once(const struct tc_landlock *layer, char *folder, char **last, bool links) {
    int failed = 0;
    if (!folder)
        return ENOMEM;
    if (!*last || strcmp(*last, folder) != 0) {
        failed = allow(layer, folder, TC_LANDLOCK_READ);
        if (!failed && links)
            failed = allow_links(layer, folder);
    }
    free(*last);
    *last = folder;
    return failed;
}

/* A folder with all that is below it, and what its links lead to. A snapshot in a cache
 * of Hugging Face is made of links to the cache's blobs, in folders below it, too. */
static int allow_folder(const struct tc_landlock *layer, const char *path) {
    int failed = allow(layer, path, TC_LANDLOCK_READ);
    if (!failed)
        failed = allow_links(layer, path);
    struct cache_blobs blobs = {0};
    if (!failed)
        failed = cache_blobs_find(&blobs, path);
    if (blobs.own && !failed)
        failed = allow(layer, blobs.own, TC_LANDLOCK_READ_FILE);
    if (blobs.shared && !failed)
        failed = allow(layer, blobs.shared, TC_LANDLOCK_READ_FILE);
    cache_blobs_release(&blobs);
    return failed;
}

static int allow_input(const struct tc_landlock *layer, const char *path,
                       struct last_folders *last) {
    if (strcmp(path, "-") == 0 || path[0] == '\0' || tc_address_is(path))
        return 0;
    if (stands_alone(path))
        return allow(layer, path, TC_LANDLOCK_READ);
    if (tc_is_folder(path))
        return allow_folder(layer, path);
    int failed = allow_once(layer, folder_of(path), &last->named, true);
    char *real = failed ? NULL : realpath(path, NULL);
    if (real)
        failed = allow_once(layer, folder_of(real), &last->real, false);
    free(real);
    return failed;
}

/* What the C library and we ask about the machine, and what a sanitizer does. */
static int allow_system(const struct tc_landlock *layer) {
    static const char *const paths[] = {"/sys/devices/system/cpu", "/sys/fs/cgroup",
                                        "/proc/self/cgroup"};
    int failed = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !failed; i++)
        failed = allow(layer, paths[i], TC_LANDLOCK_READ);
    return failed || !TC_SANITIZED ? failed : allow(layer, "/proc", TC_LANDLOCK_READ);
}

static int allow_reading(const struct sandbox *sandbox, const struct tc_landlock *layer,
                         const char *const *paths, size_t count) {
    struct last_folders last = {NULL, NULL};
    int failed = allow_system(layer);
    for (size_t i = 0; i < count && !failed; i++)
        failed = allow_input(layer, paths[i], &last);
    if (sandbox->beside && !failed)
        failed = allow_input(layer, sandbox->beside, &last);
    free(last.named);
    free(last.real);
    for (size_t i = 0; i < sandbox->file_count && !failed; i++)
        failed = allow(layer, sandbox->files[i], TC_LANDLOCK_READ_FILE);
    for (size_t i = 0; i < sandbox->more_count && !failed; i++)
        failed = allow(layer, sandbox->more_files[i], TC_LANDLOCK_READ_FILE);
    if (!failed)
        failed = allow_outputs(sandbox, layer, TC_LANDLOCK_READ | TC_LANDLOCK_REFER);
    const char *temporary = sandbox->temporary;
    return failed || !temporary ? failed : allow(layer, temporary, TC_LANDLOCK_READ_FILE);
}

bool sandbox_inputs(struct sandbox *sandbox, const char *const *paths, size_t count,
                    struct tc_error *error) {
    struct tc_landlock layer;
    if (sandbox->mode == SANDBOX_OFF || sandbox->abi == TC_LANDLOCK_NONE)
        return true;
    /* Each layer must allow what it does not list of REFER. */
    int failed =
        tc_landlock_begin(&layer, TC_LANDLOCK_READ | TC_LANDLOCK_REFER, false, sandbox->abi);
    if (!failed) {
        failed = allow_reading(sandbox, &layer, paths, count);
        int enforced = failed ? close(layer.fd) : tc_landlock_enforce(&layer);
        failed = failed ? failed : enforced;
    }
    return !failed || lacks(sandbox, "reading of files (Landlock)", failed, error);
}

bool sandbox_complete(struct sandbox *sandbox, struct tc_error *error) {
    if (sandbox->mode != SANDBOX_OFF) {
        int failed = sandbox_probe_seccomp()
                         ? tc_seccomp_command(sandbox->children, writes_files(sandbox))
                         : ENOSYS;
        if (failed && !lacks(sandbox, "system calls (seccomp)", failed, error))
            return false;
    }
    if (!sandbox->children)
        sandbox_probe();
    return true;
}

bool sandbox_enter(struct sandbox *sandbox, const char *const *inputs, size_t count,
                   struct tc_error *error) {
    return sandbox_begin(sandbox, error) && sandbox_inputs(sandbox, inputs, count, error) &&
           sandbox_complete(sandbox, error);
}

void sandbox_hint(struct tc_error *error) {
    if (error->errnum == EACCES && error->file[0] && access(error->file, R_OK) == 0)
        tc_error_hint(error, "only what lies beside the inputs is read; --sandbox=off lifts that");
}
