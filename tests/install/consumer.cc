// Uses the installed library from C++.
#include <espalier/base.h>

#include <string>

int main()
{
    esp_diag_t diag = {};
    diag.status = ESP_ERR_NOMEM;
    std::string text(esp_diag_format(&diag, nullptr, 0), '\0');
    esp_diag_format(&diag, &text[0], text.size() + 1);
    return text == esp_status_text(ESP_ERR_NOMEM) ? 0 : 1;
}
