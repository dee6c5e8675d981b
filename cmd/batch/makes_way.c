#include "cmd/batch/makes_way.h"

#include <errno.h>
#include <sys/stat.h>

#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/listing.h"
#include "formats/model_name.h"

bool batch_makes_way(const char *output, const struct tc_backend *target, bool *makes_way,
                     struct tc_error *error) {
    struct tc_listing listing;
    struct stat status;
    *makes_way = true;
    if (stat(output, &status) != 0 && tc_path_missing(errno))
        return true;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, output, error);
    *makes_way = ok && listing.count == 0;
    for (size_t i = 0; i < listing.count && !*makes_way; i++)
        *makes_way =
            model_name_parse(listing.entries[i].name, (struct tc_text){0}).backend == target;
    tc_listing_release(&listing);
    return ok;
}
