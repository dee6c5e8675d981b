/* Names as the least discerning file systems see them: without case (NTFS, APFS), and with accents
 * taken off their letters (HFS+, APFS). Two names with one key can't be in a folder there. */
#ifndef TCONV_CORE_BASE_FOLD_H
#define TCONV_CORE_BASE_FOLD_H

#include "core/base/text.h"

/* Adds the key of a name in UTF-8: Unicode's canonical caseless match. What is not UTF-8 stands for
 * itself. */
void tc_fold(struct tc_text name, struct tc_buffer *key);

#endif
