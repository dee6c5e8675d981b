#include <criterion/criterion.h>

#include "formats/test/support.h"

TestSuite(gguf, .init = test_folder_make, .fini = test_folder_remove);
