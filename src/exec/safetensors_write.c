/* Writing safetensors, tensor by tensor. */
#include "base/json.h"
#include "exec/safetensors.h"

static void put_entry(esp_i_json_out_t *json, const esp_i_st_tensor_t *tensor)
{
    esp_i_json_open_object(json, tensor->name);
    esp_i_json_put_string(json, "dtype", esp_i_st_types[tensor->dtype]);
    esp_i_json_open_array(json, "shape");
    for (int32_t d = 0; d < tensor->rank; d++)
        esp_i_json_put_int(json, NULL, tensor->dims[d]);
    esp_i_json_close(json);
    esp_i_json_open_array(json, "data_offsets");
    esp_i_json_put_int(json, NULL, tensor->offset);
    esp_i_json_put_int(json, NULL, tensor->offset + tensor->bytes);
    esp_i_json_close(json);
    esp_i_json_close(json);
}

static void put_header(esp_i_text_t *text, int32_t n_meta, const char *const (*meta)[2],
                       int32_t n_tensors, const esp_i_st_tensor_t *tensor)
{
    esp_i_json_out_t json;
    esp_i_text_add_bytes(text, "\0\0\0\0\0\0\0\0", 8); /* the length comes here */
    esp_i_json_out_init(&json, text);
    esp_i_json_next_flat(&json);
    esp_i_json_open_object(&json, NULL);
    if (n_meta > 0)
        esp_i_json_open_object(&json, "__metadata__");
    for (int32_t i = 0; i < n_meta; i++)
        esp_i_json_put_string(&json, meta[i][0], meta[i][1]);
    if (n_meta > 0)
        esp_i_json_close(&json);
    for (int32_t i = 0; i < n_tensors; i++)
        put_entry(&json, &tensor[i]);
    esp_i_json_close(&json);
    while (!text->failed && text->length % 8 != 0) /* the data is aligned */
        esp_i_text_add(text, " ");
}

static void place(int32_t n, esp_i_st_tensor_t *tensor)
{
    int64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        tensor[i].elements = 1;
        for (int32_t d = 0; d < tensor[i].rank; d++)
            tensor[i].elements *= tensor[i].dims[d];
        tensor[i].bytes = tensor[i].elements * esp_dtype_bytes(tensor[i].dtype);
        tensor[i].offset = at;
        at += tensor[i].bytes;
    }
}

esp_status_t esp_i_st_begin(const char *path, const esp_allocator_t *alloc, int32_t n_meta,
                            const char *const (*meta)[2], int32_t n_tensors,
                            esp_i_st_tensor_t *tensor, esp_i_file_out_t *out, esp_diag_t *diag)
{
    esp_i_text_t text;
    place(n_tensors, tensor);
    esp_i_text_init(&text, alloc);
    put_header(&text, n_meta, meta, n_tensors, tensor);
    esp_status_t status = text.failed ? esp_i_nomem(diag) : ESP_OK;
    for (size_t i = 0; i < 8 && status == ESP_OK; i++)
        text.data[i] = (char)((uint64_t)(text.length - 8) >> 8 * i & 255);
    if (status == ESP_OK)
        status = esp_i_file_begin(path, out, diag);
    if (status == ESP_OK)
        status = esp_i_file_append(out, text.data, text.length, diag);
    esp_i_text_fini(&text);
    return status;
}
