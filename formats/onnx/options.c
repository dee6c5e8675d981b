#include "formats/onnx/options.h"

#include <stddef.h>

enum ot_dialect { OT_DIALECT_LIBTORCH, OT_DIALECT_ONNX };

const struct tc_format_option onnx_external_option = {
    .name = "onnx-external",
    .use = TC_FOR_WRITING,
    .type = TC_OPTION_FLAG,
    .help = "onnx: data in OUT.data beside the model, as it is beyond 2 GiB",
    .target = "ONNX model",
};

const struct tc_format_option ot_dialect_option = {
    .name = "ot-dialect",
    .use = TC_FOR_WRITING,
    .type = TC_OPTION_CHOICE,
    .initial.choice = OT_DIALECT_LIBTORCH,
    .choices = (const char *const[]){"libtorch", "onnx", NULL},
    .argument = "libtorch|onnx",
    .help = "ot: for tch and libtorch (default), or an ONNX model",
    .target = ".ot",
};

const struct tc_backend *onnx_written_as_ot(const struct tc_option_settings *settings) {
    return tc_option_choice(settings, &ot_dialect_option) == OT_DIALECT_ONNX ? &tc_backend_onnx
                                                                             : NULL;
}
