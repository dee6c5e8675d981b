#include "cmd/addresses.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/sandbox_probe.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/hub_cache.h"
#include "core/remote/remote.h"

/* What is meant for an address and is none that is read, nor a file of this machine. */
static bool is_foreign(const char *argument) {
    return !tc_address_is(argument) && tc_address_seems(argument) && access(argument, F_OK) != 0;
}

/* What a shorter text leaves behind it is cut off too. */
static void hide(char *argument) {
    size_t length = strlen(argument);
    tc_address_redact(argument);
    tc_forget(argument + strlen(argument), length - strlen(argument));
}

static bool refuse_foreign(const char *argument, struct tc_error *error) {
    tc_fail(error, TC_USAGE, "address", "not an address that is read");
    tc_error_hint(error, "https://HOST/PATH and hf://NS/NAME/PATH are; a store such as S3 makes "
                         "https:// addresses (aws s3 presign)");
    return tc_error_in_file(error, argument);
}

bool addresses_hide(struct addresses *addresses, int argc, char **argv, struct tc_error *error) {
    size_t count = 0;
    for (int i = 0; i < argc; i++) {
        count += tc_address_is(argv[i]);
        /* The value of an option may be any text, such as a commit's message. */
        bool option = i > 0 && argv[i - 1][0] == '-' && argv[i - 1][1];
        if (!option && is_foreign(argv[i]))
            hide(argv[i]);
    }
    if (count == 0)
        return true;
    addresses->list = calloc(count, sizeof *addresses->list);
    addresses->arguments = calloc(count, sizeof *addresses->arguments);
    addresses->cached = calloc(count, sizeof *addresses->cached);
    if (!addresses->list || !addresses->arguments || !addresses->cached)
        return tc_fail_memory(error);
    for (int i = 0; i < argc; i++) {
        if (!tc_address_is(argv[i]))
            continue;
        struct tc_remote_address *address = &addresses->list[addresses->count];
        *address = (struct tc_remote_address){.whole = strdup(argv[i])};
        hide(argv[i]);
        address->shown = strdup(argv[i]);
        addresses->arguments[addresses->count++] = argv[i];
        if (!address->whole || !address->shown)
            return tc_fail_memory(error);
    }
    return true;
}

/* A page that shows a repository, or a folder of it, is that folder: hf://…; other
 * addresses stay as they are. */
static bool name_folder(struct tc_remote_address *address, const char *endpoint,
                        struct tc_error *error) {
    struct tc_hub_place place;
    struct tc_buffer shown = {0};
    const char *rest = tc_url_behind(address->shown, endpoint);
    if (!rest)
        return true;
    bool tree = strstr(rest, "/tree/") != NULL;
    size_t length = strlen(rest);
    while (length > 1 && rest[length - 1] == '/')
        length--;
    unsigned slashes = 0;
    for (size_t i = 1; i < length; i++)
        slashes += rest[i] == '/';
    bool other = strncmp(rest, "/datasets/", 10) == 0 || strncmp(rest, "/spaces/", 8) == 0;
    if (tree && tc_hub_parse_web(&place, address->shown, endpoint, error)) {
        tc_buffer_addf(&shown, "hf://%s/%s@", place.type, place.repo);
        tc_address_encode(&shown, tc_text_of(place.revision), true);
        tc_buffer_addf(&shown, "%s%s", place.path[0] ? "/" : "", place.path);
        tc_hub_place_release(&place);
    } else if (!tree && slashes == (other ? 2u : 1u)) {
        tc_buffer_addf(&shown, "hf:/%.*s", (int)length, rest);
    } else {
        return error->class == TC_OK;
    }
    tc_buffer_add(&shown, "", 1);
    char *whole = shown.failed ? NULL : strdup(shown.bytes);
    if (!whole) {
        tc_buffer_release(&shown);
        return tc_fail_memory(error);
    }
    free(address->shown);
    tc_forget(address->whole, strlen(address->whole));
    free(address->whole);
    *address = (struct tc_remote_address){.shown = shown.bytes, .whole = whole};
    return true;
}

/* The file or folder of the Hub's cache that an address means; NULL: it has none. */
static char *find_cached(const struct tc_remote_address *address, const char *endpoint) {
    struct tc_hub_place place = {0};
    struct tc_error ignored = {0};
    bool is_place = tc_address_is_hub(address->shown)
                        ? tc_hub_parse(&place, address->shown, &ignored)
                        : tc_hub_parse_web(&place, address->shown, endpoint, &ignored);
    char *path = is_place ? tc_hub_cache_find(&place) : NULL;
    tc_hub_place_release(&place);
    return path;
}

static bool name_folders(struct addresses *addresses, struct tc_error *error) {
    char *endpoint = addresses->count ? tc_hub_endpoint() : NULL;
    bool ok = endpoint || addresses->count == 0 || tc_fail_memory(error);
    bool offline = addresses->count && tc_hub_is_offline();
    for (size_t i = 0; i < addresses->count && ok; i++) {
        ok = name_folder(&addresses->list[i], endpoint, error);
        if (ok && offline)
            addresses->cached[i] = find_cached(&addresses->list[i], endpoint);
    }
    free(endpoint);
    return ok;
}

/* Gives an address a number where another one before it looks the same. */
static bool number(struct addresses *addresses, size_t position, struct tc_error *error) {
    struct tc_remote_address *own = &addresses->list[position];
    unsigned same = 1;
    for (size_t i = 0; i < position; i++) {
        const struct tc_remote_address *other = &addresses->list[i];
        if (strcmp(addresses->arguments[i], addresses->arguments[position]) != 0)
            continue;
        /* A query means nothing to the Hub. */
        if (strcmp(other->whole, own->whole) == 0 || tc_address_is_hub(own->shown)) {
            free(own->shown);
            own->shown = strdup(other->shown);
            return own->shown || tc_fail_memory(error);
        }
        same++;
    }
    if (same == 1)
        return true;
    char *numbered = NULL;
    if (asprintf(&numbered, "%s#%u", own->shown, same) < 0)
        return tc_fail_memory(error);
    free(own->shown);
    own->shown = numbered;
    return true;
}

bool addresses_connect(struct addresses *addresses, const char **names, size_t count,
                       uint64_t requests, struct tc_error *error) {
    bool needed = false;
    for (size_t n = 0; n < count; n++)
        if (is_foreign(names[n]))
            return refuse_foreign(names[n], error);
    if (!name_folders(addresses, error))
        return false;
    for (size_t i = 0; i < addresses->count; i++)
        if (!number(addresses, i, error))
            return false;
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < addresses->count; i++)
            if (names[n] == addresses->arguments[i]) {
                names[n] = addresses->cached[i] ? addresses->cached[i] : addresses->list[i].shown;
                needed |= !addresses->cached[i];
                break;
            }
    if (!needed)
        return true;
    if (requests > TC_REMOTE_MOST_JOBS)
        return tc_fail(error, TC_USAGE, "option-value", "--requests: at most %u requests at once",
                       TC_REMOTE_MOST_JOBS);
    addresses->options =
        (struct tc_fetcher_options){.addresses = addresses->list,
                                    .count = addresses->count,
                                    .jobs = requests ? (unsigned)requests : TC_REMOTE_JOBS,
                                    .confined = sandbox_probe_fetcher};
    addresses->remote = tc_remote_start(&addresses->options, error);
    /* From here on only the fetcher has them. */
    for (size_t i = 0; i < addresses->count; i++)
        tc_forget(addresses->list[i].whole, strlen(addresses->list[i].whole));
    return addresses->remote != NULL;
}

const char *addresses_whole(const struct addresses *addresses, const char *argument) {
    for (size_t i = 0; i < addresses->count; i++)
        if (addresses->arguments[i] == argument)
            return addresses->list[i].whole;
    return argument;
}

void addresses_release(struct addresses *addresses) {
    tc_remote_end(addresses->remote);
    for (size_t i = 0; i < addresses->count; i++) {
        free(addresses->list[i].whole);
        free(addresses->list[i].shown);
        free(addresses->cached[i]);
    }
    free(addresses->cached);
    free(addresses->list);
    free(addresses->arguments);
    *addresses = (struct addresses){0};
}

bool addresses_check_output(const char *output, struct tc_error *error) {
    if (!tc_address_is(output) && !is_foreign(output))
        return true;
    tc_fail(error, TC_USAGE, "address", "an output is a file of this machine");
    return tc_error_hint(error, "tconv hub push sends files to the Hub");
}
