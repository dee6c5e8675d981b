/* Base64 as RFC 4648 has it, with padding and without line ends. */
#ifndef TCONV_CORE_BASE_BASE64_H
#define TCONV_CORE_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/text.h"

void tc_buffer_add_base64(struct tc_buffer *buffer, const void *bytes, size_t length);
/* False where the text is anything else. `bytes` has room for three of four characters. */
bool tc_base64_decode(struct tc_text text, char *bytes, size_t *length);

#endif
