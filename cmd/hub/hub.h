/* What the actions of `tconv hub` share: cmd_hub.c has the options, list and info. */
#ifndef TCONV_CMD_HUB_HUB_H
#define TCONV_CMD_HUB_HUB_H

#include "cmd/common.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "core/remote/address.h"
#include "core/remote/client.h"

enum hub_type { HUB_TYPE_AS_NAMED, HUB_MODEL, HUB_DATASET, HUB_SPACE };

struct hub {
    struct common common;
    enum hub_type type;
    const char *revision;
    const char *output;
    const char *message;
    bool private;
    bool create_pr;
    bool delete_original;
    bool no_spool;
    struct report_progress_options progress;
    struct tc_plan_options plan;
    /* From here on as the arguments say. */
    char *endpoint;
    char *cache; /* its folder, for pull */
    struct tc_hub_place place;
    const char *path; /* of a file or folder of the repository; "" none given */
    char *trimmed;    /* where that is the argument without a slash at its end; from malloc */
    const char *file; /* push: what is sent */
    struct tc_remote *remote;
};

/* The address of a file of the repository, as the fetcher takes it; from malloc. */
char *hub_address(const struct hub *hub, const char *path, struct tc_error *error);
/* "models/NS/NAME@REVISION" for messages and JSON: without the type of a model. */
void hub_add_name(struct tc_buffer *out, const struct hub *hub);

/* Each after the sandbox was entered. */
bool hub_pull(struct hub *hub, struct tc_error *error);
bool hub_push(struct hub *hub, const char *folder, struct tc_error *error);
bool hub_convert(struct hub *hub, const char *folder, struct tc_error *error);
/* Whether what is pushed must be converted first. */
bool hub_converts(const struct hub *hub);

#endif
