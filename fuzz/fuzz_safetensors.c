/* safetensors files: the tensors that are read fill the data section. */
#include "exec/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_i_st_t st;
    esp_diag_t diag = {0};
    esp_status_t status = esp_i_st_parse(data, (int64_t)size, "input", NULL, &st, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.text[0] != '\0');
        return 0;
    }
    const uint8_t *at = st.data;
    for (int32_t i = 0; i < st.n_tensors; i++) {
        esp_assert(st.data + st.tensor[i].offset == at && st.tensor[i].name != NULL);
        at += st.tensor[i].bytes;
    }
    esp_assert(at == data + size);
    esp_i_st_close(&st);
    return 0;
}
