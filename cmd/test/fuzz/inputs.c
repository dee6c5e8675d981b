#include "cmd/test/fuzz/inputs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/test/fuzz/fuzz.h"

static void *grow(void *list, size_t count, size_t size) {
    void *grown = reallocarray(list, count + 1, size);
    FUZZ_CHECK(grown, "no memory");
    return grown;
}

static struct tc_text load(const char *path) {
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(INPUT_BYTES);
    FUZZ_CHECK(file && bytes, "can't be read: %s", path);
    size_t length = fread(bytes, 1, INPUT_BYTES, file);
    fclose(file);
    return (struct tc_text){bytes, length};
}

static int wanted(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* By bytes, where alphasort goes by the language of the user. */
static int compare_names(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

void inputs_add(struct inputs *inputs, const char *path) {
    struct stat status;
    if (stat(path, &status) != 0)
        return;
    if (!S_ISDIR(status.st_mode)) {
        if (status.st_size > INPUT_BYTES)
            return;
        inputs->files = grow(inputs->files, inputs->count, sizeof *inputs->files);
        inputs->names = grow(inputs->names, inputs->count, sizeof *inputs->names);
        inputs->files[inputs->count] = load(path);
        inputs->names[inputs->count++] = strdup(path);
        return;
    }
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, wanted, compare_names);
    for (int i = 0; i < count; i++) {
        char *inner = NULL;
        FUZZ_CHECK(asprintf(&inner, "%s/%s", path, entries[i]->d_name) > 0, "no memory");
        inputs_add(inputs, inner);
        free(inner);
        free(entries[i]);
    }
    free(entries);
}

/* The bytes that stand between quotation marks; their number, or -1 where there are none. */
static long unquote(const char *line, char *bytes) {
    const char *at = strchr(line, '"');
    long length = 0;
    for (at = at ? at + 1 : ""; *at && *at != '"'; at++) {
        unsigned value;
        if (at[0] == '\\' && at[1] == 'x' && sscanf(at + 2, "%2x", &value) == 1) {
            bytes[length++] = (char)value;
            at += 3;
        } else {
            at += at[0] == '\\';
            bytes[length++] = *at;
        }
    }
    return *at == '"' ? length : -1;
}

void inputs_add_words(struct inputs *inputs, const char *path) {
    char line[1024];
    FILE *file = fopen(path, "r");
    FUZZ_CHECK(file, "can't be read: %s", path);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        char *bytes = malloc(sizeof line);
        FUZZ_CHECK(bytes, "no memory");
        long length = unquote(line, bytes);
        FUZZ_CHECK(length > 0, "%s: not a word: %s", path, line);
        inputs->words = grow(inputs->words, inputs->word_count, sizeof *inputs->words);
        inputs->words[inputs->word_count++] = (struct tc_text){bytes, (size_t)length};
    }
    fclose(file);
}

static void release_texts(struct tc_text *texts, size_t count) {
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)texts[i].bytes);
    free(texts);
}

void inputs_release(struct inputs *inputs) {
    release_texts(inputs->files, inputs->count);
    release_texts(inputs->words, inputs->word_count);
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->names[i]);
    free(inputs->names);
    *inputs = (struct inputs){0};
}
