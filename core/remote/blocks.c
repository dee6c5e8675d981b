/* Ranges of remote files, in blocks: core/remote/client.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/remote/client.h"
#include "core/remote/protocol.h"

/* How much is under way, at most, that nobody asked for yet. */
#define AHEAD_BLOCKS (CACHE_BLOCKS / 2)
/* One request: large enough that a connection is not idle, small enough for several. */
#define REQUEST_BLOCKS 32u
/* What is read at once, so that a read of any length needs few blocks. */
#define STEP_BYTES ((uint64_t)1 << 20)
/* Two reads belong to one stretch with no more than this between them. */
#define NEAR_BYTES ((uint64_t)1 << 17)
/* Several threads read one stretch together, each a little before or behind. */
#define BEHIND_BYTES ((uint64_t)16 << 20)
/* A stretch that nobody announced is taken for one only when it has this much. */
#define RUN_BYTES ((uint64_t)1 << 18)

/* Ranges that follow each other tell that more will: a header and one tensor do not. */
#define SEVERAL_RANGES 3u
/* How much one side reads, at most, before the other has: with what is ahead, both files of a
 * comparison find room for it. */
#define MOST_LEAD 64u
/* Where nothing is read or awaited for so long, the other side is not waited for any more. */
#define PATIENCE_MS 2000
/* How much is fetched, at most, that nobody announced. */
#define MOST_GUESSED ((uint64_t)4 << 20)

static size_t bucket_of(const struct client_file *file, uint64_t index) {
    uint64_t mixed =
        (index + file->number * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(mixed >> 32) % BUCKETS;
}

static struct block *find(const struct client_file *file, uint64_t index) {
    struct block *block = file->remote->buckets[bucket_of(file, index)];
    while (block && (block->file != file || block->index != index))
        block = block->chain;
    return block;
}

static void unlink_use(struct tc_remote *remote, struct block *block) {
    *(block->newer ? &block->newer->older : &remote->newest) = block->older;
    *(block->older ? &block->older->newer : &remote->oldest) = block->newer;
    block->newer = block->older = NULL;
}

static void link_use(struct tc_remote *remote, struct block *block) {
    block->older = remote->newest;
    *(remote->newest ? &remote->newest->newer : &remote->oldest) = block;
    remote->newest = block;
}

static void set_ahead(struct tc_remote *remote, struct block *block, bool ahead) {
    if (block->ahead != ahead)
        remote->ahead = ahead ? remote->ahead + 1 : remote->ahead - 1;
    block->ahead = ahead;
}

/* Whether one side has read it and the other has yet to. */
static bool is_half_read(const struct block *block) {
    return block->file->paced && block->read[SIDE_DATA] != block->read[SIDE_CHECK];
}

static void count_lead(struct block *block, bool more) {
    if (is_half_read(block)) {
        size_t *lead = &block->file->lead[block->read[SIDE_CHECK] ? SIDE_CHECK : SIDE_DATA];
        *lead = more ? *lead + 1 : *lead - 1;
    }
}

static void set_read(struct block *block, enum client_side side) {
    count_lead(block, false);
    block->read[side] = true;
    count_lead(block, true);
}

static void remove_block(struct tc_remote *remote, struct block *block) {
    count_lead(block, false);
    struct block **at = &remote->buckets[bucket_of(block->file, block->index)];
    while (*at != block)
        at = &(*at)->chain;
    *at = block->chain;
    unlink_use(remote, block);
    set_ahead(remote, block, false);
    remote->blocks--;
    free(block->bytes);
    free(block);
}

static bool is_whole(const struct block *block) {
    return block->filled == block->length;
}

/* Makes room for one block; of those that are whole the one that was not used for the
 * longest time goes. False: all are in use. */
static bool make_room(struct tc_remote *remote) {
    for (struct block *block = remote->oldest; block; block = block->newer)
        if (block->users == 0 && is_whole(block) && !block->ahead && !is_half_read(block)) {
            remove_block(remote, block);
            return true;
        }
    for (struct block *block = remote->oldest; block; block = block->newer)
        if (block->users == 0 && is_whole(block)) {
            remove_block(remote, block);
            return true;
        }
    return false;
}

static struct block *add(struct client_file *file, uint64_t index, uint32_t length) {
    struct tc_remote *remote = file->remote;
    if (remote->blocks >= CACHE_BLOCKS && !make_room(remote))
        return NULL;
    struct block *block = calloc(1, sizeof *block);
    unsigned char *bytes = block ? malloc(length) : NULL;
    /* The command's memory is used up: less is kept. */
    while (block && !bytes && make_room(remote))
        bytes = malloc(length);
    if (!bytes) {
        free(block);
        return NULL;
    }
    struct block **bucket = &remote->buckets[bucket_of(file, index)];
    *block = (struct block){
        .file = file, .index = index, .length = length, .bytes = bytes, .chain = *bucket};
    *bucket = block;
    link_use(remote, block);
    remote->blocks++;
    return block;
}

static uint32_t length_of(const struct client_file *file, uint64_t index) {
    uint64_t rest = file->facts.size - index * BLOCK_BYTES;
    return (uint32_t)(rest < BLOCK_BYTES ? rest : BLOCK_BYTES);
}

/* What comes in */

bool blocks_prepare_first(struct client_file *file, uint32_t request) {
    struct block *block = add(file, 0, (uint32_t)BLOCK_BYTES);
    if (block) {
        block->request = request;
        block->users = 1;
    }
    return block != NULL;
}

void blocks_settle_first(struct client_file *file) {
    struct block *block = find(file, 0);
    uint32_t length = file->facts.size ? length_of(file, 0) : 0;
    if (!block)
        return;
    block->users--;
    if (length && block->filled >= length)
        block->length = block->filled = length;
    else
        remove_block(file->remote, block);
}

bool blocks_store(struct client_file *file, uint64_t offset, const unsigned char *bytes,
                  size_t length) {
    while (length) {
        uint64_t index = offset / BLOCK_BYTES;
        uint32_t within = (uint32_t)(offset % BLOCK_BYTES);
        struct block *block = find(file, index);
        size_t room = block && within <= block->length ? block->length - within : 0;
        size_t step = length < room ? length : room;
        /* What was begun again begins at a place that is filled already. */
        if (step == 0 || within > block->filled || is_whole(block))
            return false;
        memcpy(block->bytes + within, bytes, step);
        block->filled = within + (uint32_t)step;
        offset += step;
        bytes += step;
        length -= step;
    }
    return true;
}

void blocks_fail(struct tc_remote *remote, uint32_t request) {
    struct block *newer;
    for (struct block *block = remote->oldest; block; block = newer) {
        newer = block->newer;
        if (block->request != request || is_whole(block))
            continue;
        block->failed = true;
        if (block->users == 0)
            remove_block(remote, block);
    }
}

void blocks_drop_file(struct client_file *file) {
    struct block *newer;
    for (struct block *block = file->remote->oldest; block; block = newer) {
        newer = block->newer;
        if (block->file == file)
            remove_block(file->remote, block);
    }
}

/* What is asked for */

static bool request(struct client_file *file, uint64_t first, uint64_t count,
                    struct tc_error *error) {
    struct tc_remote *remote = file->remote;
    uint64_t start = first * BLOCK_BYTES;
    uint64_t end = (first + count) * BLOCK_BYTES;
    struct tc_frame frame = {.kind = TC_FRAME_READ,
                             .id = ++remote->last_request,
                             .number = file->number,
                             .offset = start,
                             .length = (end < file->facts.size ? end : file->facts.size) - start};
    for (uint64_t i = first; i < first + count; i++)
        find(file, i)->request = frame.id;
    return client_send(remote, &frame, NULL, error);
}

/* Asks for those blocks of a range that are not there, neighbours as one. With
 * `ahead`, as far as there is room; else each is held until `release`. */
static bool ask(struct client_file *file, uint64_t first, uint64_t last, bool ahead,
                uint64_t *taken, struct tc_error *error) {
    struct tc_remote *remote = file->remote;
    uint64_t run = 0;
    uint64_t i = first;
    bool ok = true;
    for (; i < last && ok; i++) {
        struct block *block = find(file, i);
        bool missing = !block;
        if (missing && ahead && (remote->ahead >= AHEAD_BLOCKS || remote->blocks >= CACHE_BLOCKS)) {
            /* Old blocks make room, those that are ahead do not. */
            if (remote->ahead >= AHEAD_BLOCKS || !make_room(remote))
                break;
        }
        if (missing && !(block = add(file, i, length_of(file, i))))
            break;
        if (!ahead) {
            block->users++;
            set_ahead(remote, block, false);
        } else if (missing) {
            set_ahead(remote, block, true);
        }
        if (missing)
            run++;
        if (run && (!missing || run == REQUEST_BLOCKS)) {
            ok = request(file, i + missing - run, run, error);
            run = 0;
        }
    }
    if (run && ok)
        ok = request(file, i - run, run, error);
    *taken = i;
    return ok;
}

static void release(struct client_file *file, uint64_t first, uint64_t last) {
    struct tc_remote *remote = file->remote;
    for (uint64_t i = first; i < last; i++) {
        struct block *block = find(file, i);
        block->users--;
        unlink_use(remote, block);
        link_use(remote, block);
        if (block->failed && block->users == 0)
            remove_block(remote, block);
    }
}

static bool wait_for(struct client_file *file, uint64_t index, struct tc_error *error) {
    struct tc_remote *remote = file->remote;
    struct block *block = find(file, index);
    remote->waiting++;
    while (!is_whole(block) && !block->failed && !remote->broken)
        pthread_cond_wait(&remote->news, &remote->lock);
    remote->waiting--;
    remote->progress++;
    if (is_whole(block))
        return true;
    if (block->failed && file->error.class != TC_OK) {
        *error = file->error;
        return false;
    }
    return client_broken(error);
}

/* How far beyond what was asked for it is worth to ask, as offsets: to the end of the
 * announced range, and, of a stretch that goes on, as much again as was read. */
static uint64_t ahead_of(const struct client_file *file, uint64_t end) {
    uint64_t length = file->run_end - file->run_start;
    uint64_t most = file->run_end;
    bool announced = end >= file->expected_start && end <= file->expected_end;
    if (announced)
        most = file->expected_end;
    if (length >= RUN_BYTES && (!announced || file->ranges_in_run > SEVERAL_RANGES)) {
        uint64_t more = file->run_end + (length / 2 < MOST_GUESSED ? length / 2 : MOST_GUESSED);
        most = more > most ? more : most;
    }
    uint64_t window = end + AHEAD_BLOCKS * BLOCK_BYTES;
    most = most < window ? most : window;
    return most < file->facts.size ? most : file->facts.size;
}

static void note_run(struct client_file *file, uint64_t offset, uint64_t end) {
    bool near = offset <= file->run_end + NEAR_BYTES && offset + BEHIND_BYTES >= file->run_end &&
                offset >= file->run_start;
    if (!near) {
        file->run_start = offset;
        file->run_end = end;
        file->ranges_in_run = 1;
    } else if (end > file->run_end) {
        file->run_end = end;
    }
}

/* Asks ahead when enough is missing for a request that is worth it: not at every read
 * for the little by which the window has moved. */
static bool ask_ahead(struct client_file *file, uint64_t last, uint64_t beyond,
                      struct tc_error *error) {
    uint64_t first = last;
    uint64_t ignored;
    while (first < beyond && find(file, first))
        first++;
    uint64_t missing = beyond - first;
    uint64_t room = file->remote->ahead < AHEAD_BLOCKS ? AHEAD_BLOCKS - file->remote->ahead : 0;
    uint64_t worth = (beyond - last) / 2 < REQUEST_BLOCKS ? (beyond - last) / 2 : REQUEST_BLOCKS;
    if (missing == 0 || (first > last && (missing < worth || room < worth)))
        return true;
    return ask(file, first, beyond, true, &ignored, error);
}

/* Two readers of a file */

static enum client_side side_of(const struct client_file *file) {
    return file->checking && pthread_equal(file->checker, pthread_self()) ? SIDE_CHECK : SIDE_DATA;
}

/* What only the checking thread has read is kept no longer: it may be what nobody else will read,
 * as headers and tensors that are left out. */
static void forget_lead(struct client_file *file) {
    struct tc_remote *remote = file->remote;
    for (struct block *block = remote->oldest; block; block = block->newer)
        if (block->file == file && is_half_read(block) && block->read[SIDE_CHECK])
            set_read(block, SIDE_DATA);
    file->waits[SIDE_CHECK] = 0;
    pthread_cond_broadcast(&remote->news);
}

static void set_paced(struct client_file *file, bool paced) {
    file->paced = paced;
    memset(file->lead, 0, sizeof file->lead);
    for (struct block *block = file->remote->oldest; block; block = block->newer)
        if (block->file == file)
            memset(block->read, 0, sizeof block->read);
    pthread_cond_broadcast(&file->remote->news);
}

/* Waits for news; false where nothing happened for as long as the patience lasts. */
static bool wait_for_progress(struct tc_remote *remote) {
    uint64_t before = remote->progress;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_clockwait(&remote->news, &remote->lock, CLOCK_MONOTONIC, &until) !=
               ETIMEDOUT ||
           remote->progress != before || remote->waiting;
}

/* Whoever is too far ahead waits until the other side has read some of what is kept for it. Where
 * that waits too, what the checking thread has read is kept no longer. */
static void keep_pace(struct client_file *file, enum client_side side) {
    while (file->paced && file->lead[side] >= MOST_LEAD && file->error.class == TC_OK &&
           !file->remote->broken) {
        if (file->waits[!side]) {
            forget_lead(file);
            continue;
        }
        file->waits[side]++;
        bool goes_on = wait_for_progress(file->remote);
        if (file->waits[side])
            file->waits[side]--;
        if (!goes_on)
            set_paced(file, false);
    }
}

/* Whether this side would get further ahead by reading these. What was fetched ahead counts too:
 * else whoever reads it asks for more ahead, and never waits. */
static bool adds_to_lead(const struct client_file *file, uint64_t first, uint64_t last,
                         enum client_side side) {
    for (uint64_t i = first; i < last && file->paced; i++) {
        const struct block *block = find(file, i);
        if (!block || (!block->read[side] && !block->read[!side]))
            return true;
    }
    return false;
}

static bool read_step(struct client_file *file, uint64_t offset, unsigned char *buffer,
                      uint64_t length, struct tc_error *error) {
    uint64_t first = offset / BLOCK_BYTES;
    uint64_t last = (offset + length + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint64_t held;
    enum client_side side = side_of(file);
    if (adds_to_lead(file, first, last, side))
        keep_pace(file, side);
    /* Who looks at a file to guess its format takes a failure for a no: so it stays. */
    if (file->error.class != TC_OK) {
        *error = file->error;
        return false;
    }
    note_run(file, offset, offset + length);
    bool ok = ask(file, first, last, false, &held, error);
    uint64_t beyond = (ahead_of(file, offset + length) + BLOCK_BYTES - 1) / BLOCK_BYTES;
    if (ok && held == last && beyond > last)
        ok = ask_ahead(file, last, beyond, error);
    if (ok && held < last)
        ok = tc_fail_memory(error);
    for (uint64_t i = first; i < held && ok; i++) {
        uint64_t start = i * BLOCK_BYTES;
        uint64_t from = offset > start ? offset - start : 0;
        ok = wait_for(file, i, error);
        if (!ok)
            break;
        const struct block *block = find(file, i);
        uint64_t end =
            offset + length - start < block->length ? offset + length - start : block->length;
        memcpy(buffer + (start + from - offset), block->bytes + from, end - from);
    }
    for (uint64_t i = first; i < held && file->paced; i++)
        set_read(find(file, i), side);
    release(file, first, held);
    file->remote->progress++;
    if (file->waits[!side])
        pthread_cond_broadcast(&file->remote->news);
    return ok;
}

static bool source_read(void *context, uint64_t offset, void *buffer, size_t length,
                        struct tc_error *error) {
    struct client_file *file = context;
    unsigned char *to = buffer;
    bool ok = true;
    pthread_mutex_lock(&file->remote->lock);
    while (length && ok) {
        uint64_t step = length < STEP_BYTES ? length : STEP_BYTES;
        ok = read_step(file, offset, to, step, error);
        to += step;
        offset += step;
        length -= step;
    }
    pthread_mutex_unlock(&file->remote->lock);
    return ok;
}

static void source_expect(void *context, uint64_t offset, uint64_t length) {
    struct client_file *file = context;
    pthread_mutex_lock(&file->remote->lock);
    if (offset != file->expected_start || offset + length != file->expected_end) {
        bool follows = offset <= file->run_end + NEAR_BYTES && offset >= file->run_start;
        file->ranges_in_run = follows ? file->ranges_in_run + 1 : 0;
        file->expected_start = offset;
        file->expected_end = offset + length;
    }
    pthread_mutex_unlock(&file->remote->lock);
}

static void source_check(void *context, enum tc_input_checking what) {
    struct client_file *file = context;
    pthread_mutex_lock(&file->remote->lock);
    if (what == TC_CHECKING_ALONE) {
        file->alone = true;
    } else {
        file->checking = what == TC_CHECKING_BEGINS;
        file->checker = pthread_self();
    }
    set_paced(file, file->checking && !file->alone);
    pthread_mutex_unlock(&file->remote->lock);
}

static bool source_sound(void *context, struct tc_error *error) {
    struct client_file *file = context;
    pthread_mutex_lock(&file->remote->lock);
    bool ok = file->error.class == TC_OK;
    if (!ok)
        *error = file->error;
    pthread_mutex_unlock(&file->remote->lock);
    return ok;
}

const struct tc_input_source client_source = {source_read,  source_expect,    source_check,
                                              source_sound, client_file_hold, client_file_drop};
