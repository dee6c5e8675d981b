#include "core/format/format_option.h"

static const union tc_option_value *find_value(const struct tc_option_settings *settings,
                                               const struct tc_format_option *option) {
    for (size_t i = 0; i < settings->count; i++)
        if (settings->list[i].option == option)
            return &settings->list[i].value;
    return &option->initial;
}

bool tc_option_flag(const struct tc_option_settings *settings,
                    const struct tc_format_option *option) {
    return find_value(settings, option)->flag;
}

unsigned tc_option_choice(const struct tc_option_settings *settings,
                          const struct tc_format_option *option) {
    return find_value(settings, option)->choice;
}

enum tc_dtype tc_option_dtype(const struct tc_option_settings *settings,
                              const struct tc_format_option *option) {
    return find_value(settings, option)->dtype;
}

bool tc_option_is_changed(const struct tc_option_setting *setting) {
    const union tc_option_value *initial = &setting->option->initial;
    switch (setting->option->type) {
    case TC_OPTION_FLAG:
        return setting->value.flag != initial->flag;
    case TC_OPTION_CHOICE:
        return setting->value.choice != initial->choice;
    case TC_OPTION_DTYPE:
        return setting->value.dtype != initial->dtype;
    }
    return false;
}
