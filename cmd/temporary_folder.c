#include "cmd/temporary_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/report.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/remove_tree.h"
#include "core/remote/environment.h"

/* The process that removes it: signals of the terminal are the command's to heed. */
static _Noreturn void remove_later(const char *path, int fd) {
    char byte;
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    tc_hub_forget_token();
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        continue;
    _exit(tc_remove_tree(AT_FDCWD, path) ? 0 : 1);
}

static bool start(struct temporary_folder *folder, struct tc_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tc_fail_errno(error, errno, "pipe", "cannot make a pipe");
    folder->pid = fork();
    if (folder->pid == 0) {
        close(ends[1]);
        remove_later(folder->path, ends[0]);
    }
    close(ends[0]);
    folder->fd = ends[1];
    if (folder->pid > 0)
        return true;
    tc_fail_errno(error, errno, "process", "cannot start a process");
    close(ends[1]);
    return false;
}

bool temporary_folder_make(struct temporary_folder *folder, struct tc_error *error) {
    const char *tried = "TMPDIR";
    *folder = (struct temporary_folder){0};
    for (size_t i = 0; i < TC_TEMPFILE_FOLDERS; i++) {
        char *path = NULL;
        const char *parent = tc_tempfile_folder(i);
        if (!parent || asprintf(&path, "%s/tconv-hub-XXXXXX", parent) < 0)
            continue;
        tried = parent;
        folder->path = mkdtemp(path);
        if (!folder->path) {
            free(path);
            continue;
        }
        if (start(folder, error))
            return true;
        rmdir(path);
        free(path);
        folder->path = NULL;
        return false;
    }
    tc_fail_errno(error, errno, "tempfile", "cannot make a folder for temporary files");
    tc_error_hint(error, "set TMPDIR to a folder with enough space");
    return tc_error_in_file(error, tried);
}

void temporary_folder_remove(struct temporary_folder *folder) {
    int status = 0;
    if (!folder->path)
        return;
    close(folder->fd);
    while (waitpid(folder->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status != 0) {
        struct tc_buffer line = {0};
        tc_buffer_add_string(&line, "tconv: warning: ");
        tc_buffer_add_visible(&line, tc_text_of(folder->path));
        tc_buffer_add_string(&line, ": the temporary folder could not be removed\n");
        report_err(&line);
    }
    free(folder->path);
    *folder = (struct temporary_folder){0};
}
