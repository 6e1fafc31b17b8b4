/* Cluster files: whatever loads satisfies the checker, and its dump loads as the same again. */
#include "espalier/cluster.h"
#include "base/base.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const esp_cluster_t *cluster)
{
    esp_cluster_t *again;
    esp_diag_t diag = {0};
    char *first, *second, *dot, hash[65];
    esp_assert(esp_cluster_dump(cluster, NULL, &first, &diag) == ESP_OK);
    esp_assert(esp_cluster_parse(first, strlen(first), "again", NULL, &again, &diag) == ESP_OK);
    esp_assert(esp_cluster_dump(again, NULL, &second, &diag) == ESP_OK);
    esp_assert(strcmp(first, second) == 0);
    esp_assert(esp_cluster_dot(again, NULL, &dot, &diag) == ESP_OK);
    esp_assert(esp_cluster_hash(again, NULL, hash, &diag) == ESP_OK);
    esp_assert(strlen(hash) == 64);
    esp_cluster_destroy(again);
    esp_i_free(NULL, first);
    esp_i_free(NULL, second);
    esp_i_free(NULL, dot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    esp_status_t status =
        esp_cluster_parse((const char *)data, size, "fuzz", NULL, &cluster, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.text[0] != '\0');
        esp_assert((diag.line > 0 && diag.column > 0) || diag.has_byte);
        return 0;
    }
    esp_assert(esp_cluster_check(cluster, &diag) == ESP_OK);
    round_trip(cluster);
    esp_cluster_destroy(cluster);
    return 0;
}
