#include "formats/test/libzip.h"

#include <stdio.h>
#include <stdlib.h>
#include <zip.h>

struct libzip {
    zip_t *archive;
    char error[200];
};

struct libzip *libzip_open(const void *bytes, size_t length) {
    struct libzip *libzip = calloc(1, sizeof *libzip);
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = libzip ? zip_source_buffer_create(bytes, length, 0, &error) : NULL;
    zip_t *archive = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
    if (source && !archive)
        zip_source_free(source);
    zip_error_fini(&error);
    if (!archive) {
        free(libzip);
        return NULL;
    }
    libzip->archive = archive;
    return libzip;
}

size_t libzip_count(const struct libzip *libzip) {
    return (size_t)zip_get_num_entries(libzip->archive, 0);
}

static bool failed(struct libzip *libzip, zip_error_t *error) {
    snprintf(libzip->error, sizeof libzip->error, "%s", zip_error_strerror(error));
    return false;
}

bool libzip_member(struct libzip *libzip, size_t index, struct libzip_member *member) {
    const zip_uint64_t needed =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_CRC | ZIP_STAT_COMP_METHOD;
    zip_stat_t status;
    zip_stat_init(&status);
    if (zip_stat_index(libzip->archive, index, 0, &status) != 0)
        return failed(libzip, zip_get_error(libzip->archive));
    if ((status.valid & needed) != needed) {
        snprintf(libzip->error, sizeof libzip->error, "it does not know all fields");
        return false;
    }
    *member = (struct libzip_member){status.name, status.size, status.comp_size, status.crc,
                                     status.comp_method};
    return true;
}

bool libzip_read(struct libzip *libzip, size_t index, unsigned char *buffer, size_t length,
                 size_t *got) {
    *got = 0;
    zip_file_t *file = zip_fopen_index(libzip->archive, index, 0);
    if (!file)
        return failed(libzip, zip_get_error(libzip->archive));
    zip_int64_t step = 1;
    while (step > 0 && *got <= length) {
        step = zip_fread(file, buffer + *got, length + 1 - *got);
        *got += step > 0 ? (size_t)step : 0;
    }
    if (step < 0)
        failed(libzip, zip_file_get_error(file));
    return zip_fclose(file) == 0 && step >= 0;
}

const char *libzip_error(const struct libzip *libzip) {
    return libzip->error;
}

void libzip_close(struct libzip *libzip) {
    if (libzip)
        zip_discard(libzip->archive);
    free(libzip);
}
