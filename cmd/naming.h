/* The options that give tensors new names, of every command that can. */
#ifndef TCONV_CMD_NAMING_H
#define TCONV_CMD_NAMING_H

#include "cmd/options.h"
#include "core/tensor/select.h"

struct naming {
    const char *prefix;
    const char *strip_prefix;
};

void naming_add_options(struct option_table *table, struct tc_select *select,
                        struct naming *naming);
/* Once the options are parsed. */
void naming_apply(const struct naming *naming, struct tc_select *select);

#endif
