/* A pool of threads that share the indices of one loop. */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define POOL_MAX_WORKERS 1024

typedef struct worker {
    esp_i_pool_t *pool;
    int32_t index;
    pthread_t thread;
} worker_t;

struct esp_i_pool {
    esp_allocator_t alloc;
    int32_t size;    /* workers, the caller included */
    int32_t started; /* threads, the caller not included */
    worker_t *workers;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    /* The loop, written by the caller while no thread works. */
    void (*fn)(void *context, int32_t index, int32_t worker);
    void *context;
    int32_t count;
    _Atomic int64_t next; /* the index to hand out; 64 bits: every worker overshoots by one */
    /* Under the mutex. */
    uint64_t round; /* counts loops; threads wait for it to change */
    int32_t working;
    bool quit;
};

static void take_indices(esp_i_pool_t *pool, int32_t worker)
{
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->count)
            return;
        pool->fn(pool->context, (int32_t)index, worker);
    }
}

static void *work(void *argument)
{
    const worker_t *worker = argument;
    esp_i_pool_t *pool = worker->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->round == seen && !pool->quit)
            pthread_cond_wait(&pool->work, &pool->mutex);
        if (pool->quit)
            break;
        seen = pool->round;
        pthread_mutex_unlock(&pool->mutex);
        take_indices(pool, worker->index);
        pthread_mutex_lock(&pool->mutex);
        if (--pool->working == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

esp_status_t esp_i_pool_create(const esp_allocator_t *alloc, int32_t n, esp_i_pool_t **pool_out)
{
    if (n < 1 || n > POOL_MAX_WORKERS)
        return ESP_ERR_ARGUMENT;
    esp_i_pool_t *pool = esp_i_alloc_array(alloc, 1, sizeof *pool);
    if (pool == NULL)
        return ESP_ERR_NOMEM;
    pool->alloc = esp_i_allocator(alloc);
    pool->size = n;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = esp_i_alloc_array(alloc, n, sizeof *pool->workers);
    if (pool->workers == NULL)
        goto fail;
    for (int32_t i = 1; i < n; i++) {
        worker_t *worker = &pool->workers[i];
        *worker = (worker_t){.pool = pool, .index = i};
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            goto fail;
        pool->started++;
    }
    *pool_out = pool;
    return ESP_OK;
fail:
    esp_i_pool_destroy(pool);
    return ESP_ERR_NOMEM;
}

void esp_i_pool_destroy(esp_i_pool_t *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->quit = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int32_t i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    esp_allocator_t alloc = pool->alloc;
    esp_i_free(&alloc, pool->workers);
    esp_i_free(&alloc, pool);
}

int32_t esp_i_pool_size(const esp_i_pool_t *pool)
{
    return pool->size;
}

void esp_i_pool_run(esp_i_pool_t *pool, int32_t count,
                    void (*fn)(void *context, int32_t index, int32_t worker), void *context)
{
    pool->fn = fn;
    pool->context = context;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    /* One index is not worth waking anyone. */
    bool shared = pool->started > 0 && count > 1;
    if (shared) {
        pthread_mutex_lock(&pool->mutex);
        pool->working = pool->started;
        pool->round++;
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
    take_indices(pool, 0);
    if (!shared)
        return;
    pthread_mutex_lock(&pool->mutex);
    while (pool->working > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
