/* Which function prepares which kind. */
#include "exec/cpu/cpu.h"

static esp_i_cpu_prepare_fn *const prepare[] = {
#define ESP_KIND(name, text, help) esp_i_cpu_##name,
#include "espalier/kinds.def"
#undef ESP_KIND
};
_Static_assert(sizeof prepare / sizeof *prepare == ESP_KIND_COUNT, "one function per kind");

esp_i_cpu_prepare_fn *esp_i_cpu_prepare(esp_op_kind_t kind)
{
    esp_assert(kind >= 0 && kind < ESP_KIND_COUNT);
    return prepare[kind];
}
