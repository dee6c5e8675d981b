#include "core/remote/header.h"

#include <string.h>
#include <strings.h>

bool tc_header_is_of_the_wire(struct tc_text name) {
    static const char *const names[] = {"Connection", "Content-Length",    "Cookie", "Expect",
                                        "Host",       "Keep-Alive",        "Range",  "TE",
                                        "Trailer",    "Transfer-Encoding", "Upgrade"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == name.length && strncasecmp(names[i], name.bytes, name.length) == 0)
            return true;
    return name.length >= 6 && strncasecmp(name.bytes, "Proxy-", 6) == 0;
}
