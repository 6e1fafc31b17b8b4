/* What the kernels of contractions, windows, attention and recurrent layers share. */
#include "exec/cpu/fast.h"

#include <string.h>

esp_i_buffer_t esp_i_cpu_buffer(const esp_i_cpu_kernel_t *kernel, int32_t operand)
{
    const esp_i_local_t *local = &kernel->call->operand[operand];
    esp_i_buffer_t buffer = {.data = local->place < 0 ? NULL : (double *)(void *)kernel->memory,
                             .rank = local->rank,
                             .global_rank = local->global_rank,
                             .view = local->view,
                             .offset = local->offset,
                             .share = local->share};
    memcpy(buffer.dims, local->dims, sizeof buffer.dims);
    memcpy(buffer.global, local->global, sizeof buffer.global);
    return buffer;
}

esp_status_t esp_i_cpu_float32(const esp_i_cpu_kernel_t *kernel, uint32_t or_bool, esp_diag_t *diag)
{
    const esp_i_call_t *call = kernel->call;
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const esp_i_local_t *local = &call->operand[i];
        bool boolean = local->dtype == ESP_DTYPE_BOOL && or_bool >> i & 1;
        if (local->rank >= 0 && local->dtype != ESP_DTYPE_F32 && !boolean)
            return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                              "op %s: the cpu backend has %s for float32 only, not for %s",
                              call->name, esp_kind_name(call->kind), esp_dtype_name(local->dtype));
    }
    return ESP_OK;
}

esp_status_t esp_i_cpu_state(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, size_t bytes,
                             esp_diag_t *diag)
{
    kernel->state = esp_i_arena_alloc(&cpu->state, 1, bytes);
    return kernel->state ? ESP_OK : esp_i_nomem(diag);
}
