/* The kernel backends of this build. */
#include "exec/kernels.h"

#include <string.h>

const esp_i_kernels_type_t *const esp_i_kernels_types[] = {&esp_i_kernels_cpu,
                                                           &esp_i_kernels_reference, NULL};

const esp_i_kernels_type_t *esp_i_kernels_find(const char *name)
{
    for (int32_t i = 0; esp_i_kernels_types[i] != NULL; i++)
        if (strcmp(esp_i_kernels_types[i]->name, name) == 0)
            return esp_i_kernels_types[i];
    return NULL;
}
