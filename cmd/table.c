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

static void add_padded(struct tc_buffer *out, const struct tc_buffer *text, size_t width,
                       bool right, bool last) {
    size_t used = table_width(text->bytes, text->length);
    size_t spaces = used < width ? width - used : 0;
    tc_buffer_add_spaces(out, right ? spaces : 0);
    tc_buffer_add(out, text->bytes, text->length);
    tc_buffer_add_spaces(out, right || last ? 0 : spaces);
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
    for (size_t line = 0; line <= row_count; line++) {
        size_t start = out->length;
        for (int column = 0; column < column_count; column++) {
            cell.length = 0;
            if (line == 0)
                tc_buffer_add_string(&cell, columns[column].title);
            else
                add_cell(&cell, context, line - 1, column);
            tc_buffer_add_string(out, column ? "  " : "");
            add_padded(out, &cell, widths[column], columns[column].right,
                       column + 1 == column_count);
        }
        /* Columns that stay empty leave no spaces at the line's end. */
        while (out->length > start && out->bytes[out->length - 1] == ' ')
            out->length--;
        tc_buffer_add_string(out, "\n");
    }
    out->failed |= cell.failed;
    tc_buffer_release(&cell);
}
