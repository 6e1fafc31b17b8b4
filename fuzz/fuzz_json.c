/* JSON: whatever is read can be written, and reads and writes as the same again. */
#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_out(const esp_i_json_doc_t *doc, esp_i_text_t *text)
{
    esp_i_json_out_t out;
    esp_i_text_init(text, NULL);
    esp_i_json_out_init(&out, text);
    esp_i_json_put_value(&out, NULL, esp_i_json_root(doc));
    esp_assert(!text->failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_i_json_doc_t *doc, *again;
    esp_diag_t diag = {0};
    esp_status_t status =
        esp_i_json_parse(NULL, (const char *)data, (int64_t)size, "fuzz", &doc, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.line > 0 && diag.column > 0);
        return 0;
    }
    esp_i_text_t first, second;
    write_out(doc, &first);
    esp_i_json_destroy(doc);
    status = esp_i_json_parse(NULL, first.data, (int64_t)first.length, "again", &again, &diag);
    esp_assert(status == ESP_OK);
    write_out(again, &second);
    esp_i_json_destroy(again);
    esp_assert(first.length == second.length);
    esp_assert(memcmp(first.data, second.data, first.length) == 0);
    esp_i_text_fini(&first);
    esp_i_text_fini(&second);
    return 0;
}
