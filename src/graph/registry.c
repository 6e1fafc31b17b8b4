/* The tables of kinds, dtypes, roles and element-wise codes. */
#include "graph/kind.h"

static const esp_i_kind_t *const kinds[] = {
#define ESP_KIND(name, text, help) &esp_i_kind_##name,
#include "espalier/kinds.def"
#undef ESP_KIND
};
_Static_assert(sizeof kinds / sizeof *kinds == ESP_KIND_COUNT, "one descriptor per kind");

const esp_i_kind_t *esp_i_kind(esp_op_kind_t kind)
{
    esp_assert(kind >= 0 && kind < ESP_KIND_COUNT);
    return kinds[kind];
}

const char *esp_kind_name(esp_op_kind_t kind)
{
    static const char *const names[] = {
#define ESP_KIND(name, text, help) text,
#include "espalier/kinds.def"
#undef ESP_KIND
    };
    return kind >= 0 && kind < ESP_KIND_COUNT ? names[kind] : "unknown";
}

const char *esp_kind_help(esp_op_kind_t kind)
{
    static const char *const texts[] = {
#define ESP_KIND(name, text, help) help,
#include "espalier/kinds.def"
#undef ESP_KIND
    };
    return kind >= 0 && kind < ESP_KIND_COUNT ? texts[kind] : "";
}

esp_kind_facts_t esp_kind_facts(esp_op_kind_t kind)
{
    const esp_i_kind_t *k = esp_i_kind(kind);
    return (esp_kind_facts_t){
        .family = k->family,
        .min_inputs = k->min_in,
        .max_inputs = k->max_in,
        .outputs = k->n_out,
        .has_factors = k->dims != NULL,
        .is_linear = k->linear != NULL,
        .has_gradient = k->gradient != NULL,
        .is_view = (k->flags & ESP_I_KIND_ALIAS) != 0,
        .is_random = (k->flags & ESP_I_KIND_RANDOM) != 0,
    };
}

const char *esp_dtype_name(esp_dtype_t dtype)
{
    static const char *const names[] = {
#define ESP_DTYPE_TEXT(name, text, size) text,
        ESP_DTYPE_MAP(ESP_DTYPE_TEXT)
#undef ESP_DTYPE_TEXT
    };
    return dtype >= 0 && dtype < ESP_DTYPE_COUNT ? names[dtype] : "unknown";
}

int64_t esp_dtype_bytes(esp_dtype_t dtype)
{
    static const int64_t sizes[] = {
#define ESP_DTYPE_SIZE(name, text, size) size,
        ESP_DTYPE_MAP(ESP_DTYPE_SIZE)
#undef ESP_DTYPE_SIZE
    };
    return dtype >= 0 && dtype < ESP_DTYPE_COUNT ? sizes[dtype] : 0;
}

int esp_dtype_is_float(esp_dtype_t dtype)
{
    return dtype == ESP_DTYPE_F32 || dtype == ESP_DTYPE_F64 || dtype == ESP_DTYPE_F16 ||
           dtype == ESP_DTYPE_BF16;
}

const char *esp_role_name(esp_role_t role)
{
    static const char *const names[] = {
#define ESP_ROLE_TEXT(name, text) text,
        ESP_ROLE_MAP(ESP_ROLE_TEXT)
#undef ESP_ROLE_TEXT
    };
    return role >= 0 && role < ESP_ROLE_COUNT ? names[role] : "unknown";
}
