#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"

/* The properties people choose a format by. */
static const struct property {
    const char *name;
    unsigned cap;
} properties[] = {
    {"many", TC_CAN_HOLD_MANY},         {"ties", TC_CAN_TIE},
    {"metadata", TC_CAN_FILE_METADATA}, {"tensor-metadata", TC_CAN_TENSOR_METADATA},
    {"lazy", TC_CAN_LOAD_LAZILY},       {"compress", TC_CAN_COMPRESS},
    {"checksum", TC_CAN_CHECKSUM},
};
#define PROPERTIES (sizeof properties / sizeof *properties)

/* What an option is without being given, as it would be written; a flag is off,
 * and an option without a default has none. */
static const char *default_of(const struct tc_format_option *option) {
    switch (option->type) {
    case TC_OPTION_FLAG:
        return NULL;
    case TC_OPTION_CHOICE:
        return option->choices[option->initial.choice];
    case TC_OPTION_DTYPE:
        break;
    }
    return option->initial.dtype == TC_NONE ? NULL : tc_dtype_name(option->initial.dtype);
}

/* Null where there is none. */
static void add_text_json(struct tc_json_writer *json, const char *key, const char *value) {
    if (value)
        tc_json_add_string(json, key, value);
    else
        tc_json_add_null(json, key);
}

static void add_options_json(struct tc_json_writer *json, const struct tc_backend *backend) {
    tc_json_open_array(json, "options");
    for (size_t i = 0; backend->options && backend->options[i]; i++) {
        const struct tc_format_option *option = backend->options[i];
        char name[64];
        snprintf(name, sizeof name, "--%s", option->name);
        tc_json_open_object(json, NULL);
        tc_json_add_string(json, "name", name);
        tc_json_add_string(json, "for", option->use == TC_FOR_READING ? "reading" : "writing");
        add_text_json(json, "argument", option->argument);
        add_text_json(json, "default", default_of(option));
        add_text_json(json, "help", option->help);
        tc_json_close(json);
    }
    tc_json_close(json);
}

static void format_json(struct tc_json_writer *json, const struct tc_backend *backend) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "format", backend->name);
    tc_json_add_string(json, "summary", backend->summary);
    tc_json_add_string(json, "mime", backend->mime);
    tc_json_open_array(json, "extensions");
    for (size_t i = 0; backend->extensions[i]; i++)
        tc_json_add_string(json, NULL, backend->extensions[i]);
    tc_json_close(json);
    tc_json_add_boolean(json, "read", true);
    tc_json_add_boolean(json, "write", backend->caps & TC_CAN_WRITE);
    tc_json_add_boolean(json, "safe", true);
    for (size_t i = 0; i < PROPERTIES; i++)
        tc_json_add_boolean(json, properties[i].name, backend->caps & properties[i].cap);
    tc_json_add_boolean(json, "shards", backend->sharding);
    tc_json_open_object(json, "stores");
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES && backend->dtypes; dtype++) {
        enum tc_dtype as = tc_dtype_promote(dtype, backend->dtypes);
        if (as == TC_NONE)
            tc_json_add_null(json, tc_dtype_name(dtype));
        else
            tc_json_add_string(json, tc_dtype_name(dtype), tc_dtype_name(as));
    }
    tc_json_close(json);
    add_options_json(json, backend);
    tc_json_end_line(json);
}

static void formats_json(struct tc_buffer *out) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    for (size_t f = 0; tc_registry[f]; f++)
        format_json(&json, tc_registry[f]);
}

/* Padding at the end of a line is of no use. */
static void end_line(struct tc_buffer *out) {
    while (out->length && out->bytes[out->length - 1] == ' ')
        out->length--;
    tc_buffer_add_string(out, "\n");
}

static void formats_table(struct tc_buffer *out) {
    tc_buffer_addf(out, "%-13s %-26s %-5s %-6s %-5s", "format", "extensions", "read", "write",
                   "safe");
    for (size_t i = 0; i < PROPERTIES; i++)
        tc_buffer_addf(out, "  %s", properties[i].name);
    tc_buffer_add_string(out, "  shards\n");
    for (size_t f = 0; tc_registry[f]; f++) {
        const struct tc_backend *backend = tc_registry[f];
        struct tc_buffer extensions = {0};
        for (size_t i = 0; backend->extensions[i]; i++)
            tc_buffer_addf(&extensions, "%s%s", i ? " " : "", backend->extensions[i]);
        tc_buffer_addf(out, "%-13s %-26s %-5s %-6s %-5s", backend->name,
                       extensions.bytes ? extensions.bytes : "", "yes",
                       backend->caps & TC_CAN_WRITE ? "yes" : "-", "yes");
        for (size_t i = 0; i < PROPERTIES; i++)
            tc_buffer_addf(out, "  %-*s", (int)strlen(properties[i].name),
                           backend->caps & properties[i].cap ? "yes" : "-");
        tc_buffer_addf(out, "  %s\n", backend->sharding ? "yes" : "-");
        tc_buffer_release(&extensions);
    }
}

static void dtypes_table(struct tc_buffer *out) {
    tc_buffer_addf(out, "\n%-13s", "stored as");
    for (size_t f = 0; tc_registry[f]; f++)
        if (tc_registry[f]->caps & TC_CAN_WRITE)
            tc_buffer_addf(out, " %-13s", tc_registry[f]->name);
    end_line(out);
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++) {
        tc_buffer_addf(out, "%-13s", tc_dtype_name(dtype));
        for (size_t f = 0; tc_registry[f]; f++) {
            if (!(tc_registry[f]->caps & TC_CAN_WRITE))
                continue;
            enum tc_dtype as = tc_dtype_promote(dtype, tc_registry[f]->dtypes);
            tc_buffer_addf(out, " %-13s",
                           as == TC_NONE ? "-"
                           : as == dtype ? "as it is"
                                         : tc_dtype_name(as));
        }
        end_line(out);
    }
    tc_buffer_add_string(out, "A name: promoted to that dtype, without loss. -: no lossless home, "
                              "an error.\n");
}

/* The options that only some formats have, and which those are. */
static void options_table(struct tc_buffer *out) {
    static const char *const uses[] = {[TC_FOR_READING] = "reading", [TC_FOR_WRITING] = "writing"};
    const struct tc_format_option *option;
    tc_buffer_addf(out, "\n%-28s %-8s %s\n", "option", "for", "formats");
    for (enum tc_option_use use = TC_FOR_READING; use <= TC_FOR_WRITING; use++)
        for (size_t i = 0; (option = tc_registry_option(use, i)); i++) {
            char name[64];
            snprintf(name, sizeof name, "--%s %s", option->name,
                     option->argument ? option->argument : "");
            tc_buffer_addf(out, "%-28s %-8s", name, uses[use]);
            for (size_t f = 0; tc_registry[f]; f++)
                if (tc_backend_declares(tc_registry[f], option))
                    tc_buffer_addf(out, " %s", tc_registry[f]->name);
            tc_buffer_add_string(out, "\n");
        }
}

/* tconv.mk. make takes a target that is not there yet for a source that its rules may use, and then
 * makes one copy of another, which may hold less than the model, or finds no beginning at all. So
 * rules for the very names that are there come first, a pattern with as little as one character
 * left open: make prefers them, and rules of the user's own still override them. Names are words of
 * the makefile there, so that those with characters of a meaning must not be. */
static const char rules_head[] =
    "# Rules for make between all formats that tconv " TC_VERSION " reads and writes:\n"
    "#     include tconv.mk\n"
    "#     -include $(wildcard *.tconv.d)\n"
    "# and `make model.npz` makes it of model.safetensors, or of whatever model there is.\n"
    "# TCONVFLAGS are options for every conversion, such as --compress or --if-changed.\n"
    "TCONV ?= tconv\n"
    "TCONVFLAGS ?=\n"
    "tconv-quote = '$(subst ','\\'',$1)'\n"
    "tconv-convert = $(TCONV) convert -q $(TCONVFLAGS) --depfile=$(call tconv-quote,$@.tconv.d) -- "
    "$(call tconv-quote,$<) $(call tconv-quote,$@)\n";
static const char rules_of_names[] =
    "# A file without a depfile was not made of another: it is what others of its name are made\n"
    "# of, here and one folder below. What has characters of a meaning in its name, and what lies\n"
    "# deeper, has the rules at the end alone.\n"
    "tconv-odd := $$ % \\# : ; = \\ ~ ' \" ` | & < > ( ) { } [ ] ? * ! ^ ,\n"
    "tconv-is-odd = $(strip $(foreach char,$(tconv-odd),$(findstring $(char),$1)))\n"
    "tconv-made := $(patsubst %.tconv.d,%,$(wildcard *.tconv.d */*.tconv.d))\n"
    "tconv-given = $(wordlist 1,1000,$(filter-out $(tconv-made),$(wildcard *$1 */*$1)))\n"
    "define tconv-rule\n"
    "$1%$3:: $1%$2\n"
    "\t$$(tconv-convert)\n"
    "endef\n"
    "define tconv-keep\n"
    "$1%$2:: $(CURDIR)/$1%$2 ;\n"
    "endef\n"
    "$(foreach from,$(tconv-from),$(foreach file,$(call tconv-given,$(from)),\\\n"
    "  $(if $(call tconv-is-odd,$(file)),,$(foreach to,$(filter-out $(from),$(tconv-to)),\\\n"
    "    $(eval $(call tconv-rule,$(file:%$(from)=%),$(from:.%=%),$(to:.%=%)))))))\n"
    "# What is among the targets itself stays as it is.\n"
    "$(if $(call tconv-is-odd,$(CURDIR))$(word 2,$(CURDIR)),,$(foreach from,$(tconv-to),\\\n"
    "  $(foreach file,$(call tconv-given,$(from)),$(if $(call tconv-is-odd,$(file)),,\\\n"
    "    $(eval $(call tconv-keep,$(file:%$(from)=%),$(from:.%=%)))))))\n";

/* The ends of names that a model is read by. Those of formats that keep metadata come first: where
 * there are several, less is lost. */
static void list_sources(struct tc_buffer *endings) {
    for (int plain = 0; plain < 2; plain++)
        for (size_t f = 0; tc_registry[f]; f++) {
            const struct tc_sharding *sharding = tc_registry[f]->sharding;
            bool indexed = sharding && sharding->index_ending && sharding->index_ending[0];
            if (tc_registry_is_index(tc_registry[f]) ||
                (tc_registry[f]->caps & TC_CAN_FILE_METADATA) ==
                    (plain ? TC_CAN_FILE_METADATA : 0u))
                continue;
            for (const char *const *from = tc_registry[f]->extensions; *from; from++) {
                tc_buffer_addf(endings, " %s", *from);
                if (indexed)
                    tc_buffer_addf(endings, " %s%s", *from, sharding->index_ending);
            }
        }
}

static void list_targets(struct tc_buffer *endings) {
    for (size_t t = 0; tc_registry[t]; t++)
        for (const char *const *to = tc_registry[t]->extensions;
             *to && tc_registry[t]->caps & TC_CAN_WRITE; to++)
            tc_buffer_addf(endings, " %s", *to);
}

/* Takes the next of a list of words with a space before each; NULL is a list of none. */
static bool next_word(const char **list, struct tc_text *word) {
    if (!*list || !**list)
        return false;
    word->bytes = *list + 1;
    word->length = strcspn(word->bytes, " ");
    *list = word->bytes + word->length;
    return true;
}

/* tconv.mk: pattern rules between all formats. The two colons make a rule the last of its chain. */
static void formats_makefile(struct tc_buffer *out) {
    struct tc_buffer from = {0};
    struct tc_buffer to = {0};
    struct tc_text target;
    struct tc_text source;
    list_sources(&from);
    list_targets(&to);
    out->failed |= from.failed || to.failed;
    tc_buffer_add_string(out, rules_head);
    if (!out->failed)
        tc_buffer_addf(out, "tconv-from :=%s\ntconv-to :=%s\n", from.bytes, to.bytes);
    tc_buffer_add_string(out, rules_of_names);
    for (const char *targets = to.bytes; !out->failed && next_word(&targets, &target);)
        for (const char *sources = from.bytes; next_word(&sources, &source);)
            if (!tc_text_equal(target, source))
                tc_buffer_addf(out, "%%%.*s:: %%%.*s\n\t$(tconv-convert)\n", (int)target.length,
                               target.bytes, (int)source.length, source.bytes);
    tc_buffer_release(&from);
    tc_buffer_release(&to);
}

int cmd_formats(int argc, char **argv) {
    struct common common = COMMON_DEFAULTS;
    struct option_table table;
    bool makefile = false;
    const struct option row =
        FLAG_OPTION("makefile", &makefile, .help = "rules for make between all formats: tconv.mk");
    options_init(&table);
    options_add(&table, NULL, &row, 1);
    common_add_plain_options(&table, &common, "one JSON object a format");
    struct tc_error error = {0};
    struct arguments arguments = {0};
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && arguments.count)
        ok = tc_fail(&error, TC_USAGE, "usage", "formats takes no file");
    struct tc_buffer out = {0};
    if (ok && common.help) {
        help_print(
            common.help, "tconv formats [--json|--makefile]",
            "Lists what is read and written, what each dtype becomes, and formats' own options.\n"
            "safe: reading it never runs code. lazy: one tensor is read without\n"
            "the others.",
            &table);
    } else if (ok && makefile) {
        formats_makefile(&out);
    } else if (ok && common.json) {
        formats_json(&out);
    } else if (ok) {
        formats_table(&out);
        dtypes_table(&out);
        options_table(&out);
    }
    ok = ok && tc_buffer_ok(&out, &error);
    report_out(&out);
    int code = ok ? 0 : report_error(&error, common.json);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
