/*
 * Addresses of remote files, as text:
 *
 *     https://HOST/PATH[?QUERY]                              a file of a web server
 *     http://127.0.0.1:PORT/PATH                             the same; on this machine only
 *     hf://[datasets/|spaces/]NS/NAME[@REVISION][/PATH]      a file, or a folder, of the Hub
 *     https://ENDPOINT/[datasets/|spaces/]NS/NAME/blob/REVISION/PATH
 *                                                            the same, as a browser shows it
 *
 * A query or a user name may be a secret (a presigned address is one), so that what
 * is shown, written down and compared is the address without both.
 */
#ifndef TCONV_CORE_REMOTE_ADDRESS_H
#define TCONV_CORE_REMOTE_ADDRESS_H

#include "core/base/error.h"
#include "core/base/text.h"

#define TC_ADDRESS_MOST 4000u /* bytes of an address, query and all */

/* Whether it looks like an address that is read by the network. */
bool tc_address_is(const char *text);
/* Whether it is, or is meant for, an address of any kind: such as s3://…, ftp://… or https:/…,
 * which may have the same secrets. */
bool tc_address_seems(const char *text);
/* Whether it is one of the Hub's own form, hf://. */
bool tc_address_is_hub(const char *text);
/* Cuts off what may be secret, in place. */
void tc_address_redact(char *text);

/* The parts of an address of the web; they point into it. */
struct tc_url {
    struct tc_text scheme; /* in lower case: "https" or "http" */
    struct tc_text user;   /* with the password; its bytes are NULL where there is none */
    struct tc_text host;   /* without the brackets of an IPv6 address */
    struct tc_text port;   /* may be empty */
    struct tc_text path;   /* from the slash on; may be empty */
    struct tc_text query;  /* from the question mark on; may be empty */
};

/* Takes https, and http where the host is this machine. Control characters, spaces
 * and what is neither make it fail; a fragment (#…) is left out. */
bool tc_url_parse(struct tc_url *url, const char *text, struct tc_error *error);
/* Whether both have one scheme, host and port. */
bool tc_url_same_origin(const struct tc_url *a, const struct tc_url *b);
/* What an address has behind another one, from the slash on; NULL: it does not lie below it. */
const char *tc_url_behind(const char *address, const char *base);
/* Whether the host is "localhost" or a number of this machine. */
bool tc_host_is_loopback(struct tc_text host);
/* Whether the host is a number (IPv4 in any form that the C library takes, IPv6) of a
 * private, link-local, loopback or other special network; a name is not. */
bool tc_host_is_private_number(struct tc_text host);
/* Whether an address of a socket (struct sockaddr) is of such a network; with
 * `loopback` whether it is this machine. */
struct sockaddr;
bool tc_socket_is_private(const struct sockaddr *address);
bool tc_socket_is_loopback(const struct sockaddr *address);

/* Adds text for a path of an address: every byte that has a meaning there is %XX; a
 * slash stays. With `segment` a slash is encoded too. */
void tc_address_encode(struct tc_buffer *out, struct tc_text text, bool segment);

/* A place on the Hub. All parts point into `text`. */
struct tc_hub_place {
    char *text;           /* from malloc */
    const char *type;     /* "models", "datasets" or "spaces" */
    const char *repo;     /* NS/NAME, or the NAME alone of an old model */
    const char *revision; /* a branch, tag or commit; "main" where none was given */
    const char *path;     /* of a file or folder in it; "" the repository itself */
    bool has_type;        /* it was named */
    bool has_revision;
};

/* Of hf://…; checks all names, so that they are safe in paths and addresses. What follows a
 * question mark or a number sign is part of the path: a file may be called so. */
bool tc_hub_parse(struct tc_hub_place *place, const char *address, struct tc_error *error);
/* Of a web address below the endpoint's, such as a browser shows; false where it is
 * none: then the place is empty, and the error filled only where it is a bad one. */
bool tc_hub_parse_web(struct tc_hub_place *place, const char *address, const char *endpoint,
                      struct tc_error *error);
/* NS/NAME, [datasets/|spaces/]NS/NAME, hf://… or a web address: what a user may call a
 * repository; `type` NULL: as the name says, else models. */
bool tc_hub_parse_repo(struct tc_hub_place *place, const char *name, const char *type,
                       const char *endpoint, struct tc_error *error);
void tc_hub_place_release(struct tc_hub_place *place);

/* Whether it is a path below a folder: no empty, "." or ".." parts, no backslash, no
 * control character, no slash at either end, and not too long. No part is ".git": git takes none
 * so, and what lies in such a folder is run by it. */
bool tc_hub_path_is_safe(struct tc_text path);
/* So many digits, 0-9 and a-f, and nothing else. */
bool tc_is_hex(struct tc_text text, size_t digits);

#endif
