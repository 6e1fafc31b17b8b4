/* Operands of kernels: local buffers and where their elements lie in the global tensor. */
#include "graph/kind.h"

int64_t esp_i_buffer_elements(const esp_i_buffer_t *buffer)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < buffer->rank; i++)
        elements *= buffer->dims[i];
    return elements;
}

int64_t esp_i_buffer_global_index(const esp_i_buffer_t *buffer, int64_t i)
{
    const esp_view_t *view = &buffer->view;
    if (view->extent == 0)
        return i;
    const int64_t inner = i % view->inner, row = i / view->inner;
    const int64_t outer = row / buffer->share, middle = row % buffer->share;
    return (outer * view->extent + buffer->offset + middle) * view->inner + inner;
}
