#include "core/remote/environment.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/io/input.h"

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define DEFAULT_TIMEOUT 10000
#define MOST_TOKEN 4096u

static const char *const token_names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
#define TOKEN_NAMES (sizeof token_names / sizeof *token_names)

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

char *tc_hub_endpoint(void) {
    const char *value = variable("HF_ENDPOINT");
    char *endpoint = strdup(value ? value : DEFAULT_ENDPOINT);
    for (size_t length = endpoint ? strlen(endpoint) : 0; length && endpoint[length - 1] == '/';)
        endpoint[--length] = '\0';
    return endpoint;
}

const char *tc_hub_own_target(const char *address, const char *endpoint) {
    const char *target = tc_url_behind(address, endpoint);
    return target ? target : tc_url_behind(address, DEFAULT_ENDPOINT);
}

bool tc_hub_is_offline(void) {
    const char *value = variable("HF_HUB_OFFLINE");
    if (!value)
        value = variable("TRANSFORMERS_OFFLINE");
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "on") == 0 ||
                     strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0);
}

int tc_hub_timeout(void) {
    const char *value = variable("HF_HUB_DOWNLOAD_TIMEOUT");
    double seconds = value ? strtod(value, NULL) : 0;
    return isfinite(seconds) && seconds > 0 && seconds < 1e6 ? (int)ceil(seconds * 1000)
                                                             : DEFAULT_TIMEOUT;
}

/* Whether a number lies in a network, "10.0.0.0/8". */
static bool is_in_network(const char *host, const char *network) {
    unsigned char number[16];
    unsigned char first[16];
    char base[64];
    const char *slash = strchr(network, '/');
    size_t length = slash ? (size_t)(slash - network) : sizeof base;
    if (!slash || length >= sizeof base)
        return false;
    memcpy(base, network, length);
    base[length] = '\0';
    int family = strchr(host, ':') ? AF_INET6 : AF_INET;
    unsigned long most = family == AF_INET6 ? 128 : 32;
    char *end;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (end == slash + 1 || *end || bits > most || inet_pton(family, host, number) != 1 ||
        inet_pton(family, base, first) != 1)
        return false;
    if (memcmp(number, first, bits / 8) != 0)
        return false;
    unsigned shift = 8 - bits % 8;
    return bits % 8 == 0 || number[bits / 8] >> shift == first[bits / 8] >> shift;
}

/* Whether a word of NO_PROXY means the host: the name, what ends in it after a dot, the
 * number, its network, or "*". */
static bool is_exempt(const char *host, const char *word) {
    size_t length = strlen(host);
    if (strcmp(word, "*") == 0 || is_in_network(host, word))
        return true;
    while (word[0] == '.')
        word++;
    size_t own = strlen(word);
    if (own == 0 || own > length || strcasecmp(host + length - own, word) != 0)
        return false;
    return own == length || host[length - own - 1] == '.';
}

bool tc_proxy_is_used(const struct tc_url *url) {
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    const char *exempt = variable("no_proxy") ? variable("no_proxy") : variable("NO_PROXY");
    char host[256];
    char word[256];
    bool set = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !set; i++)
        set = variable(names[i]) != NULL;
    if (!set || tc_host_is_loopback(url->host))
        return false;
    size_t length = url->host.length < sizeof host ? url->host.length : 0;
    memcpy(host, url->host.bytes, length);
    while (length && host[length - 1] == '.')
        length--;
    host[length] = '\0';
    while (exempt && *exempt) {
        size_t skip = strspn(exempt, ", \t");
        size_t own = strcspn(exempt + skip, ", \t");
        if (own && own < sizeof word) {
            memcpy(word, exempt + skip, own);
            word[own] = '\0';
            if (is_exempt(host, word))
                return false;
        }
        exempt += skip + own;
    }
    return true;
}

/* The variable that $NAME or ${NAME} at the front of a text means; NULL: it stays as it is. */
static const char *variable_at(const char *at, size_t *used) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    char name[64];
    bool braces = at[1] == '{';
    const char *start = at + 1 + braces;
    size_t length = strspn(start, letters);
    if (at[0] != '$' || !length || length >= sizeof name || (braces && start[length] != '}'))
        return NULL;
    memcpy(name, start, length);
    name[length] = '\0';
    *used = length + 1 + 2 * (size_t)braces;
    return getenv(name);
}

/* A path as Python's client takes it: with ~ for the user's home, and $NAME; from malloc. */
static char *expand(const char *path) {
    struct tc_buffer text = {0};
    const char *home = variable("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home) {
        tc_buffer_add_string(&text, home);
        path++;
    }
    for (size_t used; *path; path += used) {
        used = 1;
        const char *value = variable_at(path, &used);
        tc_buffer_add(&text, value ? value : path, value ? strlen(value) : used);
    }
    tc_buffer_add(&text, "", 1);
    return text.failed ? NULL : text.bytes;
}

static char *join(const char *folder, const char *name) {
    char *path = NULL;
    char *whole = asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : expand(path);
    free(path);
    return whole;
}

/* A file or folder of the Hub's home. */
static char *in_home(const char *name) {
    const char *home = variable("HF_HOME");
    if (home)
        return join(home, name);
    const char *cache = variable("XDG_CACHE_HOME");
    const char *user = variable("HOME");
    char *folder = NULL;
    int length = cache  ? asprintf(&folder, "%s/huggingface", cache)
                 : user ? asprintf(&folder, "%s/.cache/huggingface", user)
                        : -1;
    char *path = length < 0 ? NULL : join(folder, name);
    if (length >= 0)
        free(folder);
    return path;
}

char *tc_hub_cache(void) {
    const char *cache = variable("HF_HUB_CACHE");
    if (!cache)
        cache = variable("HUGGINGFACE_HUB_CACHE");
    return cache ? expand(cache) : in_home("hub");
}

/* A token goes into a line of a header, which anything but visible ASCII could end. */
static char *checked(const char *text, size_t length, struct tc_error *error) {
    while (length && strchr(" \t\r\n", text[length - 1]))
        length--;
    while (length && strchr(" \t\r\n", text[0])) {
        text++;
        length--;
    }
    for (size_t i = 0; i < length; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f) {
            tc_fail(error, TC_USAGE, "token",
                    "the Hub's token is not valid: it holds other than ASCII");
            return NULL;
        }
    if (length == 0)
        return NULL;
    char *token = strndup(text, length);
    if (!token)
        tc_fail_memory(error);
    return token;
}

static char *read_token(const char *path, struct tc_error *error) {
    char text[MOST_TOKEN];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t length = fd < 0 ? -1 : tc_read_up_to(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    char *token =
        length > 0 && (size_t)length < sizeof text ? checked(text, (size_t)length, error) : NULL;
    tc_forget(text, sizeof text);
    return token;
}

char *tc_hub_token(struct tc_error *error) {
    for (size_t i = 0; i < TOKEN_NAMES; i++) {
        const char *value = variable(token_names[i]);
        char *token = value ? checked(value, strlen(value), error) : NULL;
        if (token || error->class != TC_OK)
            return token;
    }
    const char *named = variable("HF_TOKEN_PATH");
    char *path = named ? expand(named) : in_home("token");
    char *token = path ? read_token(path, error) : NULL;
    free(path);
    return token;
}

void tc_hub_forget_token(void) {
    for (size_t i = 0; i < TOKEN_NAMES; i++) {
        char *value = getenv(token_names[i]);
        if (value) {
            tc_forget(value, strlen(value));
            unsetenv(token_names[i]);
        }
    }
}
