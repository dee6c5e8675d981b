#include "formats/torch/object.h"

#include "formats/torch/torch.h"

struct object {
    struct torch torch; /* first, so that functions of torch take the state */
    struct pickle_node *root;
};

static int probe(const struct tc_probe *probe) {
    (void)probe;
    return 0;
}

static bool open_object(struct tc_reader *reader, struct tc_error *error) {
    struct object *object = reader->state;
    torch_init(&object->torch, reader);
    return torch_open_object(&object->torch, &object->root, error);
}

/* No format of its own, and so not in the registry. */
static const struct tc_backend backend_object = {
    .name = "torch object",
    .summary = "A part of a checkpoint",
    .extensions = (const char *const[]){NULL},
    .framework = "pt",
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .probe = probe,
    .reader_size = sizeof(struct object),
    .open = open_object,
    .read = torch_reader_read,
    .extent = torch_reader_extent,
    .strided = torch_reader_strided,
    .check_sums = torch_reader_check_sums,
    .close = torch_reader_close,
};

struct tc_reader *torch_object_open(struct tc_input *input, const struct tc_format_options *options,
                                    struct tc_error *error) {
    return tc_reader_open(&backend_object, input, options, error);
}

struct pickle_node *torch_object_root(const struct tc_reader *reader) {
    return ((const struct object *)reader->state)->root;
}

bool torch_object_add(struct tc_reader *reader, struct tc_text name, struct pickle_node *node,
                      struct tc_error *error) {
    size_t before = reader->table.count;
    if (pickle_is(node, PICKLE_CALL)) {
        if (!torch_walk_under(reader->state, name, node, error))
            return false;
        if (reader->table.count == before + 1 && !reader->table.tensors[before].metadata)
            return true;
    }
    tc_fail(error, TC_INVALID, "no-tensor", "where a tensor should be, there is none");
    return tc_error_in_tensor(error, name.bytes, name.length);
}

bool torch_object_walk(struct tc_reader *reader, struct tc_text name, struct pickle_node *node,
                       struct tc_error *error) {
    return torch_walk_named(reader->state, name, node, error);
}

bool torch_object_finish(struct tc_reader *reader, struct tc_error *error) {
    return torch_finish(reader->state, error);
}

bool torch_object_raw(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct torch_raw *raw) {
    const struct torch *torch = reader->state;
    const struct torch_storage *storage = &torch->storages[torch->views[tensor->cookie].storage];
    struct tc_extent extent;
    if (!torch_extent(reader->state, tensor, &extent) || !storage->member)
        return false;
    *raw = (struct torch_raw){.data = reader->input->base + extent.offset,
                              .start = reader->input->base + storage->member->data,
                              .length = storage->member->size,
                              .crc = storage->member->crc};
    return true;
}
