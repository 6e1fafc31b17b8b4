/* The texts of the status codes and the version. */
#include "base/base.h"

const char *esp_status_text(esp_status_t status)
{
    switch (status) {
#define ESP_STATUS_CASE(name, value, text)                                                         \
    case name:                                                                                     \
        return text;
        ESP_STATUS_MAP(ESP_STATUS_CASE)
#undef ESP_STATUS_CASE
    }
    return "unknown status";
}

#define ESP_STRING_(x) #x
#define ESP_STRING(x)  ESP_STRING_(x)

const char *esp_version(void)
{
    return ESP_STRING(ESP_VERSION_MAJOR) "." ESP_STRING(ESP_VERSION_MINOR) "." ESP_STRING(
        ESP_VERSION_PATCH);
}
