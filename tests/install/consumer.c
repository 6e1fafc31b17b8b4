/* Uses the installed library from C. */
#include <espalier/base.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    char expected[32], text[64];
    esp_diag_t diag = {.status = ESP_ERR_IO, .file = "f", .line = 3};
    snprintf(expected, sizeof expected, "%d.%d.%d", ESP_VERSION_MAJOR, ESP_VERSION_MINOR,
             ESP_VERSION_PATCH);
    if (strcmp(esp_version(), expected) != 0)
        return 1;
    (void)esp_diag_format(&diag, text, sizeof text);
    return strcmp(text, "f:3: input or output failed") != 0;
}
