/*
 * Addresses on the command line. Before anything else sees an argument, what may be
 * secret in an address (its query, a user's name) is cut off, in the arguments
 * themselves; the whole address is kept for the fetcher alone. The fetcher is started
 * where a file to read is named by an address, and else not. With HF_HUB_OFFLINE what the
 * Hub's cache has is read there, by its path.
 */
#ifndef TCONV_CMD_ADDRESSES_H
#define TCONV_CMD_ADDRESSES_H

#include "core/base/error.h"
#include "core/remote/client.h"
#include "core/remote/protocol.h"

struct addresses {
    struct tc_remote_address *list; /* in the order of the arguments */
    const char **arguments;         /* those that they were */
    char **cached; /* where the network is not to be used: files of the Hub's cache; NULL: none */
    size_t count;
    struct tc_fetcher_options options;
    struct tc_remote *remote;
};

/* Hides what may be secret. */
bool addresses_hide(struct addresses *addresses, int argc, char **argv, struct tc_error *error);
/* Starts the fetcher where one of the names is an address. Two that look the same once
 * their secrets are cut off get a number behind them. `requests` 0: the usual number. */
bool addresses_connect(struct addresses *addresses, const char **names, size_t count,
                       uint64_t requests, struct tc_error *error);
/* An argument as it was before; where it is no address, it is returned as it is. */
const char *addresses_whole(const struct addresses *addresses, const char *argument);
void addresses_release(struct addresses *addresses);

/* Refuses an address as the name of an output. */
bool addresses_check_output(const char *output, struct tc_error *error);

#endif
