/*
 * Convolutions and large matrix products by oneDNN: the only user of dnnl.h (2.6: backward passes
 * have descriptors of their own).
 *
 * oneDNN is fastest in layouts of its own choice. Images are converted, a chunk of them at a time,
 * into scratch that caches hold; weights are converted once per run. Nothing is kept between runs.
 */
#include "exec/cpu/conv.h"

#include <dnnl.h>
#include <string.h>

/* Of the OpenMP runtime that oneDNN computes with; per calling thread. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);

enum { X = ESP_I_CONV_X, W, Y };
enum { ALIGN = 64, CHUNK_BYTES = 1 << 20, WEIGHTS_PER_CHUNK = 4 };

typedef struct tensor {
    dnnl_memory_desc_t plain, own; /* of a chunk; what oneDNN wants */
    dnnl_memory_t outside, inside; /* in the arena, in scratch; the same if the layouts are */
    dnnl_primitive_t reorder;      /* between them; NULL if they are the same */
    char *data;
    int64_t step; /* bytes from chunk to chunk */
} tensor_t;

typedef struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc; /* while it is prepared */
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;
    dnnl_exec_arg_t args[4];
    tensor_t tensor[3];
    int32_t result;
    int64_t chunks;
} state_t;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success)                                                               \
            return status_;                                                                        \
    } while (0)

/* ---- descriptors ------------------------------------------------------------------------- */

static dnnl_status_t plain_of(const esp_i_conv_t *conv, int32_t tensor, int64_t images,
                              dnnl_memory_desc_t *out)
{
    const esp_i_geometry_t *space = &conv->space;
    dnnl_dims_t dims, strides;
    int n = 0;
    if (tensor == W) {
        if (conv->g > 1)
            dims[n++] = conv->g;
        dims[n++] = conv->k;
        dims[n++] = conv->c;
    } else {
        dims[n++] = images;
        dims[n++] = conv->g * (tensor == X ? conv->c : conv->k);
    }
    for (int32_t d = ESP_MAX_SPATIAL - conv->spatial; d < ESP_MAX_SPATIAL; d++)
        dims[n++] = tensor == X   ? space->large[d]
                    : tensor == W ? space->kernel[d]
                                  : space->small[d];
    dnnl_dim_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
    return dnnl_memory_desc_init_by_strides(out, n, dims, dnnl_f32, strides);
}

/* Layouts are left to oneDNN. `kind`: which pass. */
static dnnl_status_t describe(const state_t *state, const esp_i_conv_t *conv, int32_t result,
                              dnnl_convolution_desc_t *out)
{
    dnnl_memory_desc_t any[3];
    dnnl_dims_t stride, dilation, lo, hi;
    for (int32_t t = X; t <= Y; t++) {
        const dnnl_memory_desc_t *plain = &state->tensor[t].plain;
        TRY(dnnl_memory_desc_init_by_tag(&any[t], plain->ndims, plain->dims, dnnl_f32,
                                         dnnl_format_tag_any));
    }
    for (int32_t d = 0; d < conv->spatial; d++) {
        const int32_t s = ESP_MAX_SPATIAL - conv->spatial + d;
        stride[d] = conv->space.stride[s];
        dilation[d] = conv->space.dilation[s] - 1;
        lo[d] = conv->space.pad_lo[s];
        hi[d] = conv->pad_hi[s];
    }
    if (result == Y)
        return dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_training,
                                                          dnnl_convolution_direct, &any[X], &any[W],
                                                          NULL, &any[Y], stride, dilation, lo, hi);
    if (result == X)
        return dnnl_dilated_convolution_backward_data_desc_init(
            out, dnnl_convolution_direct, &any[X], &any[W], &any[Y], stride, dilation, lo, hi);
    return dnnl_dilated_convolution_backward_weights_desc_init(
        out, dnnl_convolution_direct, &any[X], &any[W], NULL, &any[Y], stride, dilation, lo, hi);
}

static dnnl_memory_desc_t wanted(const state_t *state, dnnl_query_t what)
{
    return *dnnl_primitive_desc_query_md(state->desc, what, 0);
}

/* The descriptor of the convolution of a chunk, and the layouts it wants. */
static dnnl_status_t choose(state_t *state, const esp_i_conv_t *conv, int64_t images)
{
    dnnl_convolution_desc_t forward, backward;
    dnnl_primitive_desc_t hint = NULL;
    for (int32_t t = X; t <= Y; t++)
        TRY(plain_of(conv, t, images, &state->tensor[t].plain));
    TRY(describe(state, conv, Y, &forward));
    if (conv->result == Y) {
        TRY(dnnl_primitive_desc_create(&state->desc, &forward, state->attr, state->engine, NULL));
    } else {
        TRY(describe(state, conv, conv->result, &backward));
        TRY(dnnl_primitive_desc_create(&hint, &forward, state->attr, state->engine, NULL));
        dnnl_status_t status =
            dnnl_primitive_desc_create(&state->desc, &backward, state->attr, state->engine, hint);
        (void)dnnl_primitive_desc_destroy(hint);
        TRY(status);
    }
    state->tensor[X].own =
        wanted(state, conv->result == X ? dnnl_query_diff_src_md : dnnl_query_src_md);
    state->tensor[W].own =
        wanted(state, conv->result == W ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    state->tensor[Y].own =
        wanted(state, conv->result == Y ? dnnl_query_dst_md : dnnl_query_diff_dst_md);
    return dnnl_success;
}

static bool converted(const tensor_t *tensor)
{
    return !dnnl_memory_desc_equal(&tensor->plain, &tensor->own);
}

static int64_t padded_bytes(const dnnl_memory_desc_t *desc)
{
    return ((int64_t)dnnl_memory_desc_get_size(desc) + ALIGN - 1) / ALIGN * ALIGN;
}

/* Whether the chosen descriptor can be run in that much scratch, for that many chunks. */
static bool fits(const state_t *state, const esp_i_conv_t *conv, int64_t images, int64_t scratch)
{
    const dnnl_memory_desc_t pad = wanted(state, dnnl_query_scratchpad_md);
    int64_t bytes = ALIGN + padded_bytes(&pad);
    for (int32_t t = X; t <= Y; t++)
        bytes += converted(&state->tensor[t]) ? padded_bytes(&state->tensor[t].own) : 0;
    const bool adds = conv->result == W && images < conv->n;
    return bytes <= scratch && (!adds || converted(&state->tensor[W]));
}

/* ---- chunks ------------------------------------------------------------------------------ */

static int64_t next_divisor(int64_t n, int64_t from, int64_t step)
{
    while (n % from != 0)
        from += step;
    return from;
}

/* Enough images that converting weights (or adding to their gradient) does not count. */
static int64_t wanted_images(const esp_i_conv_t *conv)
{
    const int64_t target = esp_i_max_i64(CHUNK_BYTES / 4, WEIGHTS_PER_CHUNK * conv->image[W]) /
                           (conv->image[X] + conv->image[Y]);
    return target >= conv->n ? conv->n : next_divisor(conv->n, esp_i_max_i64(target, 1), 1);
}

/* ESP_OK and a descriptor if some number of images fits. */
static dnnl_status_t choose_chunk(state_t *state, const esp_i_conv_t *conv, int64_t scratch)
{
    int64_t images = wanted_images(conv);
    while (true) {
        TRY(choose(state, conv, images));
        if (fits(state, conv, images, scratch)) {
            state->chunks = conv->n / images;
            return dnnl_success;
        }
        (void)dnnl_primitive_desc_destroy(state->desc);
        state->desc = NULL;
        if (images == 1)
            return dnnl_unimplemented;
        images = next_divisor(conv->n, images - 1, -1);
    }
}

/* ---- preparing --------------------------------------------------------------------------- */

static dnnl_status_t make_reorder(state_t *state, tensor_t *tensor, bool out, bool add)
{
    const dnnl_memory_desc_t *from = out ? &tensor->own : &tensor->plain,
                             *to = out ? &tensor->plain : &tensor->own;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success && add) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success)
            status = dnnl_post_ops_append_sum(ops, 1);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (status == dnnl_success)
        status =
            dnnl_reorder_primitive_desc_create(&desc, from, state->engine, to, state->engine, attr);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&tensor->reorder, desc);
    (void)dnnl_primitive_desc_destroy(desc);
    (void)dnnl_post_ops_destroy(ops);
    (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t make_tensor(state_t *state, const esp_i_conv_t *conv, int32_t t, char **place)
{
    tensor_t *tensor = &state->tensor[t];
    tensor->data = (char *)conv->data[t];
    tensor->step = t == W ? 0 : conv->image[t] * conv->n / state->chunks * 4;
    TRY(dnnl_memory_create(&tensor->outside, &tensor->plain, state->engine, tensor->data));
    tensor->inside = tensor->outside;
    if (!converted(tensor))
        return dnnl_success;
    tensor->inside = NULL;
    TRY(dnnl_memory_create(&tensor->inside, &tensor->own, state->engine, *place));
    *place += padded_bytes(&tensor->own);
    return make_reorder(state, tensor, t == conv->result, t == W && conv->result == W);
}

static dnnl_status_t make_all(state_t *state, const esp_i_conv_t *conv, char *scratch)
{
    static const int names[3][2] = {{DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC},
                                    {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS},
                                    {DNNL_ARG_DST, DNNL_ARG_DIFF_DST}};
    char *place = scratch + (ALIGN - (uintptr_t)scratch % ALIGN) % ALIGN;
    const dnnl_memory_desc_t pad = wanted(state, dnnl_query_scratchpad_md);
    state->result = conv->result;
    for (int32_t t = X; t <= Y; t++) {
        TRY(make_tensor(state, conv, t, &place));
        const bool gradient = conv->result != Y && (t == Y || t == conv->result);
        state->args[t] = (dnnl_exec_arg_t){names[t][gradient], state->tensor[t].inside};
    }
    TRY(dnnl_memory_create(&state->scratchpad, &pad, state->engine, place));
    state->args[3] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, state->scratchpad};
    return dnnl_primitive_create(&state->primitive, state->desc);
}

static dnnl_status_t make(state_t *state, const esp_i_conv_t *conv, char *scratch, int64_t bytes)
{
    TRY(dnnl_engine_create(&state->engine, dnnl_cpu, 0));
    TRY(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags));
    TRY(dnnl_primitive_attr_create(&state->attr));
    TRY(dnnl_primitive_attr_set_scratchpad_mode(state->attr, dnnl_scratchpad_mode_user));
    TRY(choose_chunk(state, conv, bytes));
    return make_all(state, conv, scratch);
}

/* Whatever of it is there. */
static void release(state_t *state)
{
    for (int32_t t = X; t <= Y; t++) {
        tensor_t *tensor = &state->tensor[t];
        (void)dnnl_primitive_destroy(tensor->reorder);
        if (tensor->inside != tensor->outside)
            (void)dnnl_memory_destroy(tensor->inside);
        (void)dnnl_memory_destroy(tensor->outside);
    }
    (void)dnnl_memory_destroy(state->scratchpad);
    (void)dnnl_primitive_destroy(state->primitive);
    (void)dnnl_primitive_desc_destroy(state->desc);
    (void)dnnl_primitive_attr_destroy(state->attr);
    (void)dnnl_stream_destroy(state->stream);
    (void)dnnl_engine_destroy(state->engine);
    memset(state, 0, sizeof *state);
}

static void fini(esp_i_cpu_kernel_t *kernel)
{
    release(kernel->state);
}

/* ---- running ----------------------------------------------------------------------------- */

/* A primitive that was prepared for these memories does not fail. */
static void execute(const state_t *state, dnnl_primitive_t primitive, int n,
                    const dnnl_exec_arg_t *args)
{
    const dnnl_status_t status = dnnl_primitive_execute(primitive, state->stream, n, args);
    esp_assert(status == dnnl_success);
}

static void reorder(const state_t *state, int32_t t)
{
    const tensor_t *tensor = &state->tensor[t];
    const bool out = t == state->result;
    const dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, out ? tensor->inside : tensor->outside},
                                     {DNNL_ARG_TO, out ? tensor->outside : tensor->inside}};
    execute(state, tensor->reorder, 2, args);
}

static void run_chunk(const state_t *state, int64_t chunk)
{
    for (int32_t t = X; t <= Y; t++) {
        const tensor_t *tensor = &state->tensor[t];
        (void)dnnl_memory_set_data_handle(tensor->outside, tensor->data + chunk * tensor->step);
        if (tensor->reorder && t != state->result && (t != W || chunk == 0))
            reorder(state, t);
    }
    execute(state, state->primitive, 4, state->args);
    if (state->tensor[state->result].reorder)
        reorder(state, state->result);
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const state_t *state = kernel->state;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    if (state->result == W) /* chunks are added */
        memset(state->tensor[W].data, 0, (size_t)esp_i_cpu_out(kernel, 0)->elements * 4);
    for (int64_t chunk = 0; chunk < state->chunks; chunk++)
        run_chunk(state, chunk);
    omp_set_num_threads(threads);
}

bool esp_i_cpu_dnnl_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                         float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n,
                                            k, alpha, a, lda, b, ldb, beta, c, ldc);
    omp_set_num_threads(threads);
    return status == dnnl_success;
}

esp_status_t esp_i_cpu_dnnl(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, const esp_i_conv_t *conv,
                            bool *taken_out, esp_diag_t *diag)
{
    state_t state = {0};
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status = make(&state, conv, kernel->memory + kernel->call->scratch_place,
                                kernel->call->scratch_bytes);
    omp_set_num_threads(threads);
    *taken_out = status == dnnl_success;
    if (!*taken_out) {
        release(&state);
        return status == dnnl_out_of_memory ? esp_i_nomem(diag) : ESP_OK;
    }
    const esp_status_t kept = esp_i_cpu_state(cpu, kernel, sizeof state, diag);
    if (kept != ESP_OK) {
        release(&state);
        return kept;
    }
    memcpy(kernel->state, &state, sizeof state);
    kernel->run = run;
    kernel->fini = fini;
    return ESP_OK;
}
