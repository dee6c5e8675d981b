/* How many threads there may be: the user's number, the control group's quota, make's jobserver. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/cgroup.h"
#include "core/io/cores.h"

/* Writes a file below a folder, with the folders that it lies in. */
static void put(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static char root[256];

static void make_root(void) {
    snprintf(root, sizeof root, "%s/tconv-cores-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_assert_eq(system(command), 0);
}

Test(cgroup, version_2_takes_the_least_of_a_group_and_what_it_is_in, .init = make_root,
     .fini = remove_root) {
    cr_assert_eq(tc_cgroup_cores(root), 0);
    put(root, "/proc/self/cgroup", "0::/a/b\n");
    cr_assert_eq(tc_cgroup_cores(root), 0);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 0);
    put(root, "/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 4);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 2);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 1);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "nonsense");
    cr_assert_eq(tc_cgroup_cores(root), 4);
}

/* In a container the group's path is that outside, and its files lie at the root. */
Test(cgroup, version_2_in_a_container, .init = make_root, .fini = remove_root) {
    put(root, "/proc/self/cgroup", "0::/docker/0123\n");
    put(root, "/sys/fs/cgroup/cpu.max", "150000 100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 2);
}

Test(cgroup, version_1, .init = make_root, .fini = remove_root) {
    put(root, "/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n1:name=systemd:/\n");
    put(root, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    put(root, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 0);
    put(root, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
    cr_assert_eq(tc_cgroup_cores(root), 3);
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(tc_cgroup_cores(root), 1);
}

Test(cores, the_user_says_how_many) {
    tc_cores_set(3);
    cr_assert_eq(tc_cores(), 3);
    cr_assert_eq(tc_cores_begin(8), 3);
    cr_assert_eq(tc_cores_begin(2), 2);
    cr_assert_eq(tc_cores_begin(0), 1);
    tc_cores_set(1000);
    cr_assert_eq(tc_cores(), TC_MOST_CORES);
    tc_cores_set(0);
    cr_assert(tc_cores() >= 1 && tc_cores() <= 8);
    tc_cores_share(100);
    tc_cores_set(0);
    cr_assert_eq(tc_cores(), 1);
    tc_cores_share(0);
}

/* How many tokens lie in a pipe; they stay there. */
static int tokens_in(int fd) {
    char tokens[64];
    ssize_t got = read(fd, tokens, sizeof tokens);
    int count = got < 0 ? 0 : (int)got;
    cr_assert_eq(write(fd, tokens, (size_t)count), count);
    return count;
}

static void obey(const char *form, int *fd) {
    char path[512];
    char flags[600];
    snprintf(path, sizeof path, "%s/fifo", root);
    cr_assert_eq(mkfifo(path, 0600), 0);
    *fd = open(path, O_RDWR | O_NONBLOCK);
    cr_assert(*fd >= 0 && write(*fd, "+++", 3) == 3);
    if (strcmp(form, "fifo") == 0)
        snprintf(flags, sizeof flags, " -j4 --jobserver-auth=fifo:%s", path);
    else
        snprintf(flags, sizeof flags, " -j4 --jobserver-auth=%d,%d -- A=b", *fd, *fd);
    tc_cores_set(0);
    tc_cores_set(8);
    tc_cores_obey(flags);
}

static void check_tokens(const char *form) {
    int fd;
    obey(form, &fd);
    size_t first = tc_cores_begin(3);
    cr_assert_eq(first, 3);
    cr_assert_eq(tokens_in(fd), 1);
    size_t second = tc_cores_begin(8);
    cr_assert_eq(second, 2);
    cr_assert_eq(tokens_in(fd), 0);
    cr_assert_eq(tc_cores_begin(8), 1);
    tc_cores_end(1);
    tc_cores_end(first);
    cr_assert_eq(tokens_in(fd), 2);
    tc_cores_end(second);
    cr_assert_eq(tokens_in(fd), 3);
    cr_assert_eq(tc_cores_begin(2), 2);
    tc_cores_abandon();
    cr_assert_eq(tokens_in(fd), 3);
    cr_assert_eq(tc_cores_begin(8), 1);
    close(fd);
}

Test(cores, a_jobserver_by_name_gets_its_tokens_back, .init = make_root, .fini = remove_root) {
    check_tokens("fifo");
}

Test(cores, a_jobserver_by_descriptors_gets_its_tokens_back, .init = make_root,
     .fini = remove_root) {
    check_tokens("descriptors");
}

Test(cores, a_jobserver_that_was_not_handed_down_allows_one) {
    tc_cores_set(0);
    tc_cores_obey(" -j4 --jobserver-auth=900,901");
    cr_assert_eq(tc_cores(), 1);
    tc_cores_set(3);
    tc_cores_obey(" -j4 --jobserver-auth=900,901");
    cr_assert_eq(tc_cores(), 3);
}
