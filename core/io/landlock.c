#include "core/io/landlock.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* These numbers are the same on every architecture. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH 1

#define NET_BIND_TCP (UINT64_C(1) << 0)
#define NET_CONNECT_TCP (UINT64_C(1) << 1)
#define SCOPE_ABSTRACT_UNIX_SOCKET (UINT64_C(1) << 0)
#define SCOPE_SIGNAL (UINT64_C(1) << 1)

/* As the kernel defines them; an older one accepts the longer structure where
 * what it does not know is zero. */
struct ruleset_attributes {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};

struct path_beneath_attributes {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

#define OF_FILES                                                                                   \
    (TC_LANDLOCK_EXECUTE | TC_LANDLOCK_WRITE_FILE | TC_LANDLOCK_READ_FILE | TC_LANDLOCK_TRUNCATE | \
     TC_LANDLOCK_IOCTL_DEV)

int tc_landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    return abi < 0 ? TC_LANDLOCK_NONE : (int)abi;
}

static uint64_t known_rights(int abi) {
    uint64_t newest = abi >= TC_LANDLOCK_HAS_IOCTL      ? TC_LANDLOCK_IOCTL_DEV
                      : abi >= TC_LANDLOCK_HAS_TRUNCATE ? TC_LANDLOCK_TRUNCATE
                      : abi >= TC_LANDLOCK_HAS_REFER    ? TC_LANDLOCK_REFER
                                                        : TC_LANDLOCK_MAKE_SYM;
    return (newest << 1) - 1;
}

int tc_landlock_begin(struct tc_landlock *layer, uint64_t rights, bool isolate, int abi) {
    struct ruleset_attributes attributes = {.handled_access_fs = rights & known_rights(abi)};
    if (isolate && abi >= TC_LANDLOCK_HAS_NETWORK)
        attributes.handled_access_net = NET_BIND_TCP | NET_CONNECT_TCP;
    if (isolate && abi >= TC_LANDLOCK_HAS_SCOPES)
        attributes.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
    long fd = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    *layer = (struct tc_landlock){.fd = (int)fd, .rights = attributes.handled_access_fs};
    return fd < 0 ? errno : 0;
}

int tc_landlock_allow(const struct tc_landlock *layer, int fd, uint64_t rights) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        return errno;
    rights &= layer->rights & (S_ISDIR(status.st_mode) ? UINT64_MAX : OF_FILES);
    struct path_beneath_attributes rule = {.allowed_access = rights, .parent_fd = fd};
    if (rights == 0 || syscall(SYS_landlock_add_rule, layer->fd, RULE_PATH_BENEATH, &rule, 0) == 0)
        return 0;
    return errno == EBADFD ? 0 : errno;
}

int tc_landlock_enforce(struct tc_landlock *layer) {
    int failed = syscall(SYS_landlock_restrict_self, layer->fd, 0) == 0 ? 0 : errno;
    close(layer->fd);
    layer->fd = -1;
    return failed;
}
