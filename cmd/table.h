/* Tables of text for people: columns as wide as what they hold. */
#ifndef TCONV_CMD_TABLE_H
#define TCONV_CMD_TABLE_H

#include "core/base/text.h"

struct table_column {
    const char *title;
    bool right; /* numbers: flush right */
};

/* Appends a cell's text, made safe for a terminal, to what may have other cells already. */
typedef void table_cell(struct tc_buffer *cell, const void *context, size_t row, int column);

void table_print(struct tc_buffer *out, const struct table_column *columns, int column_count,
                 size_t row_count, table_cell *add_cell, const void *context);

/* What a terminal shows of a text: characters, not bytes. */
size_t table_width(const char *bytes, size_t length);

#endif
