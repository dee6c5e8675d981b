#include <criterion/criterion.h>

#include "formats/test/support.h"

TestSuite(onnx, .init = test_folder_make, .fini = test_folder_remove);

Test(onnx, a_model_is_told_by_its_content) {
    /* ir_version 8 and a graph with nothing in it. */
    cr_assert_eq(test_open_class("x.bin", "\10\10\72\0", 4), TC_OK, "%s", test_error.message);
}
