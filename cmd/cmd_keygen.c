#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/receipt.h"
#include "core/io/publish.h"

/* Writes NAME and an ending, readable as `mode` says. */
static bool write_key(struct tc_publish *publish, const char *name, const char *kind, mode_t mode,
                      const unsigned char *key, struct tc_error *error) {
    struct tc_buffer text = {0};
    tc_key_print(&text, kind, key);
    struct tc_outfile *out =
        tc_buffer_ok(&text, error) ? tc_outfile_open(publish, name, error) : NULL;
    if (out)
        out->mode &= mode;
    bool ok =
        out && tc_outfile_write(out, text.bytes, text.length, error) && tc_outfile_seal(out, error);
    tc_forget(text.bytes, text.length);
    tc_buffer_release(&text);
    return ok;
}

static bool make_keys(const char *path, struct tc_error *error) {
    const char *stem = tc_path_name(path);
    struct tc_buffer names[2] = {{0}, {0}};
    unsigned char secret[TC_KEY_BYTES];
    unsigned char public[TC_KEY_BYTES];
    struct tc_publish publish;
    if (stem[0] == '\0')
        return tc_fail(error, TC_USAGE, "usage", "the name is empty");
    tc_buffer_addf(&names[0], "%s.key", stem);
    tc_buffer_addf(&names[1], "%s.pub", stem);
    bool ok = tc_publish_begin(&publish, path, false,
                               (struct tc_publish_options){.no_clobber = true}, error) &&
              tc_buffer_ok(&names[0], error) && tc_buffer_ok(&names[1], error) &&
              tc_publish_check(&publish, names[0].bytes, NULL, 0, error) &&
              tc_publish_check(&publish, names[1].bytes, NULL, 0, error);
    if (ok && !tc_key_make(secret, public)) {
        tc_fail(error, TC_IO, "random", "the system gives no random bytes");
        ok = tc_error_in_file(error, path);
    }
    ok = ok && write_key(&publish, names[0].bytes, TC_KEY_SECRET, 0600, secret, error) &&
         write_key(&publish, names[1].bytes, TC_KEY_PUBLIC, 0666, public, error) &&
         tc_publish_commit(&publish, error);
    tc_publish_end(&publish);
    tc_forget(secret, sizeof secret);
    tc_buffer_release(&names[0]);
    tc_buffer_release(&names[1]);
    return ok;
}

static bool confine(const struct common *common, const char *path, struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(common);
    sandbox_add_output(&sandbox, path);
    return sandbox_enter(&sandbox, NULL, 0, error);
}

int cmd_keygen(int argc, char **argv) {
    struct common common = COMMON_DEFAULTS;
    struct option_table table;
    options_init(&table);
    common_add_sandbox(&table, &common);
    common_add_plain_options(&table, &common, "an error as a JSON object on stdout");
    struct tc_error error = {0};
    struct arguments arguments = {0};
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && common.help)
        help_print(common.help, "tconv keygen NAME",
                   "Makes a pair of Ed25519 keys. NAME.key signs receipts (--sign) and is\n"
                   "readable by you alone, NAME.pub verifies them. Files that exist are never\n"
                   "replaced.",
                   &table);
    else if (ok)
        ok = arguments.count == 1 ? confine(&common, arguments.names[0], &error) &&
                                        make_keys(arguments.names[0], &error)
                                  : tc_fail(&error, TC_USAGE, "usage", "one name is needed");
    arguments_release(&arguments);
    options_release(&table);
    return ok ? 0 : report_error(&error, common.json);
}
