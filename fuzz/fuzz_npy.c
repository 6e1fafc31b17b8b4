/* .npy files: what is read lies within the file. */
#include "exec/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_i_npy_t npy;
    esp_diag_t diag = {0};
    esp_status_t status = esp_i_npy_parse(data, (int64_t)size, &npy, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.text[0] != '\0');
        return 0;
    }
    esp_assert(npy.data + npy.elements * esp_dtype_bytes(npy.dtype) == data + size);
    return 0;
}
