/*
 * What the variables of the environment say about the network and the Hub, by the
 * names that Python's huggingface_hub has for them.
 */
#ifndef TCONV_CORE_REMOTE_ENVIRONMENT_H
#define TCONV_CORE_REMOTE_ENVIRONMENT_H

#include "core/base/error.h"
#include "core/remote/address.h"

/* HF_ENDPOINT, without a slash at its end; from malloc, NULL without memory. */
char *tc_hub_endpoint(void);
/* What follows the endpoint in one of its own addresses, from the slash on; NULL: it is none.
 * A mirror passes on answers in which the Hub names itself: that is the mirror then. */
const char *tc_hub_own_target(const char *address, const char *endpoint);
/* HF_HUB_OFFLINE. */
bool tc_hub_is_offline(void);
/* Where the Hub's files are kept: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; from malloc. */
char *tc_hub_cache(void);
/* HF_HUB_DOWNLOAD_TIMEOUT, in milliseconds. */
int tc_hub_timeout(void);
/* Whether the address is asked for by a proxy (HTTPS_PROXY, ALL_PROXY, but not for what
 * NO_PROXY names, nor for this machine): then a connection does not show where it leads. */
bool tc_proxy_is_used(const struct tc_url *url);

/* For the fetcher alone: the token, from HF_TOKEN, HUGGING_FACE_HUB_TOKEN or a file;
 * from malloc. NULL with no error: there is none. */
char *tc_hub_token(struct tc_error *error);
/* For everybody else: overwrites the token in this process's environment. */
void tc_hub_forget_token(void);

#endif
