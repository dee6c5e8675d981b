#include <criterion/criterion.h>

#include "formats/test/support.h"

TestSuite(pb, .init = test_folder_make, .fini = test_folder_remove);

Test(pb, a_tensor_is_told_by_its_content) {
    /* dims [2], U8, raw_data. */
    cr_assert_eq(test_open_class("x.bin", "\10\2\20\2\112\2\1\2", 8), TC_OK, "%s",
                 test_error.message);
}
