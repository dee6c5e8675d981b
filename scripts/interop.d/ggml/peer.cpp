// What ggml and llama.cpp themselves make of a GGUF file, for gguf_peer.py.
//
//     ggml-peer values FILE OUT    every tensor's name, type, shape and stored bytes' F32 values
//     ggml-peer load FILE          loads a model, all files of it, and prints its metadata
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "ggml.h"
#include "gguf.h"
#include "llama.h"

// Prints a line for each tensor and key, and writes the values one behind the other.
static int values(const char *path, const char *out) {
    ggml_context *context = nullptr;
    gguf_context *file = gguf_init_from_file(path, {false, &context});
    FILE *values = file ? fopen(out, "wb") : nullptr;
    if (!values)
        return 1;
    for (int64_t i = 0; i < gguf_get_n_kv(file); i++) {
        gguf_type type = gguf_get_kv_type(file, i);
        printf("key %s %s\n", gguf_get_key(file, i), gguf_type_name(type));
    }
    for (ggml_tensor *tensor = ggml_get_first_tensor(context); tensor;
         tensor = ggml_get_next_tensor(context, tensor)) {
        if (!strcmp(tensor->name, "GGUF tensor data binary blob"))
            continue;
        const int64_t count = ggml_nelements(tensor);
        printf("tensor %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", tensor->name,
               ggml_type_name(tensor->type), tensor->ne[3], tensor->ne[2], tensor->ne[1], tensor->ne[0]);
        std::vector<float> row(count);
        const ggml_type_traits *traits = ggml_get_type_traits(tensor->type);
        if (tensor->type == GGML_TYPE_F32)
            memcpy(row.data(), tensor->data, count * sizeof(float));
        else if (traits->to_float)
            traits->to_float(tensor->data, row.data(), count);
        fwrite(row.data(), sizeof(float), count, values);
    }
    fclose(values);
    gguf_free(file);
    ggml_free(context);
    return 0;
}

static int load(const char *path) {
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model)
        return 1;
    for (int i = 0; i < llama_model_meta_count(model); i++) {
        char key[256], value[256];
        llama_model_meta_key_by_index(model, i, key, sizeof key);
        llama_model_meta_val_str_by_index(model, i, value, sizeof value);
        printf("%s = %s\n", key, value);
    }
    printf("parameters %" PRIu64 ", bytes %" PRIu64 "\n", llama_model_n_params(model), llama_model_size(model));
    llama_model_free(model);
    return 0;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "--version"))
        return !printf("%s\n", llama_print_system_info() ? "llama.cpp" : "");
    if (count == 4 && !strcmp(words[1], "values"))
        return values(words[2], words[3]);
    return count == 3 && !strcmp(words[1], "load") ? load(words[2]) : 2;
}
