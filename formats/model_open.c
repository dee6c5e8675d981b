#include "formats/model_open.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/restore_metadata.h"
#include "core/io/input.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/environment.h"
#include "core/remote/hub.h"
#include "formats/dcp/hf.h"
#include "formats/registry.h"
#include "formats/shards.h"

/* Files that are one model without an index: shards, or a file a tensor. The reader's
 * input is a list of their names, each with a NUL behind it, which is made here and
 * lies in no folder. */
struct files_reader {
    struct shards shards; /* must be first */
    char *text;
    char *names; /* the text of TC_NAMES_FILE; NULL: there is none */
};

#define NAMES_LIMIT UINT64_C(100000000)

static int probe(const struct tc_probe *probe) {
    (void)probe;
    return 0;
}

/* The folder with a slash at its end, and a name behind it; from malloc. */
static char *join(const char *folder, struct tc_text name, struct tc_error *error) {
    struct tc_buffer path = {0};
    size_t length = strlen(folder);
    tc_buffer_add(&path, folder, length);
    if (length && folder[length - 1] != '/')
        tc_buffer_add_string(&path, "/");
    tc_buffer_add_text(&path, name);
    tc_buffer_add(&path, "", 1);
    if (tc_buffer_ok(&path, error))
        return path.bytes;
    tc_buffer_release(&path);
    return NULL;
}

/* {"names": {file: name}}; files that are not there count for nothing. */
static bool parse_names(struct tc_reader *reader, uint64_t length, struct tc_error *error) {
    struct files_reader *files = reader->state;
    struct tc_json json;
    struct tc_text key;
    struct tc_text file;
    struct tc_text name;
    tc_json_init(&json, files->names, length, 0, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        if (!tc_text_equal(key, TC_TEXT("names"))) {
            if (!tc_json_skip(&json, &name))
                return false;
            continue;
        }
        tc_json_begin(&json, TC_JSON_OBJECT);
        while (tc_json_key(&json, &file)) {
            if (!tc_json_string(&json, &name))
                return false;
            const uint32_t *place = tc_name_map_find(&files->shards.places, file);
            if (place)
                shards_name_tensor(&files->shards, *place, name);
        }
    }
    return tc_json_end(&json);
}

/* Gives tensors the names that the names of their files do not show. */
static bool read_names(struct tc_reader *reader, struct tc_error *error) {
    struct files_reader *files = reader->state;
    char *path = join(reader->input->path, TC_TEXT(TC_NAMES_FILE), error);
    bool there = false;
    bool ok = path && tc_reader_has_beside(reader, path, &there, error);
    struct tc_input *input = there ? tc_reader_open_beside(reader, path, NULL, error) : NULL;
    ok = ok && (input || !there);
    if (input) {
        ok = tc_reader_check_header(reader, "list of names", input->size, NAMES_LIMIT, error) &&
             (files->names = tc_input_load(input, 0, input->size, error)) &&
             parse_names(reader, input->size, error);
        reader->sidecar = input;
        if (!ok)
            tc_error_in_file(error, input->path);
    }
    free(path);
    return ok;
}

static bool open_files(struct tc_reader *reader, struct tc_error *error) {
    struct files_reader *files = reader->state;
    uint64_t length = reader->input->size;
    shards_init(&files->shards, reader);
    files->shards.without_index = true;
    files->text = tc_input_load(reader->input, 0, length, error);
    if (!files->text)
        return false;
    for (size_t at = 0; at < length;) {
        struct tc_text name = tc_text_of(files->text + at);
        uint32_t position;
        if (!shards_add_file(&files->shards, name, &position, error))
            return false;
        at += name.length + 1;
    }
    reader->size = 0;
    return read_names(reader, error) && shards_open(&files->shards, reader, false, error);
}

static void close_files(struct tc_reader *reader) {
    struct files_reader *files = reader->state;
    shards_release(&files->shards);
    free(files->text);
    free(files->names);
}

/* No format of its own, and so not in the registry: what it reads are its files'. */
static const struct tc_backend backend_files = {
    .name = "folder",
    .summary = "Files of one model, without an index",
    .extensions = (const char *const[]){NULL},
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .probe = probe,
    .reader_size = sizeof(struct files_reader),
    .open = open_files,
    .read = shards_reader_read,
    .extent = shards_reader_extent,
    .strided = shards_reader_strided,
    .check_sums = shards_reader_check_sums,
    .close = close_files,
};

/* The list of the model's files, as an input that has the folder's path. */
static struct tc_input *list_files(const char *folder, const struct model *model,
                                   struct tc_error *error) {
    struct tc_buffer names = {0};
    for (size_t i = 0; i < model->count; i++)
        tc_buffer_add(&names, model->files[i].bytes, model->files[i].length + 1);
    struct tc_input *input = NULL;
    int fd = tc_buffer_ok(&names, error) ? tc_tempfile(error) : -1;
    if (fd >= 0 && tc_write_all(fd, names.bytes, names.length, error)) {
        input = tc_input_adopt(fd, folder, names.length, NULL, error);
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
    if (input) {
        input->is_list = true;
        input->mode = 0777; /* the files' own permissions count */
    }
    tc_buffer_release(&names);
    return input;
}

static bool fail_missing(const char *path, const struct model *model, struct tc_error *error) {
    tc_fail(error, TC_INVALID, "missing-shard", "%u of %u shards are missing beside %.*s",
            model->missing, model->name.total, tc_text_shown(model->files[0], 200),
            model->files[0].bytes);
    tc_error_hint(error, "a download that was not finished? get them, or name one shard alone");
    return tc_error_in_file(error, path);
}

struct tc_reader *model_open(const char *path, const struct model *model,
                             const struct tc_backend *format,
                             const struct tc_format_options *options, struct tc_error *error) {
    bool several = model->form != MODEL_FILE;
    if (model->missing && !fail_missing(path, model, error))
        return NULL;
    char *joined = join(path, several ? (struct tc_text){"", 0} : model->files[0], error);
    struct tc_input *input = !joined   ? NULL
                             : several ? list_files(joined, model, error)
                                       : tc_reader_input(options, joined, NULL, error);
    free(joined);
    const struct tc_backend *backend = model->form == MODEL_PIECES ? &dcp_hf_backend
                                       : several                   ? &backend_files
                                       : model->name.is_index      ? NULL
                                       : model->name.is_table      ? model->backend
                                                                   : format;
    return input ? tc_registry_open_input(input, backend, options, error) : NULL;
}

struct place {
    const char *path;
    const struct tc_format_options *options;
};

static struct tc_input *open_in(void *context, const char *name, struct tc_error *error) {
    const struct place *place = context;
    char *path = join(place->path, tc_text_of(name), error);
    struct tc_input *input = path ? tc_reader_input(place->options, path, NULL, error) : NULL;
    free(path);
    return input;
}

/* The place on the Hub that an address is of, in either form. */
static bool find_place(struct tc_hub_place *place, const char *address, struct tc_error *error) {
    if (tc_address_is_hub(address))
        return tc_hub_parse(place, address, error);
    char *endpoint = tc_hub_endpoint();
    bool ok = endpoint ? tc_hub_parse_web(place, address, endpoint, error) : tc_fail_memory(error);
    free(endpoint);
    if (ok || error->class != TC_OK)
        return ok;
    tc_fail(error, TC_UNSUPPORTED, "remote-folder", "a web server does not tell a folder's files");
    return tc_error_hint(error, "get the folder, and name that; on the Hub, name it hf://…");
}

/* What a folder of a repository holds. */
static bool list_remote(struct tc_remote *remote, const char *address, struct tc_listing *listing,
                        struct tc_error *error) {
    struct tc_hub_place place = {0};
    struct tc_hub_files files = {0};
    bool ok =
        find_place(&place, address, error) && tc_hub_list(remote, &place, false, &files, error);
    for (size_t i = 0; ok && i < files.count; i++) {
        struct tc_entry entry = {.name = tc_text_of(tc_path_name(files.list[i].path)),
                                 .size = files.list[i].size,
                                 .kind = files.list[i].folder ? TC_ENTRY_FOLDER : TC_ENTRY_FILE};
        ok = tc_listing_add(listing, &entry, error);
    }
    if (ok)
        tc_listing_sort(listing);
    tc_hub_files_release(&files);
    tc_hub_place_release(&place);
    return ok || tc_error_in_file(error, address);
}

bool model_list(struct tc_listing *listing, const char *path,
                const struct tc_format_options *options, struct tc_error *error) {
    return options->remote && tc_address_is(path)
               ? list_remote(options->remote, path, listing, error)
               : tc_listing_read(listing, path, error);
}

bool model_is_folder(const char *path, const struct tc_format_options *options) {
    struct tc_hub_place place;
    struct tc_hub_files files = {0};
    struct tc_error ignored = {0};
    if (!options->remote || !tc_address_is(path))
        return tc_is_folder(path);
    if (!tc_address_is_hub(path) || !tc_hub_parse(&place, path, &ignored))
        return false;
    /* A name that a format's file would have is taken for one, without asking. */
    bool folder = !place.path[0] || (!tc_registry_for_path(place.path) &&
                                     tc_hub_list(options->remote, &place, false, &files, &ignored));
    tc_hub_files_release(&files);
    tc_hub_place_release(&place);
    return folder;
}

bool model_find(const char *path, const struct tc_backend *format, const char *variant,
                const struct tc_format_options *options, struct tc_listing *listing,
                struct model_folder *folder, struct tc_error *error) {
    struct place place = {path, options};
    const struct model_wanted wanted = {
        .format = format, .variant = variant, .open = open_in, .context = &place};
    *folder = (struct model_folder){0};
    tc_listing_init(listing);
    return (model_list(listing, path, options, error) &&
            model_folder_find(folder, listing, &wanted, error)) ||
           tc_error_in_file(error, path);
}
