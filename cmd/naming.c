#include "cmd/naming.h"

#include "core/base/text.h"

void naming_add_options(struct option_table *table, struct tc_select *select,
                        struct naming *naming) {
    const struct option rows[] = {
        SELECT_OPTION("rename", select, tc_select_rename, .argument = "s/RE/NEW/",
                      .help = "new names, as sed; g, i; may be given again"),
        SELECT_OPTION("map", select, tc_select_map, .argument = "FILE",
                      .help = "new names from a JSON object {old: new}"),
        TEXT_OPTION("strip-prefix", &naming->strip_prefix, .argument = "TEXT",
                    .help = "take this off the front of names that have it"),
        TEXT_OPTION("prefix", &naming->prefix, .argument = "TEXT",
                    .help = "put this before every name"),
    };
    options_add(table, NULL, rows, OPTION_COUNT(rows));
}

void naming_apply(const struct naming *naming, struct tc_select *select) {
    if (naming->prefix)
        select->prefix = tc_text_of(naming->prefix);
    if (naming->strip_prefix)
        select->strip_prefix = tc_text_of(naming->strip_prefix);
}
