#include "formats/pickle/option.h"

#include <stddef.h>

const struct tc_format_option pickle_mode_option = {
    .name = "pickle",
    .use = TC_FOR_READING,
    .type = TC_OPTION_CHOICE,
    .initial.choice = PICKLE_OPTION_STRICT,
    .choices = (const char *const[]){"strict", "inert", NULL},
    .argument = "strict|inert",
    .help = "pickles of unknown classes: refused (strict), or their tensors taken (inert)",
};

bool pickle_is_inert(const struct tc_format_options *options) {
    return tc_option_choice(&options->settings, &pickle_mode_option) == PICKLE_OPTION_INERT;
}
