/* The CPU backend: memory, and kernels by the table of kinds. */
#include "exec/cpu/cpu.h"

static esp_status_t cpu_create(const esp_allocator_t *alloc, bool wide, esp_i_kernels_t **out,
                               esp_diag_t *diag)
{
    const esp_allocator_t own = esp_i_allocator(alloc);
    if (wide)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                          "the cpu backend computes in float32; for double there is \"reference\"");
    esp_i_cpu_t *cpu = esp_i_alloc_array(&own, 1, sizeof *cpu);
    if (cpu == NULL)
        return esp_i_nomem(diag);
    cpu->base = (esp_i_kernels_t){.type = &esp_i_kernels_cpu, .alloc = own};
    esp_i_arena_init(&cpu->state, &own);
    *out = &cpu->base;
    return ESP_OK;
}

static void cpu_destroy(esp_i_kernels_t *self)
{
    esp_i_cpu_t *cpu = (esp_i_cpu_t *)self;
    if (cpu == NULL)
        return;
    const esp_allocator_t own = cpu->base.alloc;
    for (int32_t i = 0; i < cpu->kernels.count; i++)
        if (cpu->kernels.data[i]->fini != NULL)
            cpu->kernels.data[i]->fini(cpu->kernels.data[i]);
    esp_vec_free(&own, &cpu->kernels);
    esp_i_arena_fini(&cpu->state);
    esp_i_free(&own, cpu->base.block);
    esp_i_free(&own, cpu);
}

/* What no kernel takes: floats that are not float32, but for a cast of float64. */
static esp_status_t check_dtypes(const esp_i_call_t *call, esp_diag_t *diag)
{
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const esp_i_local_t *local = &call->operand[i];
        const bool whole = !esp_dtype_is_float(local->dtype) || local->dtype == ESP_DTYPE_F32;
        if (local->place >= 0 && !whole && call->kind != ESP_KIND_CAST)
            return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                              "op %s: operand %d is %s, of which the cpu backend has no kernels",
                              call->name, (int)i, esp_dtype_name(local->dtype));
    }
    return ESP_OK;
}

static esp_status_t cpu_prepare(esp_i_kernels_t *self, const esp_i_call_t *call, void **kernel_out,
                                esp_diag_t *diag)
{
    esp_i_cpu_t *cpu = (esp_i_cpu_t *)self;
    esp_i_cpu_kernel_t *kernel = esp_i_arena_alloc(&cpu->state, 1, sizeof *kernel);
    if (kernel == NULL)
        return esp_i_nomem(diag);
    *kernel = (esp_i_cpu_kernel_t){.call = call, .memory = cpu->base.memory};
    ESP_TRY(check_dtypes(call, diag));
    ESP_TRY(esp_i_cpu_prepare(call->kind)(cpu, kernel, diag));
    if (!esp_vec_push(&cpu->base.alloc, &cpu->kernels, kernel)) {
        if (kernel->fini != NULL)
            kernel->fini(kernel);
        return esp_i_nomem(diag);
    }
    *kernel_out = kernel;
    return ESP_OK;
}

static esp_status_t cpu_run(esp_i_kernels_t *self, void *kernel_in, const esp_i_moment_t *moment,
                            esp_diag_t *diag)
{
    const esp_i_cpu_kernel_t *kernel = kernel_in;
    (void)self;
    (void)diag;
    kernel->run(kernel, moment);
    return ESP_OK;
}

const esp_i_kernels_type_t esp_i_kernels_cpu = {
    .name = "cpu",
    .create = cpu_create,
    .destroy = cpu_destroy,
    .arena = esp_i_host_arena,
    .prepare = cpu_prepare,
    .run = cpu_run,
    .add = esp_i_host_add,
    .copy = esp_i_host_copy,
    .write = esp_i_host_write,
    .read = esp_i_host_read,
};
