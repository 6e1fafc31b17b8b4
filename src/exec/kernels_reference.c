/*
 * The reference backend: the naive kernels of the registry, in double. Operands that are not
 * stored as doubles are converted through memory of the backend, which is as large as its largest
 * call needs; results that replace an operand in place pass through it too. It is the judge of the
 * others, and takes every dtype.
 */
#include "exec/kernels.h"
#include "exec/values.h"
#include "graph/kind.h"

typedef struct reference {
    esp_i_kernels_t base;
    esp_i_arena_t state;
    double *doubles; /* of the operands of one call */
    int64_t n_doubles;
} reference_t;

typedef struct reference_kernel {
    const esp_i_call_t *call;
    esp_i_buffer_t *operand; /* data: set by each run */
    esp_dtype_t *dtype;
} reference_kernel_t;

static esp_status_t reference_create(const esp_allocator_t *alloc, bool wide, esp_i_kernels_t **out,
                                     esp_diag_t *diag)
{
    const esp_allocator_t own = esp_i_allocator(alloc);
    reference_t *self = esp_i_alloc_array(&own, 1, sizeof *self);
    if (self == NULL)
        return esp_i_nomem(diag);
    self->base = (esp_i_kernels_t){.type = &esp_i_kernels_reference, .alloc = own, .wide = wide};
    esp_i_arena_init(&self->state, &own);
    *out = &self->base;
    return ESP_OK;
}

static void reference_destroy(esp_i_kernels_t *kernels)
{
    reference_t *self = (reference_t *)kernels;
    if (self == NULL)
        return;
    const esp_allocator_t own = self->base.alloc;
    esp_i_arena_fini(&self->state);
    esp_i_free(&own, self->doubles);
    esp_i_free(&own, self->base.block);
    esp_i_free(&own, self);
}

static bool is_there(const esp_i_local_t *local)
{
    return local->place >= 0;
}

/* Whether operand i is worked on in memory of the backend: no kernel expects that its result lies
 * where an input does. */
static bool is_aside(const esp_i_call_t *call, int32_t i)
{
    const esp_i_local_t *local = &call->operand[i];
    const bool is_result = i >= call->n_in && local->elements > 0;
    bool in_place = false;
    for (int32_t k = 0; k < call->n_in && is_result; k++)
        in_place = in_place || call->operand[k].place == local->place;
    return is_there(local) && (local->dtype != ESP_DTYPE_F64 || in_place);
}

static esp_i_buffer_t buffer_of(const esp_i_local_t *local)
{
    esp_i_buffer_t buffer = {.rank = -1, .global_rank = -1};
    if (!is_there(local))
        return buffer;
    buffer.rank = local->rank;
    buffer.global_rank = local->global_rank;
    for (int32_t i = 0; i < ESP_MAX_RANK; i++) {
        buffer.dims[i] = local->dims[i];
        buffer.global[i] = local->global[i];
    }
    buffer.view = local->view;
    buffer.offset = local->offset;
    buffer.share = local->share;
    return buffer;
}

static esp_status_t make_room(reference_t *self, int64_t n)
{
    if (n <= self->n_doubles)
        return ESP_OK;
    double *doubles = esp_i_alloc_array(&self->base.alloc, n, sizeof *doubles);
    if (doubles == NULL)
        return ESP_ERR_NOMEM;
    esp_i_free(&self->base.alloc, self->doubles);
    self->doubles = doubles;
    self->n_doubles = n;
    return ESP_OK;
}

static esp_status_t reference_prepare(esp_i_kernels_t *kernels, const esp_i_call_t *call,
                                      void **kernel_out, esp_diag_t *diag)
{
    reference_t *self = (reference_t *)kernels;
    const int32_t n = call->n_in + call->n_out;
    reference_kernel_t *kernel = esp_i_arena_alloc(&self->state, 1, sizeof *kernel);
    esp_i_buffer_t *operand = esp_i_arena_alloc(&self->state, n, sizeof *operand);
    esp_dtype_t *dtype = esp_i_arena_alloc(&self->state, n, sizeof *dtype);
    int64_t doubles = 0;
    for (int32_t i = 0; i < n; i++)
        doubles += is_aside(call, i) ? call->operand[i].elements : 0;
    if (kernel == NULL || operand == NULL || dtype == NULL || make_room(self, doubles) != ESP_OK)
        return esp_i_fail(diag, ESP_ERR_NOMEM, "op %s: no memory for its reference kernel",
                          call->name);
    for (int32_t i = 0; i < n; i++) {
        operand[i] = buffer_of(&call->operand[i]);
        dtype[i] = call->operand[i].dtype;
    }
    *kernel = (reference_kernel_t){call, operand, dtype};
    *kernel_out = kernel;
    return ESP_OK;
}

/* Points the operands at doubles: their own, or converted ones. */
static void connect(const reference_t *self, const reference_kernel_t *kernel)
{
    double *free_from = self->doubles;
    for (int32_t i = 0; i < kernel->call->n_in + kernel->call->n_out; i++) {
        const esp_i_local_t *local = &kernel->call->operand[i];
        if (!is_there(local))
            continue;
        void *stored = esp_i_at(&self->base, local->place);
        kernel->operand[i].data = is_aside(kernel->call, i) ? free_from : stored;
        if (!is_aside(kernel->call, i))
            continue;
        if (i < kernel->call->n_in)
            esp_i_values_load(local->dtype, local->elements, stored, free_from);
        free_from += local->elements;
    }
}

static esp_status_t reference_run(esp_i_kernels_t *kernels, void *kernel_in,
                                  const esp_i_moment_t *moment, esp_diag_t *diag)
{
    const reference_t *self = (const reference_t *)kernels;
    const reference_kernel_t *kernel = kernel_in;
    const esp_i_call_t *call = kernel->call;
    (void)diag;
    connect(self, kernel);
    esp_attr_t attr = *call->attr;
    if (call->kind == ESP_KIND_UPDATE)
        attr.update.rate *= moment->rate;
    const esp_i_kernel_t reference = {.attr = &attr,
                                      .n_in = call->n_in,
                                      .n_out = call->n_out,
                                      .in = kernel->operand,
                                      .out = kernel->operand + call->n_in,
                                      .in_dtype = kernel->dtype,
                                      .out_dtype = kernel->dtype + call->n_in,
                                      .seed = moment->seed,
                                      .step = moment->step,
                                      .local_batchnorm = call->local_batchnorm};
    esp_i_kind(call->kind)->kernel(&reference);
    for (int32_t i = call->n_in; i < call->n_in + call->n_out; i++) {
        const esp_i_local_t *local = &call->operand[i];
        if (is_aside(call, i))
            esp_i_values_store(local->dtype, local->elements, kernel->operand[i].data,
                               esp_i_at(&self->base, local->place));
    }
    return ESP_OK;
}

const esp_i_kernels_type_t esp_i_kernels_reference = {
    .name = "reference",
    .create = reference_create,
    .destroy = reference_destroy,
    .arena = esp_i_host_arena,
    .prepare = reference_prepare,
    .run = reference_run,
    .add = esp_i_host_add,
    .copy = esp_i_host_copy,
    .write = esp_i_host_write,
    .read = esp_i_host_read,
};
