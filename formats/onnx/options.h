/* The options of ONNX models, one of which goes by another format's name. */
#ifndef TCONV_FORMATS_ONNX_OPTIONS_H
#define TCONV_FORMATS_ONNX_OPTIONS_H

#include "core/format/backend.h"
#include "core/format/format_option.h"

extern const struct tc_format_option onnx_external_option;
/* Two kinds of files are called .ot: archives of tch and libtorch, and ONNX
 * models. Both formats have the option. */
extern const struct tc_format_option ot_dialect_option;
extern const struct tc_backend tc_backend_onnx;

/* The ONNX format where a .ot file is wanted in that dialect, else NULL. */
const struct tc_backend *onnx_written_as_ot(const struct tc_option_settings *settings);

#endif
