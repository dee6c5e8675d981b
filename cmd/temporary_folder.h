/*
 * A folder for results that are not kept, in the user's folder of temporary files. A process of
 * its own removes it when the command has ended, in whatever way: the command's sandbox lets it
 * change what is in the folder, and nothing beside it.
 */
#ifndef TCONV_CMD_TEMPORARY_FOLDER_H
#define TCONV_CMD_TEMPORARY_FOLDER_H

#include <sys/types.h>

#include "core/base/error.h"

struct temporary_folder {
    char *path; /* NULL: none */
    int fd;     /* open for as long as it is needed */
    pid_t pid;  /* who removes it */
};

/* Before any other process is started that is to see this one's end by a descriptor. */
bool temporary_folder_make(struct temporary_folder *folder, struct tc_error *error);
/* Waits until it is gone, or warns that it is not. A folder that was never made is all zeros. */
void temporary_folder_remove(struct temporary_folder *folder);

#endif
