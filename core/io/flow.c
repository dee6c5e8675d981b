#include "core/io/flow.h"

#include <stdlib.h>

#include "core/io/cores.h"
#include "core/io/thread_pool.h"

/* All threads together have about this many chunks, and each at least two. */
#define CHUNKS 16u
#define LEAST_CHUNKS 2u

static struct tc_flow_turn *turn_of(struct tc_flow *flow, uint64_t job) {
    return &flow->turns[job % TC_FLOW_TURNS];
}

static void wake_taker(struct tc_flow *flow) {
    if (flow->taker_waits)
        pthread_cond_signal(&flow->ready);
}

static void wake_all(struct tc_flow *flow) {
    for (size_t i = 1; i < flow->worker_count; i++)
        if (flow->workers[i].waits)
            pthread_cond_signal(&flow->workers[i].woken);
    wake_taker(flow);
}

/* A thread that ran out of chunks sleeps until half of them are back: waking it for each would cost
 * a switch of threads for each. */
static void take_back(struct tc_chunk *chunk) {
    struct tc_flow *flow = (struct tc_flow *)chunk->home;
    struct tc_flow_worker *worker = &flow->workers[chunk->owner];
    tc_queue_push_front(&worker->empty, chunk); /* it is still in the CPU's cache */
    worker->empty_count++;
    if (chunk->owner == 0)
        wake_taker(flow);
    else if (worker->waits && 2 * worker->empty_count >= flow->chunks_each)
        pthread_cond_signal(&worker->woken);
}

/* Whether a job is not to be gone on with. */
static bool is_given_up(const struct tc_flow *flow, const struct tc_flow_worker *worker) {
    return flow->stopped || flow->failed < worker->turn;
}

static bool take_job(struct tc_flow *flow, struct tc_flow_worker *worker) {
    if (flow->stopped || flow->failed != UINT64_MAX || flow->ended ||
        flow->handed_out - flow->head == TC_FLOW_TURNS)
        return false;
    if (!flow->work->next(flow->work->context, worker->job)) {
        flow->ended = true;
        wake_all(flow);
        return false;
    }
    worker->turn = flow->handed_out++;
    *turn_of(flow, worker->turn) = (struct tc_flow_turn){0};
    worker->busy = true;
    return true;
}

/* The job has ended, in whichever way. */
static void end_job(struct tc_flow *flow, struct tc_flow_worker *worker) {
    worker->busy = false;
    turn_of(flow, worker->turn)->done = true;
    if (flow->work->any_order) {
        /* Nothing is taken by turns, so that the head only bounds how many are under way. */
        while (flow->head < flow->handed_out && turn_of(flow, flow->head)->done)
            flow->head++;
        wake_all(flow);
    } else if (worker->turn == flow->head) {
        wake_taker(flow);
    }
}

static void keep_failure(struct tc_flow *flow, struct tc_flow_worker *worker) {
    if (worker->turn < flow->failed) {
        flow->failed = worker->turn;
        flow->error = worker->error;
    }
    worker->error = (struct tc_error){0};
    wake_all(flow);
}

/* Does a step of the worker's job with a chunk of its own. The lock is held, except in the step. */
static void do_step(struct tc_flow *flow, struct tc_flow_worker *worker) {
    struct tc_chunk *chunk = tc_queue_pop(&worker->empty);
    worker->empty_count--;
    pthread_mutex_unlock(&flow->home.lock);
    chunk->holders = 1;
    chunk->length = 0;
    enum tc_step step = TC_STEP_FAILED;
    /* Chunks get their memory when they are first used: small files need one. */
    if (!chunk->bytes && !(chunk->bytes = aligned_alloc(4096, TC_CHUNK_BYTES)))
        tc_fail_memory(&worker->error);
    else
        step = flow->work->step(flow->work->context, worker, worker->job, chunk, &worker->error);
    pthread_mutex_lock(&flow->home.lock);
    if (step == TC_STEP_FAILED || chunk->length == 0) {
        chunk->holders = 0;
        take_back(chunk);
    } else {
        bool in_turn = flow->work->any_order || worker->turn == flow->head;
        tc_queue_push(flow->work->any_order ? &flow->full : &turn_of(flow, worker->turn)->full,
                      chunk);
        if (in_turn)
            wake_taker(flow);
    }
    if (step == TC_STEP_FAILED)
        keep_failure(flow, worker);
    if (step != TC_STEP_MORE)
        end_job(flow, worker);
}

static void *work_through(void *argument) {
    struct tc_flow_worker *worker = argument;
    struct tc_flow *flow = worker->flow;
    pthread_mutex_lock(&flow->home.lock);
    for (;;) {
        if (worker->busy && is_given_up(flow, worker))
            end_job(flow, worker);
        if (flow->stopped || (!worker->busy && (flow->ended || flow->failed != UINT64_MAX)))
            break;
        if (worker->empty.first && (worker->busy || take_job(flow, worker))) {
            do_step(flow, worker);
        } else if (!flow->ended || worker->busy) {
            worker->waits = true;
            pthread_cond_wait(&worker->woken, &flow->home.lock);
            worker->waits = false;
        }
    }
    pthread_mutex_unlock(&flow->home.lock);
    return NULL;
}

/* The chunk that is to be taken next; NULL: it is not ready, or there is none. */
static struct tc_chunk *pop_ready(struct tc_flow *flow) {
    if (flow->work->any_order)
        return tc_queue_pop(&flow->full);
    bool was_full = flow->handed_out - flow->head == TC_FLOW_TURNS;
    struct tc_chunk *chunk = NULL;
    while (flow->head < flow->handed_out && !chunk) {
        struct tc_flow_turn *turn = turn_of(flow, flow->head);
        chunk = tc_queue_pop(&turn->full);
        if (chunk || !turn->done)
            break;
        if (flow->head == flow->failed)
            break;
        flow->head++;
    }
    if (was_full && flow->handed_out - flow->head < TC_FLOW_TURNS)
        wake_all(flow);
    return chunk;
}

/* Whether nothing more will be ready. */
static bool is_over(const struct tc_flow *flow) {
    if (flow->failed != UINT64_MAX)
        return flow->head >= flow->failed;
    return flow->ended && flow->head == flow->handed_out;
}

/* The taker does a step itself, where it can without waiting. */
static bool help(struct tc_flow *flow) {
    struct tc_flow_worker *worker = &flow->workers[0];
    if (worker->busy && is_given_up(flow, worker)) {
        end_job(flow, worker);
        return true;
    }
    if (!worker->empty.first)
        return false;
    bool ended = flow->ended;
    if (!worker->busy && !take_job(flow, worker))
        return flow->ended != ended; /* then the end may have come */
    do_step(flow, worker);
    return true;
}

enum tc_next tc_flow_next(struct tc_flow *flow, struct tc_chunk **chunk, struct tc_error *error) {
    enum tc_next result = TC_NEXT_CHUNK;
    pthread_mutex_lock(&flow->home.lock);
    while (!(*chunk = pop_ready(flow))) {
        if (is_over(flow)) {
            result = flow->failed == UINT64_MAX ? TC_NEXT_END : TC_NEXT_FAILED;
            break;
        }
        if (help(flow))
            continue;
        flow->taker_waits = true;
        pthread_cond_wait(&flow->ready, &flow->home.lock);
        flow->taker_waits = false;
    }
    if (result == TC_NEXT_FAILED && error->class == TC_OK)
        *error = flow->error;
    pthread_mutex_unlock(&flow->home.lock);
    return result;
}

static void release(struct tc_flow *flow) {
    for (size_t i = 0; flow->workers && i < flow->worker_count; i++) {
        struct tc_flow_worker *worker = &flow->workers[i];
        if (worker->memory && flow->work->release)
            flow->work->release(flow->work->context, worker->memory);
        for (size_t c = 0; worker->chunks && c < flow->chunks_each; c++)
            free(worker->chunks[c].bytes);
        free(worker->chunks);
        free(worker->memory);
        free(worker->job);
        pthread_cond_destroy(&worker->woken);
    }
    free(flow->workers);
    pthread_cond_destroy(&flow->ready);
    pthread_mutex_destroy(&flow->home.lock);
    tc_cores_end(flow->granted);
    flow->workers = NULL;
}

static bool prepare_worker(struct tc_flow *flow, size_t number) {
    struct tc_flow_worker *worker = &flow->workers[number];
    worker->flow = flow;
    pthread_cond_init(&worker->woken, NULL);
    worker->memory = calloc(1, flow->work->memory_size + 1);
    worker->job = calloc(1, flow->work->job_size + 1);
    worker->chunks = calloc(flow->chunks_each, sizeof *worker->chunks);
    if (!worker->memory || !worker->job || !worker->chunks)
        return false;
    for (size_t i = 0; i < flow->chunks_each; i++) {
        worker->chunks[i].home = &flow->home;
        worker->chunks[i].owner = number;
        tc_queue_push(&worker->empty, &worker->chunks[i]);
    }
    worker->empty_count = flow->chunks_each;
    return true;
}

bool tc_flow_start(struct tc_flow *flow, const struct tc_flow_work *work, size_t threads,
                   struct tc_error *error) {
    size_t count = tc_cores_begin(threads);
    *flow = (struct tc_flow){.home.take_back = take_back,
                             .work = work,
                             .worker_count = count,
                             .granted = count,
                             .failed = UINT64_MAX};
    flow->chunks_each = CHUNKS / count > LEAST_CHUNKS ? CHUNKS / count : LEAST_CHUNKS;
    pthread_mutex_init(&flow->home.lock, NULL);
    pthread_cond_init(&flow->ready, NULL);
    flow->workers = calloc(count, sizeof *flow->workers);
    bool ok = flow->workers != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = prepare_worker(flow, i);
    if (!ok) {
        release(flow);
        return tc_fail_memory(error);
    }
    struct tc_error ignored = {0};
    while (flow->started + 1 < count) {
        struct tc_flow_worker *worker = &flow->workers[flow->started + 1];
        if (!tc_thread_start(&worker->thread, work_through, worker, &ignored))
            break;
        flow->started++;
    }
    return true;
}

void tc_flow_end(struct tc_flow *flow) {
    pthread_mutex_lock(&flow->home.lock);
    flow->stopped = true;
    wake_all(flow);
    pthread_mutex_unlock(&flow->home.lock);
    for (size_t i = 1; i <= flow->started; i++)
        pthread_join(flow->workers[i].thread, NULL);
    release(flow);
}
