#include "core/remote/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HUB "hf://"
#define MOST_PATH 1024u
#define MOST_REPO 96u
#define MOST_REVISION 255u

static bool starts(const char *text, const char *prefix) {
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

bool tc_address_is_hub(const char *text) {
    return starts(text, HUB);
}

bool tc_address_is(const char *text) {
    return starts(text, "https://") || starts(text, "http://") || tc_address_is_hub(text);
}

/* Where what follows the scheme begins; NULL: there is none. Of the schemes that people use for
 * files elsewhere one slash is enough, and of the Hub's none. */
static const char *behind_scheme(const char *text) {
    static const char *const known[] = {"https:/", "http:/", "ftp:/", "s3:/", "gs:/", "hf:"};
    static const char word[] = "+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (starts(text, known[i])) {
            const char *colon = strchr(text, ':');
            return colon + 1 + strspn(colon + 1, "/");
        }
    size_t length = text[0] && strchr("+-.0123456789", text[0]) ? 0 : strspn(text, word);
    return length && strncmp(text + length, "://", 3) == 0 ? text + length + 3 : NULL;
}

bool tc_address_seems(const char *text) {
    return behind_scheme(text) != NULL;
}

void tc_address_redact(char *text) {
    const char *behind = behind_scheme(text);
    if (!behind)
        return;
    char *host = text + (behind - text);
    host[strcspn(host, "?#")] = '\0';
    if (starts(text, "hf:"))
        return;
    /* Where nothing but the user stood before a slash, what follows is a host to some readers. */
    for (;;) {
        size_t slashes = strspn(host, "/");
        char *at = memrchr(host, '@', slashes + strcspn(host + slashes, "/"));
        if (!at)
            return;
        memmove(host, at + 1, strlen(at + 1) + 1);
    }
}

/* The web */

static bool bad_address(struct tc_error *error, const char *what) {
    tc_fail(error, TC_USAGE, "address", "not an address: %s", what);
    return tc_error_hint(error, "https://HOST/PATH or hf://NS/NAME/PATH is one");
}

static bool has_bad_bytes(const char *text) {
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= 0x20 || *at == 0x7f || *at == '\\')
            return true;
    return false;
}

/* Splits HOST, HOST:PORT, [IPV6] and [IPV6]:PORT. */
static bool split_host(struct tc_url *url, struct tc_text authority) {
    const char *end = authority.bytes + authority.length;
    const char *host = authority.bytes;
    const char *rest;
    if (authority.length && host[0] == '[') {
        const char *close = memchr(host, ']', authority.length);
        if (!close)
            return false;
        url->host = (struct tc_text){host + 1, (size_t)(close - host - 1)};
        rest = close + 1;
    } else {
        const char *colon = memchr(host, ':', authority.length);
        rest = colon ? colon : end;
        url->host = (struct tc_text){host, (size_t)(rest - host)};
    }
    if (rest < end && *rest == ':')
        url->port = (struct tc_text){rest + 1, (size_t)(end - rest - 1)};
    else if (rest < end)
        return false;
    unsigned port = 0;
    for (size_t i = 0; i < url->port.length; i++) {
        if (url->port.bytes[i] < '0' || url->port.bytes[i] > '9' || port > UINT16_MAX)
            return false;
        port = port * 10 + (unsigned)(url->port.bytes[i] - '0');
    }
    if (port > UINT16_MAX || (url->port.length && port == 0))
        return false;
    for (size_t i = 0; i < url->host.length; i++)
        if ((unsigned char)url->host.bytes[i] >= 0x80 || strchr("%@<>\"{}|^`", url->host.bytes[i]))
            return false;
    return url->host.length > 0 && url->host.length < 256;
}

bool tc_url_parse(struct tc_url *url, const char *text, struct tc_error *error) {
    bool secure = starts(text, "https://");
    *url = (struct tc_url){.scheme = secure ? TC_TEXT("https") : TC_TEXT("http")};
    if (!secure && !starts(text, "http://"))
        return bad_address(error, "it begins with neither https:// nor hf://");
    if (strlen(text) > TC_ADDRESS_MOST)
        return bad_address(error, "it is too long");
    if (has_bad_bytes(text))
        return bad_address(error, "spaces, backslashes and control characters are written as %XX");
    const char *authority = text + url->scheme.length + 3;
    size_t length = strcspn(authority, "/?#");
    const char *at = memrchr(authority, '@', length);
    if (at)
        url->user = (struct tc_text){authority, (size_t)(at - authority)};
    const char *host = at ? at + 1 : authority;
    if (!split_host(url, (struct tc_text){host, (size_t)(authority + length - host)}))
        return bad_address(error, "its host is none");
    const char *path = authority + length;
    url->path = (struct tc_text){path, strcspn(path, "?#")};
    const char *query = path + url->path.length;
    url->query = (struct tc_text){query, strcspn(query, "#")};
    if (!secure && !tc_host_is_loopback(url->host)) {
        tc_fail(error, TC_UNSAFE, "plain-http", "plain http is for this machine alone");
        return tc_error_hint(error, "write https://; http:// is taken for 127.0.0.1 and localhost");
    }
    return true;
}

static struct tc_text port_of(const struct tc_url *url) {
    struct tc_text usual = url->scheme.length == 5 ? TC_TEXT("443") : TC_TEXT("80");
    return url->port.length ? url->port : usual;
}

static bool same_word(struct tc_text a, struct tc_text b) {
    return a.length == b.length && strncasecmp(a.bytes, b.bytes, a.length) == 0;
}

bool tc_url_same_origin(const struct tc_url *a, const struct tc_url *b) {
    return same_word(a->scheme, b->scheme) && same_word(a->host, b->host) &&
           tc_text_equal(port_of(a), port_of(b));
}

const char *tc_url_behind(const char *address, const char *base) {
    struct tc_url own;
    struct tc_url root;
    struct tc_error ignored = {0};
    if (!tc_url_parse(&own, address, &ignored) || !tc_url_parse(&root, base, &ignored) ||
        own.user.bytes || !tc_url_same_origin(&own, &root) || !tc_text_starts(own.path, root.path))
        return NULL;
    const char *target = own.path.bytes + root.path.length;
    return target[0] == '/' ? target : NULL;
}

static bool is_private_v4(uint32_t ip) {
    static const struct {
        uint32_t net;
        unsigned bits;
    } special[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
        {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24}, {0xc0586300, 24}, {0xc0a80000, 16},
        {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 4},  {0xf0000000, 4},
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if ((ip ^ special[i].net) >> (32 - special[i].bits) == 0)
            return true;
    return false;
}

static uint32_t last_four(const struct in6_addr *ip) {
    const uint8_t *b = ip->s6_addr + 12;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Only 2000::/3 is given out to the world; of that, tunnels that hold an IPv4 address
 * (6to4, Teredo) and the networks of examples are left out too. */
static bool is_private_v6(const struct in6_addr *ip) {
    static const uint8_t translated[12] = {0x00, 0x64, 0xff, 0x9b};
    const uint8_t *b = ip->s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(ip) || memcmp(b, translated, sizeof translated) == 0)
        return is_private_v4(last_four(ip));
    return (b[0] & 0xe0) != 0x20 || (b[0] == 0x20 && b[1] == 0x02) ||
           (b[0] == 0x20 && b[1] == 0x01 && (b[2] < 0x02 || (b[2] == 0x0d && b[3] == 0xb8))) ||
           (b[0] == 0x3f && b[1] == 0xff && b[2] < 0x10);
}

bool tc_socket_is_private(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return is_private_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return is_private_v6(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return true;
}

bool tc_socket_is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ip) || (IN6_IS_ADDR_V4MAPPED(ip) && last_four(ip) >> 24 == 127);
}

/* A host that is a number, as the C library's resolver would take it: 0x7f.1 is one. */
static bool number_of(struct tc_text host, struct sockaddr_in *v4, struct sockaddr_in6 *v6) {
    char text[256];
    if (host.length >= sizeof text)
        return false;
    memcpy(text, host.bytes, host.length);
    text[host.length] = '\0';
    size_t dot = host.length;
    if (dot && text[dot - 1] == '.')
        text[dot - 1] = '\0';
    *v4 = (struct sockaddr_in){.sin_family = AF_INET};
    *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
    if (inet_aton(text, &v4->sin_addr)) {
        v6->sin6_family = AF_UNSPEC;
        return true;
    }
    text[strcspn(text, "%")] = '\0';
    v4->sin_family = AF_UNSPEC;
    return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

/* localhost, and what ends in it after a dot, which is no other machine either. */
static bool is_local_name(struct tc_text host) {
    static const char name[] = "localhost";
    size_t length = sizeof name - 1;
    if (host.length && host.bytes[host.length - 1] == '.')
        host.length--;
    size_t front = host.length - length;
    return host.length >= length && strncasecmp(host.bytes + front, name, length) == 0 &&
           (front == 0 || host.bytes[front - 1] == '.');
}

bool tc_host_is_private_number(struct tc_text host) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (!number_of(host, &v4, &v6))
        return is_local_name(host);
    return v4.sin_family == AF_INET ? tc_socket_is_private((const struct sockaddr *)&v4)
                                    : tc_socket_is_private((const struct sockaddr *)&v6);
}

bool tc_host_is_loopback(struct tc_text host) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (same_word(host, TC_TEXT("localhost")))
        return true;
    if (!number_of(host, &v4, &v6))
        return false;
    return v4.sin_family == AF_INET ? tc_socket_is_loopback((const struct sockaddr *)&v4)
                                    : tc_socket_is_loopback((const struct sockaddr *)&v6);
}

void tc_address_encode(struct tc_buffer *out, struct tc_text text, bool segment) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.bytes[i];
        bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                     (byte >= 'a' && byte <= 'z') || (byte && strchr("-._~", byte)) ||
                     (byte == '/' && !segment);
        char encoded[3] = {'%', digits[byte >> 4], digits[byte & 15]};
        tc_buffer_add(out, plain ? (const char *)&text.bytes[i] : encoded, plain ? 1 : 3);
    }
}

/* The Hub */

bool tc_is_hex(struct tc_text text, size_t digits) {
    if (text.length != digits)
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!((text.bytes[i] >= '0' && text.bytes[i] <= '9') ||
              (text.bytes[i] >= 'a' && text.bytes[i] <= 'f')))
            return false;
    return true;
}

bool tc_hub_path_is_safe(struct tc_text path) {
    size_t start = 0;
    if (path.length == 0 || path.length > MOST_PATH || !tc_utf8_valid(path))
        return false;
    for (size_t i = 0; i <= path.length; i++) {
        if (i < path.length && path.bytes[i] != '/') {
            if ((unsigned char)path.bytes[i] < 0x20 || path.bytes[i] == 0x7f ||
                path.bytes[i] == '\\')
                return false;
            continue;
        }
        size_t length = i - start;
        const char *part = path.bytes + start;
        if (length == 0 || length > 255 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.') ||
            (length == 4 && strncasecmp(part, ".git", 4) == 0))
            return false;
        start = i + 1;
    }
    return true;
}

/* A name of the Hub: letters, digits, '-', '_' and '.', neither at the front nor twice. */
static bool is_name(struct tc_text name) {
    if (name.length == 0 || name.length > MOST_REPO || strchr("-.", name.bytes[0]))
        return false;
    for (size_t i = 0; i < name.length; i++) {
        char c = name.bytes[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     c == '-' || c == '_' || c == '.';
        bool twice = i && (c == '-' || c == '.') && name.bytes[i - 1] == c;
        if (!plain || twice)
            return false;
    }
    return true;
}

static bool is_repo(const char *repo) {
    const char *slash = strchr(repo, '/');
    if (!slash)
        return is_name(tc_text_of(repo));
    return is_name((struct tc_text){repo, (size_t)(slash - repo)}) &&
           is_name(tc_text_of(slash + 1));
}

static bool bad_place(struct tc_hub_place *place, const char *what, struct tc_error *error) {
    tc_hub_place_release(place);
    tc_fail(error, TC_USAGE, "address", "not a place on the Hub: %s", what);
    return tc_error_hint(error, "hf://[datasets/|spaces/]NS/NAME[@REVISION][/PATH] is one");
}

static bool check_place(struct tc_hub_place *place, struct tc_error *error) {
    struct tc_text revision = tc_text_of(place->revision);
    if (!is_repo(place->repo))
        return bad_place(place, "the repository's name is none", error);
    if (!tc_hub_path_is_safe(revision) || revision.length > MOST_REVISION ||
        revision.bytes[0] == '-')
        return bad_place(place, "the revision has no valid name", error);
    if (place->path[0] && !tc_hub_path_is_safe(tc_text_of(place->path)))
        return bad_place(place, "the path is none below a repository", error);
    return true;
}

/* Cuts a type's name off the front. */
static char *take_type(struct tc_hub_place *place, char *at) {
    static const char *const types[] = {"models", "datasets", "spaces"};
    place->type = types[0];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t length = strlen(types[i]);
        if (strncmp(at, types[i], length) == 0 && at[length] == '/') {
            place->type = types[i];
            place->has_type = true;
            return at + length + 1;
        }
    }
    return at;
}

/* Where a revision ends: the Hub's own references have slashes in their names. */
static char *revision_end(char *at) {
    if (strncmp(at, "refs/pr/", 8) == 0 || strncmp(at, "refs/convert/", 13) == 0) {
        char *name = strchr(at + 5, '/') + 1;
        return name + strcspn(name, "/");
    }
    return at + strcspn(at, "/");
}

/* %2F in a revision is a slash that does not end it. */
static void decode_slashes(char *text) {
    char *to = text;
    for (const char *at = text; *at; to++)
        if (strncasecmp(at, "%2f", 3) == 0) {
            *to = '/';
            at += 3;
        } else {
            *to = *at++;
        }
    *to = '\0';
}

/* `at`: NS/NAME[@REVISION][/PATH]. */
static bool split_place(struct tc_hub_place *place, char *at, struct tc_error *error) {
    char *slash = strchr(at, '/');
    char *sign = strchr(at, '@');
    /* NAME@REVISION is an old model without a namespace, and so is a NAME alone. */
    bool old = !slash || (sign && sign < slash);
    char *end = old ? at + strcspn(at, "/@") : slash + 1 + strcspn(slash + 1, "/@");
    char stop = *end;
    place->repo = at;
    *end = '\0';
    place->revision = "main";
    place->path = "";
    if (stop == '@') {
        char *revision = end + 1;
        end = revision_end(revision);
        stop = *end;
        *end = '\0';
        decode_slashes(revision);
        place->revision = revision;
        place->has_revision = true;
    }
    if (stop == '/') {
        char *path = end + 1;
        size_t length = strlen(path);
        if (length && path[length - 1] == '/')
            path[length - 1] = '\0';
        place->path = path;
    }
    return check_place(place, error);
}

static bool begin_place(struct tc_hub_place *place, const char *text, struct tc_error *error) {
    *place = (struct tc_hub_place){.text = strdup(text)};
    return place->text || tc_fail_memory(error);
}

bool tc_hub_parse(struct tc_hub_place *place, const char *address, struct tc_error *error) {
    if (!begin_place(place, address + strlen(HUB), error))
        return false;
    if (has_bad_bytes(address) && strpbrk(address, "\\\r\n\t"))
        return bad_place(place, "it holds control characters or backslashes", error);
    return split_place(place, take_type(place, place->text), error);
}

static bool decode(char *text) {
    char *to = text;
    for (const char *at = text; *at; to++) {
        if (*at != '%') {
            *to = *at++;
            continue;
        }
        int high = tc_hex_digit(at[1]);
        int low = high < 0 ? -1 : tc_hex_digit(at[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *to = (char)(high * 16 + low);
        at += 3;
    }
    *to = '\0';
    return true;
}

/* The word behind NS/NAME, or else behind the NAME of an old model, with its slashes; NULL: none is
 * there. A name may be such a word itself. */
static char *find_word(char *at, size_t *length) {
    static const char *const words[] = {"/blob/", "/resolve/", "/raw/", "/tree/"};
    char *first = at + strcspn(at, "/");
    char *second = *first ? first + 1 + strcspn(first + 1, "/") : first;
    for (size_t i = 0; i < 2 * sizeof words / sizeof *words; i++) {
        const char *word = words[i % (sizeof words / sizeof *words)];
        char *place = i < sizeof words / sizeof *words ? second : first;
        *length = strlen(word);
        if (strncmp(place, word, *length) == 0)
            return place;
    }
    return NULL;
}

/* `at`: NS/NAME/blob/REVISION/PATH, with resolve, raw or tree for blob, or NS/NAME. */
static bool split_web(struct tc_hub_place *place, char *at, bool *is_one, struct tc_error *error) {
    size_t length = 0;
    char *found = find_word(at, &length);
    *is_one = found != NULL;
    if (!found)
        return true;
    *found = '\0';
    place->repo = at;
    char *revision = found + length;
    char *end = revision_end(revision);
    bool more = *end != '\0';
    *end = '\0';
    place->revision = revision;
    place->has_revision = true;
    char *path = more ? end + 1 : end;
    place->path = path;
    if (!decode(revision) || !decode(path))
        return bad_place(place, "a % without two digits behind it", error);
    size_t last = strlen(path);
    if (last && path[last - 1] == '/')
        path[last - 1] = '\0';
    return check_place(place, error);
}

bool tc_hub_parse_web(struct tc_hub_place *place, const char *address, const char *endpoint,
                      struct tc_error *error) {
    struct tc_url url;
    struct tc_url base;
    struct tc_error ignored = {0};
    bool is_one = false;
    *place = (struct tc_hub_place){0};
    if (!tc_url_parse(&url, address, &ignored) || !tc_url_parse(&base, endpoint, &ignored) ||
        !tc_url_same_origin(&url, &base) || !tc_text_starts(url.path, base.path))
        return false;
    struct tc_text rest = {url.path.bytes + base.path.length, url.path.length - base.path.length};
    if (rest.length < 2 || rest.bytes[0] != '/' || tc_text_starts(rest, TC_TEXT("/api/")))
        return false;
    if (!begin_place(place, rest.bytes + 1, error))
        return false;
    place->text[rest.length - 1] = '\0';
    bool ok = split_web(place, take_type(place, place->text), &is_one, error);
    if (ok && !is_one)
        tc_hub_place_release(place);
    return ok && is_one;
}

bool tc_hub_parse_repo(struct tc_hub_place *place, const char *name, const char *type,
                       const char *endpoint, struct tc_error *error) {
    bool ok;
    if (tc_address_is_hub(name)) {
        ok = tc_hub_parse(place, name, error);
    } else if (tc_address_is(name)) {
        ok = tc_hub_parse_web(place, name, endpoint, error);
        if (!ok && error->class == TC_OK) {
            struct tc_buffer whole = {0};
            const char *rest = tc_url_behind(name, endpoint);
            size_t length = rest ? strcspn(rest, "?#") : 0;
            tc_buffer_addf(&whole, "%s%.*s", HUB, length ? (int)length - 1 : 0,
                           length ? rest + 1 : "");
            tc_buffer_add(&whole, "", 1);
            ok = tc_buffer_ok(&whole, error) && tc_hub_parse(place, whole.bytes, error);
            tc_buffer_release(&whole);
        }
    } else {
        ok = begin_place(place, name, error) &&
             split_place(place, take_type(place, place->text), error);
    }
    if (!ok || !type)
        return ok;
    if (place->has_type && strcmp(place->type, type) != 0)
        return bad_place(place, "its name says another kind of repository than is asked for",
                         error);
    place->type = type;
    return true;
}

void tc_hub_place_release(struct tc_hub_place *place) {
    free(place->text);
    *place = (struct tc_hub_place){0};
}
