/* The options of ONNX models, which may be written with the extension .ot too. */
#ifndef TCONV_FORMATS_ONNX_OPTIONS_H
#define TCONV_FORMATS_ONNX_OPTIONS_H

#include "core/format/backend.h"
#include "core/format/format_option.h"

extern const struct tc_format_option onnx_external_option;
/* Two kinds of files are called .ot: archives of tch and libtorch, and ONNX
 * models. Both formats have the option. */
extern const struct tc_format_option ot_dialect_option;
extern const struct tc_backend tc_backend_onnx;

/* The ONNX format where the settings ask for a .ot file of that kind, else NULL:
 * the written_instead of the format ot. */
const struct tc_backend *onnx_written_as_ot(const struct tc_option_settings *settings);

#endif
