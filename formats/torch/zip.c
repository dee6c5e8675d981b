/*
 * Files of torch since 1.6 and of TorchScript: a zip with everything in one folder ROOT.
 *     ROOT/data.pkl          the object
 *     ROOT/data/KEY          a storage each
 *     ROOT/version           "3"
 *     ROOT/byteorder         "little" or "big"; absent: little
 *     ROOT/constants.pkl     TorchScript: a tuple of tensors that its code has
 *     ROOT/constants/KEY     their storages
 *     ROOT/model.json        torch 1.0 and 1.1, in the place of data.pkl (model.c)
 *     ROOT/code/…            TorchScript: source text, never run
 *     ROOT/tconv.json        metadata that tconv wrote
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/torch/torch.h"
#include "formats/zip/directory.h"
#include "formats/zip/names.h"
#include "formats/zip/read.h"

#define MAX_SMALL 64u
/* Paths of more bytes are joined in memory of their own. */
#define MAX_SHORT_PATH 256u
/* The highest version that libtorch accepts; all programs write 3. */
#define MAX_VERSION 10
#define MAX_SIDECAR (UINT64_C(100) * 1000 * 1000)
/* A member that only archives of torch.package have. */
#define PACKAGE_MEMBER "/.data/extern_modules"
/* Members that only programs of torch.export have (.pt2), and those of AOTInductor: the second as
 * torch wrote them until 2.6. */
#define EXPORT_MEMBER "/archive_format"
#define OLD_EXPORT_MEMBER "serialized_exported_program.json"

/* What the names of an archive's members show. */
struct seen {
    bool torch;
    bool script;
};

static void see_name(void *context, struct tc_text name) {
    struct seen *seen = context;
    seen->torch |=
        tc_text_ends(name, TC_TEXT("/data.pkl")) || tc_text_equal(name, TC_TEXT("data.pkl")) ||
        tc_text_ends(name, TC_TEXT("/model.json")) || tc_text_ends(name, TC_TEXT(PACKAGE_MEMBER)) ||
        tc_text_ends(name, TC_TEXT(EXPORT_MEMBER)) ||
        tc_text_ends(name, TC_TEXT(OLD_EXPORT_MEMBER));
    seen->script |= tc_text_ends(name, TC_TEXT("/constants.pkl"));
}

bool torch_zip_seen(const struct tc_probe *probe, bool *script) {
    struct seen seen = {0};
    zip_visit_names(probe, see_name, &seen);
    *script = seen.torch && seen.script;
    return seen.torch;
}

struct zip_member *torch_find_member(const struct torch *torch, const char *folder,
                                     struct tc_text name) {
    char path[MAX_SHORT_PATH];
    size_t parent = strlen(folder);
    size_t length = torch->root.length + parent + name.length;
    char *joined = length <= sizeof path ? path : malloc(length);
    size_t found;
    if (!joined)
        return NULL;
    memcpy(joined, torch->root.bytes, torch->root.length);
    memcpy(joined + torch->root.length, folder, parent);
    if (name.length)
        memcpy(joined + torch->root.length + parent, name.bytes, name.length);
    struct tc_text wanted = {joined, length};
    bool there = false;
    if (torch->members.slot_count)
        there = tc_name_index_find(&torch->members, torch->zip.members, wanted, &found);
    else /* the index is gone: only a few members are looked for then */
        for (found = 0; found < torch->zip.count && !there; found += !there)
            there = tc_text_equal(torch->zip.members[found].name, wanted);
    if (joined != path)
        free(joined);
    return there ? &torch->zip.members[found] : NULL;
}

static const struct zip_member *find_member(const struct torch *torch, const char *name) {
    return torch_find_member(torch, "", tc_text_of(name));
}

static bool has_capitals(const struct torch *torch) {
    for (size_t i = 0; i < torch->zip.count; i++) {
        struct tc_text name = torch->zip.members[i].name;
        for (size_t at = torch->root.length; at < name.length; at++)
            if (name.bytes[at] >= 'A' && name.bytes[at] <= 'Z')
                return true;
    }
    return false;
}

/* torch ignores the case of letters in members' names, so no two may differ only in
 * that. All are in one folder, whose name may have capitals. */
static bool check_cases(struct torch *torch, struct tc_error *error) {
    struct tc_name_map folded;
    if (!has_capitals(torch))
        return true;
    tc_name_map_init(&folded, &torch->reader->arena);
    bool ok = true;
    for (size_t i = 0; i < torch->zip.count && ok; i++) {
        struct tc_text name = torch->zip.members[i].name;
        char *copy = tc_arena_copy(&torch->reader->arena, name.bytes, name.length, error);
        struct tc_text lower = {copy, name.length};
        for (size_t at = 0; copy && at < name.length; at++)
            if (copy[at] >= 'A' && copy[at] <= 'Z')
                copy[at] |= 0x20;
        ok = copy != NULL;
        if (ok && tc_name_map_find(&folded, lower))
            ok = tc_fail(error, TC_INVALID, "zip",
                         "bad zip: \"%.*s\" is there twice, but for the case of its letters",
                         tc_text_shown(name, 200), name.bytes);
        ok = ok && tc_name_map_add(&folded, lower, 0, error);
    }
    tc_name_map_release(&folded);
    return ok;
}

/* Fills the map of members' names, each of which may occur once. */
static bool index_members(struct torch *torch, struct tc_error *error) {
    if (!tc_name_index_reserve(&torch->members, torch->zip.count, error))
        return false;
    for (size_t i = 0; i < torch->zip.count; i++) {
        struct tc_text name = torch->zip.members[i].name;
        if (!tc_name_check(name, error))
            return tc_error_in_tensor(error, name.bytes, name.length);
        uint32_t *slot = tc_name_index_slot(&torch->members, torch->zip.members, name);
        if (*slot)
            return tc_fail(error, TC_INVALID, "zip", "bad zip: \"%.*s\" is there twice",
                           tc_text_shown(name, 200), name.bytes);
        *slot = (uint32_t)i + 1;
    }
    return true;
}

/* Whether a folder's path, which ends in "/", has an empty, "." or ".." component. */
static bool leaves_folder(struct tc_text folder) {
    size_t start = 0;
    for (size_t i = 0; i < folder.length; i++) {
        if (folder.bytes[i] != '/')
            continue;
        size_t length = i - start;
        if (length == 0 || (length <= 2 && memcmp(folder.bytes + start, "..", length) == 0))
            return true;
        start = i + 1;
    }
    return false;
}

/* Counts the members of this name in any folder. The last one's folder becomes the
 * archive's root. */
static size_t find_main(struct torch *torch, struct tc_text main) {
    size_t found = 0;
    for (size_t i = 0; i < torch->zip.count; i++) {
        struct tc_text name = torch->zip.members[i].name;
        if (!tc_text_ends(name, main) ||
            (name.length > main.length && name.bytes[name.length - main.length - 1] != '/'))
            continue;
        found++;
        torch->root = (struct tc_text){name.bytes, name.length - main.length};
    }
    return found;
}

static bool has_member(const struct torch *torch, const char *ending) {
    for (size_t i = 0; i < torch->zip.count; i++)
        if (tc_text_ends(torch->zip.members[i].name, tc_text_of(ending)))
            return true;
    return false;
}

/* Refuses archives of torch that hold programs, and weights only as parts of these. */
static bool check_kind(const struct torch *torch, struct tc_error *error) {
    if (has_member(torch, PACKAGE_MEMBER)) {
        tc_fail(error, TC_UNSUPPORTED, "torch-package",
                "a torch.package archive: programs with pickles of their own");
        return tc_error_hint(
            error, "where you trust it, load it in torch and save its state_dict with torch.save");
    }
    if (!has_member(torch, EXPORT_MEMBER) && !has_member(torch, OLD_EXPORT_MEMBER))
        return true;
    tc_fail(error, TC_UNSUPPORTED, "torch-export",
            "a program of torch.export or AOTInductor (.pt2), not a file of weights");
    return tc_error_hint(error, "in torch: torch.save(torch.export.load(FILE).state_dict, OUT)");
}

/* Finds the folder that has data.pkl, and must have everything else. */
static bool find_root(struct torch *torch, struct tc_error *error) {
    if (!check_kind(torch, error))
        return false;
    size_t found = find_main(torch, TC_TEXT("data.pkl"));
    torch->model = !found && (found = find_main(torch, TC_TEXT("model.json")));
    if (found > 1)
        return tc_fail(error, TC_INVALID, "torch-archive",
                       "the archive has two pickles named data.pkl");
    for (size_t i = 0; i < torch->zip.count; i++) {
        struct tc_text name = torch->zip.members[i].name;
        if (found && !tc_text_starts(name, torch->root))
            return tc_fail(error, TC_INVALID, "torch-archive",
                           "\"%.*s\" is not in the archive's folder", tc_text_shown(name, 200),
                           name.bytes);
    }
    if (!found)
        return tc_fail(error, TC_INVALID, "torch-archive", "the archive has no data.pkl");
    if (torch->root.length == 0 || memchr(torch->root.bytes, '/', torch->root.length) !=
                                       torch->root.bytes + torch->root.length - 1)
        return tc_fail(error, leaves_folder(torch->root) ? TC_UNSAFE : TC_INVALID, "torch-archive",
                       "the archive's members are not in one folder");
    if (leaves_folder(torch->root))
        return tc_fail(error, TC_UNSAFE, "torch-archive", "the archive's folder leaves its place");
    torch->used =
        tc_arena_array(&torch->reader->arena, torch->zip.count, sizeof *torch->used, error);
    return torch->used != NULL;
}

/* The whole of a small member; NULL without an error where it does not exist. */
static const char *load_small(struct torch *torch, const char *name, size_t *length,
                              struct tc_error *error) {
    const struct zip_member *member = find_member(torch, name);
    if (!member)
        return NULL;
    *length = member->size;
    if (member->size <= MAX_SMALL)
        return zip_load(torch->reader, member, error);
    tc_fail(error, TC_INVALID, "torch-archive", "%s has %llu bytes (limit %u)", name,
            (unsigned long long)member->size, MAX_SMALL);
    return NULL;
}

static bool read_version(struct torch *torch, struct tc_error *error) {
    size_t length = 0;
    const char *text = load_small(torch, "version", &length, error);
    if (!text)
        return error->class == TC_OK
                   ? tc_fail(error, TC_INVALID, "torch-archive", "the archive has no version")
                   : false;
    while (length && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    unsigned version = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            length = 0;
        else if (version < 1000)
            version = version * 10 + (unsigned)(text[i] - '0');
    }
    if (length == 0)
        return tc_fail(error, TC_INVALID, "torch-archive", "the archive's version is no number");
    if (version > MAX_VERSION)
        return tc_fail(error, TC_UNSUPPORTED, "torch-version",
                       "version %.*s of torch's archive is not known (0 to %d are)", (int)length,
                       text, MAX_VERSION);
    return true;
}

static bool read_byteorder(struct torch *torch, struct tc_error *error) {
    size_t length = 0;
    const char *text = load_small(torch, "byteorder", &length, error);
    if (!text)
        return error->class == TC_OK;
    struct tc_text order = {text, length};
    torch->swap = tc_text_equal(order, TC_TEXT("big"));
    return torch->swap || tc_text_equal(order, TC_TEXT("little")) ||
           tc_fail(error, TC_INVALID, "torch-archive", "byteorder is neither little nor big");
}

static bool over_limit(struct tc_error *error, uint64_t size) {
    tc_fail(error, TC_UNSAFE, "pickle-limit", "a packed pickle of %llu bytes",
            (unsigned long long)size);
    return tc_error_hint(error, "raise the limit with --max-pickle if you trust this file");
}

/* Runs a pickle of the archive; one that is packed is unpacked first. */
static bool load_pickle(struct torch *torch, const struct zip_member *member,
                        struct pickle_node **root, struct tc_error *error) {
    struct pickle pickle;
    if (!member) /* it was there a moment ago: no memory is left to look for it */
        return tc_fail_memory(error);
    torch_pickle_init(torch, &pickle, member->data, member->data + member->size, error);
    bool ok = true;
    if (member->method != ZIP_STORED) {
        ok = member->size <= pickle.limits->pickle || over_limit(error, member->size);
        pickle.memory = ok ? (const unsigned char *)zip_load(torch->reader, member, error) : NULL;
        pickle.input = NULL;
        pickle.at = 0;
        pickle.end = member->size;
        ok = pickle.memory != NULL;
    }
    ok = ok && pickle_load(&pickle, root);
    if (ok && pickle.at != pickle.end) {
        ok = tc_fail(error, TC_INVALID, "trailing", "something stands behind the pickle");
        if (!pickle.memory)
            tc_error_at(error, pickle.at);
    }
    torch_count_pickle(torch, &pickle);
    pickle_release(&pickle);
    /* Where the CRC is wrong, the error says that instead: then the damage is the
     * reason. */
    if (member->method == ZIP_STORED && (ok || error->class == TC_INVALID)) {
        struct tc_error damage = {0};
        if (!zip_verify_stored(torch->reader->input, member, &damage)) {
            *error = damage;
            return false;
        }
    }
    return ok;
}

/* Warns of storages that nothing refers to, which some tools leave behind. */
static void note_unused(struct torch *torch) {
    struct tc_buffer prefix = {0};
    size_t unused = 0;
    struct tc_text first = {0};
    tc_buffer_add_text(&prefix, torch->root);
    tc_buffer_add_string(&prefix, "data/");
    for (size_t i = 0; i < torch->zip.count && !prefix.failed; i++) {
        struct tc_text name = torch->zip.members[i].name;
        if (torch->used[i] || !tc_text_starts(name, (struct tc_text){prefix.bytes, prefix.length}))
            continue;
        if (unused++ == 0)
            first = name;
    }
    tc_buffer_release(&prefix);
    if (unused)
        tc_reader_warn(torch->reader,
                       "%zu storage%s of the file %s not referred to; the first is %.*s", unused,
                       unused == 1 ? "" : "s", unused == 1 ? "is" : "are",
                       tc_text_shown(first, 200), first.bytes);
}

#define MAX_SOURCE (1u << 20)

/* Whether a TorchScript archive has more code than the class without functions that
 * tch and tconv write. */
static bool has_code(struct torch *torch, struct tc_error *error) {
    struct tc_buffer prefix = {0};
    size_t sources = 0; /* that of the class among them */
    tc_buffer_add_text(&prefix, torch->root);
    tc_buffer_add_string(&prefix, "code/");
    for (size_t i = 0; i < torch->zip.count && !prefix.failed; i++) {
        const struct zip_member *member = &torch->zip.members[i];
        sources += tc_text_ends(member->name, TC_TEXT(".py")) &&
                   tc_text_starts(member->name, (struct tc_text){prefix.bytes, prefix.length});
    }
    tc_buffer_release(&prefix);
    const struct zip_member *source = find_member(torch, "code/__torch__.py");
    if (!source || sources > 1 || source->size > MAX_SOURCE)
        return source || sources;
    const char *text = zip_load(torch->reader, source, error);
    return text && (strncmp(text, "class Module(Module):", 21) != 0 || strstr(text, "def "));
}

/* Warns that code is left out. A module without code is from tch, whatever the file's
 * extension, and so has "|" for "." in its names. */
static bool note_code(struct torch *torch, struct tc_error *error) {
    if (!torch->script)
        return true;
    if (has_code(torch, error)) {
        tc_reader_warn(torch->reader, "its code is left out; only tensors are read");
        torch->reader->beyond = "code";
    } else if (find_member(torch, "code/__torch__.py"))
        torch->bars = true;
    return error->class == TC_OK;
}

/* Adds the tensors that are constants of TorchScript's code, as all parameters of a
 * frozen module are. */
static bool read_constants(struct torch *torch, struct tc_error *error) {
    struct pickle_node *root;
    torch->folder = "constants/";
    if (!load_pickle(torch, find_member(torch, "constants.pkl"), &root, error))
        return false;
    if (root->kind != PICKLE_TUPLE)
        return tc_fail(error, TC_INVALID, "torch-archive", "constants.pkl holds no tuple");
    return torch_walk_constants(torch, root, error);
}

static bool read_sidecar(struct torch *torch, struct tc_error *error) {
    const struct zip_member *member = find_member(torch, "tconv.json");
    if (!member)
        return true;
    if (!tc_reader_check_header(torch->reader, "member tconv.json", member->size, MAX_SIDECAR,
                                error))
        return false;
    const char *text = zip_load(torch->reader, member, error);
    if (text && tc_sidecar_read(torch->reader, text, member->size, error))
        return true;
    if (error->class == TC_INVALID)
        error->has_offset = false; /* the offset is one in the JSON, not in the file */
    return false;
}

static bool open_archive(struct torch *torch, struct tc_error *error) {
    return zip_open_archive(&torch->zip, torch->reader, error) &&
           zip_all_readable(&torch->zip, error) && index_members(torch, error) &&
           find_root(torch, error) && check_cases(torch, error) && read_version(torch, error) &&
           read_byteorder(torch, error);
}

bool torch_open_object(struct torch *torch, struct pickle_node **root, struct tc_error *error) {
    if (!open_archive(torch, error))
        return false;
    if (torch->model || find_member(torch, "constants.pkl"))
        return tc_fail(error, TC_INVALID, "torch-archive", "an archive of TorchScript");
    return load_pickle(torch, find_member(torch, "data.pkl"), root, error);
}

bool torch_open_zip(struct torch *torch, struct tc_error *error) {
    struct pickle_node *root;
    if (!open_archive(torch, error))
        return false;
    torch->script = torch->model || find_member(torch, "constants.pkl") != NULL;
    if (torch->model) {
        if (!torch_read_model(torch, error) || !note_code(torch, error))
            return false;
    } else {
        if (!load_pickle(torch, find_member(torch, "data.pkl"), &root, error))
            return false;
        if (!torch->script)
            tc_name_index_release(&torch->members);
        if (!note_code(torch, error) || !torch_walk(torch, root, error) ||
            (torch->script && !read_constants(torch, error)))
            return false;
    }
    torch_forget(torch);
    note_unused(torch);
    return read_sidecar(torch, error);
}
