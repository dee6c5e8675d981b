#include "cmd/table.h"

#include <string.h>

#define WIDEST 60
#define MOST_COLUMNS 16

size_t table_width(const char *bytes, size_t length) {
    size_t width = 0;
    for (size_t i = 0; i < length; i++)
        width += (bytes[i] & 0xC0) != 0x80;
    return width;
}

/* Adds a cell of a line; what stands to the right is made in `cell` first. */
static void add_padded(struct tc_buffer *out, struct tc_buffer *cell, table_cell *add_cell,
                       const void *context, size_t row, int column, size_t width, bool right) {
    struct tc_buffer *text = right ? cell : out;
    size_t start = right ? 0 : out->length;
    cell->length = 0;
    add_cell(text, context, row, column);
    size_t used = text->failed ? width : table_width(text->bytes + start, text->length - start);
    tc_buffer_add_spaces(out, used < width ? width - used : 0);
    if (right)
        tc_buffer_add(out, cell->bytes, cell->length);
}

struct titles {
    const struct table_column *columns;
};

static void add_title(struct tc_buffer *cell, const void *context, size_t row, int column) {
    const struct titles *titles = context;
    (void)row;
    tc_buffer_add_string(cell, titles->columns[column].title);
}

void table_print(struct tc_buffer *out, const struct table_column *columns, int column_count,
                 size_t row_count, table_cell *add_cell, const void *context) {
    size_t widths[MOST_COLUMNS] = {0};
    struct tc_buffer cell = {0};
    for (int column = 0; column < column_count; column++) {
        widths[column] = table_width(columns[column].title, strlen(columns[column].title));
        /* The last column needs none, unless it stands to the right. */
        bool measured = column + 1 < column_count || columns[column].right;
        for (size_t row = 0; row < row_count && measured && widths[column] < WIDEST; row++) {
            cell.length = 0;
            add_cell(&cell, context, row, column);
            size_t width = table_width(cell.bytes, cell.length);
            if (width > widths[column])
                widths[column] = width < WIDEST ? width : WIDEST;
        }
    }
    const struct titles titles = {columns};
    for (size_t line = 0; line <= row_count; line++) {
        size_t start = out->length;
        for (int column = 0; column < column_count; column++) {
            tc_buffer_add(out, "  ", column ? 2 : 0);
            add_padded(out, &cell, line ? add_cell : add_title, line ? context : &titles,
                       line ? line - 1 : 0, column, widths[column], columns[column].right);
        }
        /* Columns that stay empty leave no spaces at the line's end. */
        while (out->length > start && out->bytes[out->length - 1] == ' ')
            out->length--;
        tc_buffer_add(out, "\n", 1);
    }
    out->failed |= cell.failed;
    tc_buffer_release(&cell);
}
