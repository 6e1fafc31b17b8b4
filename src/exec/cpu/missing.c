/* Kinds that this backend does not have yet. */
#include "exec/cpu/cpu.h"

static esp_status_t missing(const esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "op %s: the cpu backend has no kernel of kind %s",
                      kernel->call->name, esp_kind_name(kernel->call->kind));
}

#define MISSING(kind)                                                                              \
    esp_status_t esp_i_cpu_##kind(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)  \
    {                                                                                              \
        (void)cpu;                                                                                 \
        return missing(kernel, diag);                                                              \
    }

MISSING(ATTENTION)
MISSING(ATTENTION_GRAD)
MISSING(LSTM)
MISSING(LSTM_GRAD)
MISSING(GRU)
MISSING(GRU_GRAD)
MISSING(RNN)
MISSING(RNN_GRAD)
